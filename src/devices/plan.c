/* Puts the edits of devices together. */
#include "devices/plan.h"
#include "base/base.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

void plan_note(struct plan_job *j, const char *fmt, ...)
{
	va_list ap;

	if (!j->o->notes)
		return;
	va_start(ap, fmt);
	buf_addv(j->o->notes, fmt, ap);
	va_end(ap);
	buf_addc(j->o->notes, '\n');
}

/* Absolute, and no way around: the same path for everyone. */
static int check_path(struct plan_job *j, const char *what, const char *path)
{
	const char *why = NULL;

	if (path[0] != '/' || !path[1])
		why = "must be an absolute path";
	else if (strlen(path) >= DEVICE_PATH)
		why = "the path is too long";
	for (const char *p = path; !why && *p;) {
		const size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.')
			why = "'..' is not allowed";
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f)
				why = "contains a control character";
		p += n + (p[n] == '/');
	}
	return why ? err_set(j->e, WHY_DEVICE_UNUSABLE, -EINVAL, "%s '%.100s': %s", what, path, why) : 0;
}

/* Of image `host`, what is below /usr is there already, and nothing can be added. */
static bool is_system(const char *path)
{
	static const char *const places[] = { "/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin" };

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		const size_t n = strlen(places[i]);

		if (!strncmp(path, places[i], n) && (path[n] == '/' || !path[n]))
			return true;
	}
	return false;
}

/* Other filesystems below /usr are not shown inside. */
static bool is_shown(const char *path)
{
	struct stat usr, st;

	return stat("/usr", &usr) == 0 && stat(path, &st) == 0 && st.st_dev == usr.st_dev;
}

/* Where it can be mounted. Empty: nowhere, or it is there. */
static void place_for_host(struct plan_job *j, const char *from, const char *to, char *ret, size_t size)
{
	const char *slash = strrchr(to, '/'), *base = slash + 1;
	const bool program = (size_t)(slash - to) >= 3 && !strncmp(slash - 3, "bin", 3);

	snprintf(ret, size, "%s", to);
	if (!j->o->host || !is_system(to))
		return;
	if (!is_shown(to) && program)
		snprintf(ret, size, PLAN_PROGRAMS "/%.100s", base);
	else if (!is_shown(to) || !strcmp(from, to))
		ret[0] = '\0';
}

int plan_add_mount(struct plan_job *j, const char *from, const char *to)
{
	static const char *const ours[] = { "/proc", "/dev", "/sys", "/run/cloche", "/run/secrets" };
	struct device_plan *p = j->plan;
	char place[DEVICE_PATH];
	unsigned at = 0;
	int r = check_path(j, "mount source", from);

	if (r == 0)
		r = check_path(j, "mount target", to);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (!strncmp(to, ours[i], strlen(ours[i])) && (to[strlen(ours[i])] == '/' || !to[strlen(ours[i])]))
			return err_set(j->e, WHY_DEVICE_UNUSABLE, -EINVAL,
				       "mount target '%.100s': %s is reserved for the sandbox itself", to, ours[i]);
	place_for_host(j, from, to, place, sizeof(place));
	if (!place[0])
		return 0;
	while (at < p->nmounts && strcmp(p->mount[at].to, place))
		at++;
	if (at == DEVICE_MOUNTS)
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -E2BIG, "more than %d files and folders", DEVICE_MOUNTS);
	snprintf(p->mount[at].from, sizeof(p->mount[at].from), "%s", from);
	snprintf(p->mount[at].to, sizeof(p->mount[at].to), "%s", place);
	p->nmounts += at == p->nmounts;
	return 0;
}

