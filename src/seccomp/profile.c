/* Compiles JSON profiles: reads them strictly, decides which rules apply, and adds these to libseccomp. */
#include "seccomp/profile.h"
#include "base/base.h"

#include <ctype.h>
#include <jansson.h>
#include <linux/filter.h>
#include <seccomp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifdef __x86_64__
#define ARCH_DOCKER "amd64"
#else
#define ARCH_DOCKER "arm64"
#endif

/*
 * System calls that the engine's own filter allows, and that an older libseccomp has no name for; same numbers on all
 * architectures.
 */
/* clang-format off */
static const struct {
	const char *name;
	int nr;
} newer[] = {
	{ "cachestat", 451 },	  { "fchmodat2", 452 },	     { "map_shadow_stack", 453 }, { "futex_wake", 454 },
	{ "futex_wait", 455 },	  { "futex_requeue", 456 },  { "statmount", 457 },	  { "listmount", 458 },
	{ "mseal", 462 },	  { "setxattrat", 463 },     { "getxattrat", 464 },	  { "listxattrat", 465 },
	{ "removexattrat", 466 }, { "open_tree_attr", 467 }, { "file_getattr", 468 },	  { "file_setattr", 469 },
	{ "listns", 470 },
};
/* clang-format on */

/* From Linux 5.1 on, a new call has the same number on all architectures. */
#define CALLS_SHARED 424
#define CALLS_END 600
#define CLONE3 435

struct profile {
	scmp_filter_ctx filter;
	uint32_t default_action;
	unsigned rules;
	unsigned kernel[2];
	int newest; /* the highest number in the profile */
	bool clone3; /* clone3 is in the profile */
	char where[80]; /* the part of the profile being read, for errors */
	struct err *e;
};

/* ---- errors and typed access ------------------------------------------------------------------------------------ */

/* Text from the profile, safe to print. */
struct shown {
	char s[64];
};

static struct shown show(const char *text)
{
	struct shown o;
	size_t n = 0;

	for (; text[n] && n < sizeof(o.s) - 1; n++)
		o.s[n] = isprint((unsigned char)text[n]) ? text[n] : '?';
	o.s[n] = '\0';
	return o;
}