static int check_options(struct plan_job *j, const struct tree *m, const char *to)
{
	static const char *const known[] = { "ro",    "rro",	 "nosuid",   "nodev", "noexec", "exec",	   "bind",
					     "rbind", "private", "rprivate", "slave", "rslave", "noatime", "relatime" };
	const struct tree *list = cdi_field(m, "options"), *type = cdi_field(m, "type");

	if (type && strcmp(type->text, "bind") && strcmp(type->text, "none") && type->text[0])
		return err_set(
			j->e, WHY_DEVICE_UNUSABLE, -EOPNOTSUPP,
			"mount '%.100s': a filesystem of type '%.20s'; only files and folders of this machine can be given",
			to, type->text);
	for (const struct tree *c = list ? list->child : NULL; c; c = c->next) {
		size_t i = 0;

		while (i < ARRAY_LEN(known) && strcmp(known[i], c->text))
			i++;
		if (i == ARRAY_LEN(known))
			return err_set(j->e, WHY_DEVICE_UNUSABLE, -EOPNOTSUPP,
				       "mount '%.100s': option '%.20s'; devices' files are given read-only", to,
				       c->text);
	}
	return 0;
}

static int add_mount(struct plan_job *j, const struct tree *m)
{
	const char *from = cdi_field(m, "hostPath")->text, *to = cdi_field(m, "containerPath")->text;
	char real[PATH_MAX];
	struct stat st;
	int r = check_path(j, "mount source", from);

	if (r == 0)
		r = check_options(j, m, to);
	if (r < 0)
		return r;
	/* What is opened later follows no links. */
	if (!realpath(from, real) || stat(real, &st) < 0) {
		err_sys(j->e, WHY_DEVICE_MISSING, -errno, "device's file '%.140s'", from);
		err_remedy(j->e, "make its specification anew, as with `nvidia-ctk cdi generate`");
		return -ENOENT;
	}
	if (S_ISSOCK(st.st_mode)) {
		plan_note(j, "%s: a socket of this machine", from);
		return 0;
	}
	return plan_add_mount(j, strcmp(real, from) && j->o->host && !strcmp(from, to) ? from : real, to);
}

/* Of what image `host` shows already, nothing was mounted at its own place, but its name is still needed. */
static int add_sonames(struct plan_job *j, const char *from, const char *to)
{
	const char *slash = strrchr(to, '/');
	char real[PATH_MAX], place[DEVICE_PATH], name[100];
	bool ours = false;
	AUTO_CLOSE int fd = -1;
	struct stat st;

	for (unsigned i = 0; i < j->folders; i++)
		ours = ours || (strlen(j->folder[i]) == (size_t)(slash - to) &&
				!strncmp(to, j->folder[i], (size_t)(slash - to)));
	if (!ours || !realpath(from, real))
		return 0;
	fd = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || elf_soname(fd, name, sizeof(name)) < 0)
		return 0;
	snprintf(place, sizeof(place), PLAN_LIBRARIES "/%s", name);
	j->libraries = true;
	return plan_add_mount(j, real, place);
}

static bool is_of_sandbox(const char *name)
{
	static const char *const ours[] = { "null",   "zero",	"full", "random", "urandom", "tty", "fd",     "stdin",
					    "stdout", "stderr", "ptmx", "pts",	  "mqueue",  "shm", "console" };
	const size_t n = strcspn(name, "/");

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (strlen(ours[i]) == n && !strncmp(name, ours[i], n))
			return true;
	return false;
}

static int number(const struct tree *node, const char *key, uint32_t *ret)
{
	const struct tree *t = cdi_field(node, key);
	int64_t v;

	if (!t || tree_int(t, 0, UINT32_MAX, &v, NULL) < 0)
		return t ? -EINVAL : 0;
	*ret = (uint32_t)v;
	return 0;
}

static int put_node(struct plan_job *j, const struct device_node *n)
{
	struct device_plan *p = j->plan;
	unsigned at = 0;

	while (at < p->nnodes && strcmp(p->node[at].to, n->to))
		at++;
	if (at == DEVICE_NODES)
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -E2BIG, "more than %d device nodes", DEVICE_NODES);
	p->node[at] = *n;
	p->nnodes += at == p->nnodes;
	return 0;
}

static uint32_t rights(const struct tree *may)
{
	if (!may || !may->text[0])
		return DEVICE_READ | DEVICE_WRITE;
	if (!strcmp(may->text, "none"))
		return 0;
	return (strchr(may->text, 'r') ? DEVICE_READ : 0) | (strchr(may->text, 'w') ? DEVICE_WRITE : 0);
}

/* @node: of a specification, or NULL for a path that was asked for. */
static int add_node(struct plan_job *j, const struct tree *node, const char *path)
{
	const struct tree *from = cdi_field(node, "hostPath"), *type = cdi_field(node, "type");
	struct device_node n = { .mode = DEVICE_NO_ID,
				 .uid = DEVICE_NO_ID,
				 .gid = DEVICE_NO_ID,
				 .may = rights(cdi_field(node, "permissions")) };
	const char *source = from && from->text[0] ? from->text : path;
	uint32_t major, minor;
	char real[PATH_MAX];
	struct stat st;
	int r = check_path(j, "device node", path);

	if (r == 0)
		r = check_path(j, "device node", source);
	if (r < 0)
		return r;
	if (strncmp(path, "/dev/", 5) || strstr(path, "//") || strstr(path, "/./") || is_of_sandbox(path + 5))
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -EINVAL,
			       "device node '%.100s': must be below /dev, and none that every sandbox has", path);
	if (!realpath(source, real) || stat(real, &st) < 0) {
		err_sys(j->e, WHY_DEVICE_MISSING, -errno, "device node '%.140s'", source);
		err_remedy(j->e, "load its driver on this machine; `cloche doctor` lists what there is");
		return -ENOENT;
	}
	if (!S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode))
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -ENOTBLK, "device node '%.140s': not a device", source);
	if (strlen(real) >= sizeof(n.from))
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -ENAMETOOLONG, "device node '%.100s': the path is too long",
			       real);
	n.block = S_ISBLK(st.st_mode);
	n.major = major = major(st.st_rdev);
	n.minor = minor = minor(st.st_rdev);
	if (number(node, "major", &major) < 0 || number(node, "minor", &minor) < 0 || major != n.major ||
	    minor != n.minor ||
	    (type && type->text[0] && (type->text[0] == 'p' || (type->text[0] == 'b') != n.block))) {
		err_set(j->e, WHY_DEVICE_UNUSABLE, -ENODEV,
			"device node '%.140s': it is %s %u:%u, not what its specification says", source,
			n.block ? "block" : "character", n.major, n.minor);
		err_remedy(j->e, "make its specification anew, as with `nvidia-ctk cdi generate`");
		return -ENODEV;
	}
	(void)number(node, "fileMode", &n.mode);
	(void)number(node, "uid", &n.uid);
	(void)number(node, "gid", &n.gid);
	memcpy(n.from, real, strlen(real) + 1);
	snprintf(n.to, sizeof(n.to), "%s", path + 5);
	return put_node(j, &n);
}

/* A name that comes again replaces what it was; folders of libraries are joined. */
static int add_env(struct plan_job *j, const char *text)
{
	struct device_plan *p = j->plan;
	const size_t name = strcspn(text, "=") + 1, n = strlen(text) + 1;

	for (uint32_t at = 0; at < p->env_len;) {
		const size_t len = strlen(p->env + at) + 1;

		if (strncmp(p->env + at, text, name)) {
			at += (uint32_t)len;
			continue;
		}
		memmove(p->env + at, p->env + at + len, p->env_len - at - len);
		p->env_len -= (uint32_t)len;
	}
	if (n > DEVICE_ENV - p->env_len)
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -E2BIG, "more than %d bytes of environment", DEVICE_ENV);
	memcpy(p->env + p->env_len, text, n);
	p->env_len += (uint32_t)n;
	return 0;
}