static int bad(struct profile *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int bad(struct profile *p, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(p->e, ERR_INVALID, -EINVAL, "%s%s%s", p->where, p->where[0] ? ": " : "", text);
}

static int check_keys(struct profile *p, const json_t *o, const char *const *known)
{
	const char *key;
	json_t *v;

	if (!json_is_object(o))
		return bad(p, "is not an object");
	/* jansson's iterator only reads, whatever its type says. */
	json_object_foreach((json_t *)(uintptr_t)o, key, v)
	{
		size_t i = 0;

		while (known[i] && strcmp(known[i], key))
			i++;
		if (!known[i])
			return bad(p, "unknown key '%s'", show(key).s);
	}
	return 0;
}

/* The following functions return 0 with *ret NULL when the key is absent or null. */
static int get(struct profile *p, const json_t *o, const char *key, json_type type, json_t **ret)
{
	static const char *const names[] = { "an object", "an array", "a string", "an integer" };
	json_t *v = json_object_get(o, key);

	*ret = NULL;
	if (!v || json_is_null(v))
		return 0;
	if (json_typeof(v) != type)
		return bad(p, "'%s' must be %s", key, names[type]);
	*ret = v;
	return 0;
}

static int get_string(struct profile *p, const json_t *o, const char *key, const char **ret)
{
	json_t *v;
	int r = get(p, o, key, JSON_STRING, &v);

	*ret = v ? json_string_value(v) : NULL;
	return r;
}

/* An array of strings; calls @fn for each. */
static int each_string(struct profile *p, const json_t *o, const char *key,
		       int (*fn)(struct profile *, const char *, void *), void *arg)
{
	json_t *list, *v;
	size_t i;
	int r = get(p, o, key, JSON_ARRAY, &list);

	if (r < 0)
		return r;
	json_array_foreach(list, i, v)
	{
		if (!json_is_string(v))
			return bad(p, "'%s' contains an item that is not a string", key);
		r = fn(p, json_string_value(v), arg);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- actions ---------------------------------------------------------------------------------------------------- */

static int errno_by_name(const char *name)
{
	for (int i = 1; i < 256; i++) {
		const char *n = strerrorname_np(i);

		if (n && !strcmp(n, name))
			return i;
	}
	return -1;
}

/* The number (OCI, Docker) or the name (Podman) of the errno; -1 when neither is given. */
static int read_errno(struct profile *p, const json_t *o, const char *number, const char *name, int *ret)
{
	const char *text;
	json_t *v;
	int r;

	*ret = -1;
	r = get(p, o, number, JSON_INTEGER, &v);
	if (r < 0)
		return r;
	if (v) {
		if (json_integer_value(v) < 0 || json_integer_value(v) > 4095)
			return bad(p, "'%s' must be between 0 and 4095", number);
		*ret = (int)json_integer_value(v);
	}
	r = get_string(p, o, name, &text);
	if (r < 0)
		return r;
	if (text) {
		int n = errno_by_name(text);

		if (n < 0)
			return bad(p, "'%s' is not the name of an errno: '%s'", name, show(text).s);
		if (*ret >= 0 && *ret != n)
			return bad(p, "'%s' and '%s' contradict each other", number, name);
		*ret = n;
	}
	return 0;
}

static int read_action(struct profile *p, const json_t *o, const char *key, const char *number, const char *name,
		       uint32_t *ret)
{
	static const struct {
		const char *name;
		uint32_t action;
	} table[] = {
		{ "SCMP_ACT_ALLOW", SCMP_ACT_ALLOW },
		{ "SCMP_ACT_LOG", SCMP_ACT_LOG },
		{ "SCMP_ACT_TRAP", SCMP_ACT_TRAP },
		{ "SCMP_ACT_KILL", SCMP_ACT_KILL_THREAD },
		{ "SCMP_ACT_KILL_THREAD", SCMP_ACT_KILL_THREAD },
		{ "SCMP_ACT_KILL_PROCESS", SCMP_ACT_KILL_PROCESS },
		{ "SCMP_ACT_ERRNO", SCMP_ACT_ERRNO(EPERM) },
	};
	const char *text;
	int r, errnum;

	r = get_string(p, o, key, &text);
	if (r < 0)
		return r;
	if (!text)
		return bad(p, "'%s' is missing", key);
	r = read_errno(p, o, number, name, &errnum);
	if (r < 0)
		return r;
	if (!strcmp(text, "SCMP_ACT_NOTIFY") || !strcmp(text, "SCMP_ACT_TRACE"))
		return bad(p, "'%s': %s needs a supervisor process, which a sandbox does not have", key, text);
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		if (strcmp(table[i].name, text))
			continue;
		*ret = table[i].action;
		if (errnum >= 0) {
			if (*ret != SCMP_ACT_ERRNO(EPERM))
				return bad(p, "an errno is given, but '%s' is %s", key, text);
			*ret = SCMP_ACT_ERRNO((uint32_t)errnum);
		}
		return 0;
	}
	return bad(p, "'%s': unknown action '%s'", key, show(text).s);
}

/* ---- conditions ------------------------------------------------------------------------------------------------- */

static int same_arch(struct profile *p, const char *name, void *arg)
{
	bool *found = arg;

	(void)p;
	*found |= !strcmp(name, ARCH_DOCKER);
	return 0;
}

static int is_cap(struct profile *p, const char *name, void *arg)
{
	(void)arg;
	return strncmp(name, "CAP_", 4) ? bad(p, "unknown capability: '%s'", show(name).s) : 0;
}

static int read_kernel(struct profile *p, const char *text, unsigned *ret)
{
	int end = 0;

	if (sscanf(text, "%4u.%4u%n", &ret[0], &ret[1], &end) == 2 && isdigit((unsigned char)text[0])) {
		text += end;
		if (!*text || (*text == '.' && strspn(text + 1, "0123456789") == strlen(text + 1)))
			return 0;
	}
	return bad(p, "'minKernel' is not a version");
}

struct condition {
	bool any_arch, this_arch, any_cap, has_kernel, kernel_reached;
};

static int read_condition(struct profile *p, const json_t *entry, const char *key, struct condition *c)
{
	static const char *const known[] = { "arches", "caps", "minKernel", NULL };
	const char *text;
	unsigned min[2];
	json_t *o, *list;
	int r;

	*c = (struct condition){ 0 };
	r = get(p, entry, key, JSON_OBJECT, &o);
	if (r < 0 || !o)
		return r;
	r = check_keys(p, o, known);
	if (r < 0)
		return r;
	r = each_string(p, o, "arches", same_arch, &c->this_arch);
	if (r < 0)
		return r;
	r = each_string(p, o, "caps", is_cap, NULL);
	if (r < 0)
		return r;
	list = json_object_get(o, "arches");
	c->any_arch = json_array_size(list) > 0;
	list = json_object_get(o, "caps");
	c->any_cap = json_array_size(list) > 0;
	r = get_string(p, o, "minKernel", &text);
	if (r < 0 || !text || !text[0])
		return r;
	r = read_kernel(p, text, min);
	c->has_kernel = true;
	c->kernel_reached = p->kernel[0] > min[0] || (p->kernel[0] == min[0] && p->kernel[1] >= min[1]);
	return r;
}

/* Whether the entry applies. One match is enough to exclude; all must match to include. */
static int applies(struct profile *p, const json_t *entry, bool *ret)
{
	struct condition in, ex;
	int r;

	r = read_condition(p, entry, "includes", &in);
	if (r < 0)
		return r;
	r = read_condition(p, entry, "excludes", &ex);
	if (r < 0)
		return r;
	*ret = !(in.any_arch && !in.this_arch) && !in.any_cap && !(in.has_kernel && !in.kernel_reached) &&
	       !ex.this_arch && !(ex.has_kernel && ex.kernel_reached);
	return 0;
}

/* ---- rules ------------------------------------------------------------------------------------------------------ */

static int read_number(struct profile *p, const json_t *o, const char *key, uint64_t max, uint64_t *ret)
{
	json_t *v;
	int r = get(p, o, key, JSON_INTEGER, &v);

	if (r < 0)
		return r;
	*ret = 0;
	if (v && (json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max))
		return bad(p, "'%s' is out of range", key);
	if (v)
		*ret = (uint64_t)json_integer_value(v);
	return 0;
}

static int read_arg(struct profile *p, const json_t *o, struct scmp_arg_cmp *ret)
{
	static const char *const known[] = { "index", "value", "valueTwo", "op", NULL };
	static const struct {
		const char *name;
		enum scmp_compare op;
	} ops[] = {
		{ "SCMP_CMP_NE", SCMP_CMP_NE },
		{ "SCMP_CMP_LT", SCMP_CMP_LT },
		{ "SCMP_CMP_LE", SCMP_CMP_LE },
		{ "SCMP_CMP_EQ", SCMP_CMP_EQ },
		{ "SCMP_CMP_GE", SCMP_CMP_GE },
		{ "SCMP_CMP_GT", SCMP_CMP_GT },
		{ "SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ },
	};
	uint64_t index, one, two;
	const char *op;
	int r;

	r = check_keys(p, o, known);
	if (r < 0)
		return r;
	if (!json_object_get(o, "index") || !json_object_get(o, "value"))
		return bad(p, "'index' or 'value' is missing");
	r = read_number(p, o, "index", 5, &index);
	if (r < 0)
		return r;
	r = read_number(p, o, "value", UINT64_MAX, &one);
	if (r < 0)
		return r;
	r = read_number(p, o, "valueTwo", UINT64_MAX, &two);
	if (r < 0)
		return r;
	r = get_string(p, o, "op", &op);
	if (r < 0)
		return r;
	for (size_t i = 0; op && i < ARRAY_LEN(ops); i++) {
		if (strcmp(ops[i].name, op))
			continue;
		*ret = (struct scmp_arg_cmp){ (unsigned)index, ops[i].op, one, two };
		return 0;
	}
	return op ? bad(p, "unknown operator '%s'", show(op).s) : bad(p, "'op' is missing");
}

#define ARGS_MAX 64

struct rule {
	uint32_t action;
	struct scmp_arg_cmp args[ARGS_MAX];
	unsigned nargs;
	bool alternatives; /* an index occurs twice: each comparison becomes a rule of its own, as in Docker */
};

static int read_args(struct profile *p, const json_t *entry, struct rule *rule)
{
	unsigned seen = 0;
	json_t *list, *v;
	char where[80];
	size_t i;
	int r;

	r = get(p, entry, "args", JSON_ARRAY, &list);
	if (r < 0)
		return r;
	memcpy(where, p->where, sizeof(where));
	json_array_foreach(list, i, v)
	{
		snprintf(p->where, sizeof(p->where), "%.40s.args[%zu]", where, i);
		if (i == ARGS_MAX)
			return bad(p, "more than %d conditions", ARGS_MAX);
		r = read_arg(p, v, &rule->args[i]);
		if (r < 0)
			return r;
		rule->alternatives |= (seen & 1U << rule->args[i].arg) != 0;
		seen |= 1U << rule->args[i].arg;
		rule->nargs++;
	}
	memcpy(p->where, where, sizeof(where));
	return 0;
}

static int number_of(const char *name)
{
	int nr = seccomp_syscall_resolve_name(name);

	if (nr != __NR_SCMP_ERROR)
		return nr;
	for (size_t i = 0; i < ARRAY_LEN(newer); i++)
		if (!strcmp(newer[i].name, name))
			return newer[i].nr;
	return __NR_SCMP_ERROR;
}

static int add_one(struct profile *p, const char *name, int nr, const struct rule *rule, unsigned n,
		   const struct scmp_arg_cmp *args)
{
	int r;

	if (++p->rules > PROFILE_RULES_MAX)
		return err_set(p->e, ERR_TOO_LARGE, -EFBIG, "more than %d rules", PROFILE_RULES_MAX);
	r = seccomp_rule_add_array(p->filter, rule->action, nr, n, args);
	if (r < 0 && r != -EEXIST)
		return bad(p, "'%s': libseccomp rejects the rule: %s", show(name).s, strerror(-r));
	return 0;
}

static int add_name(struct profile *p, const char *name, void *arg)
{
	const struct rule *rule = arg;
	int nr = number_of(name), r = 0;

	p->newest = nr > p->newest ? nr : p->newest;
	p->clone3 |= nr == CLONE3;
	/* A negative number: an unknown call, or one of other architectures only. */
	if (nr < 0 || rule->action == p->default_action)
		return 0;
	if (!rule->alternatives)
		return add_one(p, name, nr, rule, rule->nargs, rule->args);
	for (unsigned i = 0; i < rule->nargs && r == 0; i++)
		r = add_one(p, name, nr, rule, 1, &rule->args[i]);
	return r;
}

static int add_entry(struct profile *p, const json_t *entry)
{
	static const char *const known[] = { "names", "name",	 "action",   "errnoRet", "errno",
					     "args",  "comment", "includes", "excludes", NULL };
	struct rule rule = { 0 };
	const char *name, *comment;
	json_t *names;
	bool here;
	int r;

	r = check_keys(p, entry, known);
	if (r < 0)
		return r;
	r = read_action(p, entry, "action", "errnoRet", "errno", &rule.action);
	if (r < 0)
		return r;
	r = get_string(p, entry, "comment", &comment);
	if (r < 0)
		return r;
	r = read_args(p, entry, &rule);
	if (r < 0)
		return r;
	r = get_string(p, entry, "name", &name);
	if (r < 0)
		return r;
	r = get(p, entry, "names", JSON_ARRAY, &names);
	if (r < 0)
		return r;
	if (!!name == !!names)
		return bad(p, "needs either 'names' or 'name'");
	r = applies(p, entry, &here);
	if (r < 0)
		return r;
	if (!here)
		rule.action = p->default_action; /* it has no effect, but is read to the end, to report its errors */
	return name ? add_name(p, name, &rule) : each_string(p, entry, "names", add_name, &rule);
}

/*
 * A list of allowed calls cannot name calls that are newer than the list. libc treats a refusal of such a call as final
 * (threads cannot be made, files not read), and uses an older call only after ENOSYS: so newer calls return ENOSYS, as
 * with runc. clone3 always does, by the engine's own filter.
 */
static int hide_newer(struct profile *p)
{
	const struct rule absent = { .action = SCMP_ACT_ERRNO(ENOSYS) };
	int r = 0;

	if ((p->default_action & 0xffff0000U) != SCMP_ACT_ERRNO(0) || p->default_action == absent.action || !p->rules)
		return 0;
	if (!p->clone3 && p->newest > CLONE3)
		r = add_one(p, "clone3", CLONE3, &absent, 0, NULL);
	for (int nr = p->newest >= CALLS_SHARED ? p->newest + 1 : CALLS_SHARED; nr < CALLS_END && r == 0; nr++)
		r = add_one(p, "a newer system call", nr, &absent, 0, NULL);
	return r;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static int is_arch(struct profile *p, const char *name, void *arg)
{
	static const char *const known[] = {
		"X86",	  "X86_64",   "X32",	     "ARM",	    "AARCH64", "MIPS",	  "MIPS64", "MIPS64N32",
		"MIPSEL", "MIPSEL64", "MIPSEL64N32", "PPC",	    "PPC64",   "PPC64LE", "S390",   "S390X",
		"PARISC", "PARISC64", "RISCV64",     "LOONGARCH64", "M68K",    "SH",	  "SHEB",   "NATIVE",
	};

	(void)arg;
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (!strncmp(name, "SCMP_ARCH_", 10) && !strcmp(name + 10, known[i]))
			return 0;
	return bad(p, "unknown architecture '%s'", show(name).s);
}

/*
 * Only checked: the program is for the native architecture, and kills calls of any other, as the engine's own filter
 * does.
 */
static int check_arches(struct profile *p, const json_t *root)
{
	static const char *const known[] = { "architecture", "subArchitectures", NULL };
	json_t *map, *v;
	size_t i;
	int r;

	r = each_string(p, root, "architectures", is_arch, NULL);
	if (r < 0)
		return r;
	r = get(p, root, "archMap", JSON_ARRAY, &map);
	if (r < 0)
		return r;
	if (map && json_array_size(json_object_get(root, "architectures")) > 0)
		return bad(p, "has both 'architectures' and 'archMap'");
	json_array_foreach(map, i, v)
	{
		const char *name;

		snprintf(p->where, sizeof(p->where), "archMap[%zu]", i);
		r = check_keys(p, v, known);
		if (r < 0)
			return r;
		r = get_string(p, v, "architecture", &name);
		if (r < 0)
			return r;
		r = name ? is_arch(p, name, NULL) : bad(p, "'architecture' is missing");
		if (r < 0)
			return r;
		r = each_string(p, v, "subArchitectures", is_arch, NULL);
		if (r < 0)
			return r;
	}
	p->where[0] = '\0';
	return 0;
}

static int check_flag(struct profile *p, const char *name, void *arg)
{
	(void)arg;
	/* One thread installs the filter, so this flag makes no difference. */
	if (!strcmp(name, "SECCOMP_FILTER_FLAG_TSYNC"))
		return 0;
	return bad(p, "flag '%s' is not supported", show(name).s);
}

static int read_all(struct profile *p, const json_t *root)
{
	static const char *const known[] = { "defaultAction", "defaultErrnoRet", "defaultErrno",
					     "architectures", "archMap",	 "flags",
					     "syscalls",      "comment",	 NULL };
	json_t *list, *v;
	size_t i;
	int r;

	r = check_keys(p, root, known);
	if (r < 0)
		return r;
	r = read_action(p, root, "defaultAction", "defaultErrnoRet", "defaultErrno", &p->default_action);
	if (r < 0)
		return r;
	r = check_arches(p, root);
	if (r < 0)
		return r;
	r = each_string(p, root, "flags", check_flag, NULL);
	if (r < 0)
		return r;
	p->filter = seccomp_init(p->default_action);
	if (!p->filter)
		return err_set(p->e, ERR_INTERNAL, -ENOMEM, "libseccomp cannot create a filter");
	r = seccomp_attr_set(p->filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = seccomp_attr_set(p->filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r < 0)
		return err_sys(p->e, ERR_INTERNAL, r, "libseccomp");
	r = get(p, root, "syscalls", JSON_ARRAY, &list);
	if (r < 0)
		return r;
	json_array_foreach(list, i, v)
	{
		snprintf(p->where, sizeof(p->where), "syscalls[%zu]", i);
		r = add_entry(p, v);
		if (r < 0)
			return r;
	}
	p->where[0] = '\0';
	return hide_newer(p);
}

/* libseccomp of Debian 12 can only write the program to a descriptor. */
static int export(struct profile *p, struct buf *ret)
{
	AUTO_CLOSE int fd = -1;
	off_t size;
	void *room;
	int r;

	fd = memfd_create("profile", MFD_CLOEXEC);
	if (fd < 0)
		return err_sys(p->e, ERR_INTERNAL, -errno, "memfd_create");
	r = seccomp_export_bpf(p->filter, fd);
	if (r < 0)
		return err_sys(p->e, ERR_INVALID, r, "libseccomp cannot compile it");
	size = lseek(fd, 0, SEEK_END);
	if (size <= 0 || size % (off_t)sizeof(struct sock_filter))
		return err_set(p->e, ERR_INTERNAL, -EIO, "libseccomp wrote %lld bytes", (long long)size);
	if ((size_t)size > PROFILE_PROGRAM_MAX)
		return err_set(p->e, ERR_TOO_LARGE, -E2BIG, "compiles to %lld instructions; the kernel accepts %d",
			       (long long)size / 8, PROFILE_INSNS_MAX);
	room = buf_room(ret, (size_t)size);
	if (!room)
		return err_set(p->e, ERR_TOO_LARGE, -E2BIG, "out of memory for the program");
	if (pread(fd, room, (size_t)size, 0) != size)
		return err_set(p->e, ERR_INTERNAL, -EIO, "cannot read the program back");
	buf_added(ret, (size_t)size);
	return 0;
}

/* jansson's parser recurses; this bounds the depth first. */
static int check_depth(const char *json, size_t len, struct err *e)
{
	bool in_string = false;
	unsigned depth = 0;

	for (size_t i = 0; i < len; i++) {
		if (in_string) {
			if (json[i] == '\\')
				i++;
			else if (json[i] == '"')
				in_string = false;
			continue;
		}
		if (json[i] == '"')
			in_string = true;
		else if ((json[i] == '{' || json[i] == '[') && ++depth > PROFILE_DEPTH_MAX)
			return err_set(e, ERR_TOO_LARGE, -EFBIG, "nested deeper than %d", PROFILE_DEPTH_MAX);
		else if ((json[i] == '}' || json[i] == ']') && depth)
			depth--;
	}
	return 0;
}

int profile_compile(const char *json, size_t len, struct buf *ret, struct err *e)
{
	struct profile p = { .e = e };
	struct utsname u;
	json_error_t je;
	json_t *root;
	int r;

	if (len > PROFILE_JSON_MAX)
		return err_set(e, ERR_TOO_LARGE, -EFBIG, "larger than %lu bytes", PROFILE_JSON_MAX);
	r = check_depth(json, len, e);
	if (r < 0)
		return r;
	if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &p.kernel[0], &p.kernel[1]) != 2)
		return err_set(e, ERR_INTERNAL, -EIO, "cannot find the kernel's version");
	root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &je);
	if (!root) {
		struct shown s = show(je.text);

		return err_set(e, ERR_INVALID, -EINVAL, "line %d: %s", je.line, s.s);
	}
	r = read_all(&p, root);
	if (r == 0) {
		p.where[0] = '\0';
		r = export(&p, ret);
	}
	if (p.filter)
		seccomp_release(p.filter);
	json_decref(root);
	return r;
}