static int refuse_others(struct plan_job *j, const struct tree *edits)
{
	const struct tree *net = cdi_field(edits, "netDevices"), *groups = cdi_field(edits, "additionalGids");

	if (cdi_field(edits, "intelRdt"))
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -EOPNOTSUPP,
			       "intelRdt: shares of caches and memory bandwidth cannot be given");
	if (net && net->child)
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -EOPNOTSUPP,
			       "netDevices: network interfaces of this machine cannot be given");
	/* A node's owner is the sandbox's user, so no group is needed for it. */
	if ((groups && groups->child) || cdi_field(edits, "additionalGIDs"))
		plan_note(j, "additional groups: the sandbox's user owns the nodes");
	return 0;
}

static int add_edits(struct plan_job *j, const struct tree *edits)
{
	const struct tree *env = cdi_field(edits, "env"), *nodes = cdi_field(edits, "deviceNodes"),
			  *mounts = cdi_field(edits, "mounts"), *hooks = cdi_field(edits, "hooks");
	int r = refuse_others(j, edits);

	for (const struct tree *c = env ? env->child : NULL; r == 0 && c; c = c->next)
		r = add_env(j, c->text);
	for (const struct tree *c = nodes ? nodes->child : NULL; r == 0 && c; c = c->next)
		r = add_node(j, c, cdi_field(c, "path")->text);
	for (const struct tree *c = hooks ? hooks->child : NULL; r == 0 && c; c = c->next)
		r = plan_hook(j, c);
	for (const struct tree *c = mounts ? mounts->child : NULL; r == 0 && c; c = c->next) {
		r = add_mount(j, c);
		if (r == 0)
			r = add_sonames(j, cdi_field(c, "hostPath")->text, cdi_field(c, "containerPath")->text);
	}
	return r == 0 ? plan_links(j, edits) : r;
}

/* --- names --- */

struct chosen {
	struct catalog_found found[64];
	unsigned n;
};

static int choose(struct plan_job *j, struct chosen *x, const struct catalog_found *f)
{
	for (unsigned i = 0; i < x->n; i++)
		if (x->found[i].device == f->device)
			return 0;
	if (x->n == ARRAY_LEN(x->found))
		return err_set(j->e, WHY_DEVICE_UNUSABLE, -E2BIG, "more than %zu devices", ARRAY_LEN(x->found));
	x->found[x->n++] = *f;
	return 0;
}

struct search {
	struct plan_job *j;
	struct chosen *into;
	const char *kind;
	int minor; /* -1: all of that kind */
	unsigned found;
};

static int choose_one(void *arg, const char *kind, const struct catalog_found *f)
{
	struct search *s = arg;
	const struct tree *nodes = cdi_field(cdi_field(f->device, "containerEdits"), "deviceNodes");
	unsigned gpus = 0, fits = 0;

	if (strcmp(kind, s->kind) || (s->minor >= 0 && s->found))
		return 0;
	for (const struct tree *c = nodes ? nodes->child : NULL; c; c = c->next) {
		const int minor = gpu_node_minor(cdi_field(c, "path")->text);

		gpus += minor >= 0;
		fits += minor >= 0 && minor == s->minor;
	}
	if (s->minor >= 0 && (gpus != 1 || fits != 1))
		return 0;
	s->found++;
	return choose(s->j, s->into, f);
}

/* `all`, and NVIDIA's ids, where the specification has neither. */
static int choose_otherwise(struct plan_job *j, struct chosen *x, const char *name, int was)
{
	static const char *const gpus[] = { "nvidia.com/gpu", "amd.com/gpu" };
	struct err why = { 0 };
	const char *id = strchr(name, '=');
	int r;

	for (size_t i = 0; id && was == -ENOENT && i < ARRAY_LEN(gpus); i++) {
		struct search s = { j, x, gpus[i], -1, 0 };

		if (strncmp(name, gpus[i], (size_t)(id - name)) || gpus[i][id - name])
			continue;
		if (strcmp(id + 1, "all") != 0 &&
		    (strncmp(id + 1, "GPU-", 4) || (s.minor = gpu_minor(j->o->root, id + 1)) < 0))
			continue;
		why = *j->e;
		r = catalog_each(j->c, choose_one, &s);
		if (r < 0 || s.found)
			return r;
		*j->e = why;
	}
	return was;
}

static int choose_name(struct plan_job *j, struct chosen *x, const char *name);

static bool has_gpus(const struct catalog *c, const char *kind)
{
	bool has = false;

	for (unsigned i = 0; i < c->n; i++)
		has = has || !strcmp(catalog_kind(&c->file[i]), kind);
	return has;
}

/* "gpu=0": of the one vendor that this machine has GPUs of; "gpu=all": of all. */
static int choose_gpu(struct plan_job *j, struct chosen *x, const char *which)
{
	const bool nvidia = has_gpus(j->c, "nvidia.com/gpu"), amd = has_gpus(j->c, "amd.com/gpu"),
		   all = !strcmp(which, "all");
	char name[DEVICE_NAME + 16];
	int r = 0;

	if (!nvidia && !amd) {
		err_set(j->e, WHY_DEVICE_MISSING, -ENOENT,
			"gpu '%.60s': this machine has no GPU, or its driver is not loaded", which);
		err_remedy(j->e, "look at `cloche doctor`; it needs /dev/nvidiactl, /dev/kfd or a file in /etc/cdi");
		return -ENOENT;
	}
	if (nvidia && amd && !all) {
		err_set(j->e, WHY_DEVICE_UNUSABLE, -EINVAL, "gpu '%.60s': this machine has GPUs of two vendors", which);
		err_remedy(j->e, "give it as a device: nvidia.com/gpu=%.40s or amd.com/gpu=%.40s", which, which);
		return -EINVAL;
	}
	for (unsigned vendor = 0; r == 0 && vendor < 2; vendor++) {
		if (!(vendor ? amd : nvidia))
			continue;
		snprintf(name, sizeof(name), "%s.com/gpu=%.90s", vendor ? "amd" : "nvidia", which);
		r = choose_name(j, x, name);
	}
	return r;
}

static int choose_name(struct plan_job *j, struct chosen *x, const char *name)
{
	struct catalog_found f;
	int r;

	if (!strncmp(name, "gpu=", 4))
		return choose_gpu(j, x, name + 4);
	r = catalog_find(j->c, name, &f, j->e);
	return r == 0 ? choose(j, x, &f) : choose_otherwise(j, x, name, r);
}

static int apply(struct plan_job *j, const struct chosen *x)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < x->n; i++) {
		const struct catalog_found *f = &x->found[i];
		const struct tree *common = cdi_field(f->file->doc.root, "containerEdits");
		bool first = true;

		for (unsigned k = 0; k < i; k++)
			first = first && x->found[k].file != f->file;
		if (first && common)
			r = add_edits(j, common);
		if (r == 0)
			r = add_edits(j, cdi_field(f->device, "containerEdits"));
		if (r < 0)
			err_wrap(j->e, r, "device '%.80s=%.60s'", catalog_kind(f->file),
				 cdi_field(f->device, "name")->text);
	}
	return r;
}

int plan_make(const struct catalog *c, const char *const *name, unsigned n, const struct plan_opts *o,
	      struct device_plan *ret, struct err *e)
{
	struct plan_job j = { .c = c, .o = o, .plan = ret, .e = e };
	struct chosen x = { .n = 0 };
	int r = 0;

	memset(ret, 0, sizeof(*ret));
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = name[i][0] == '/' ? add_node(&j, NULL, name[i]) : choose_name(&j, &x, name[i]);
	if (r == 0)
		r = apply(&j, &x);
	if (r == 0 && j.libraries)
		r = add_env(&j, "LD_LIBRARY_PATH=" PLAN_LIBRARIES);
	return r;
}
