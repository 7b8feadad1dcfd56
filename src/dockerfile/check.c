/* Checks instructions: flags by a table, then the rules of each instruction. */
#include "dockerfile/check.h"
#include <ctype.h>
#include "base/base.h"
#include "base/buf.h"
#include "base/near.h"
#include "dockerfile/heredoc.h"
#include "dockerfile/mount.h"

enum flag_type { FLAG_BOOL, FLAG_TEXT, FLAG_LIST, FLAG_NOT };

/* FLAG_NOT: valid in other builders, and not supported here. */
static const struct {
	enum instruction_kind kind;
	const char *name;
	enum flag_type type;
	const char *why;
} flags[] = {
	{ DOCKER_ADD, "checksum", FLAG_TEXT, NULL },
	{ DOCKER_ADD, "chmod", FLAG_TEXT, NULL },
	{ DOCKER_ADD, "chown", FLAG_TEXT, NULL },
	{ DOCKER_ADD, "exclude", FLAG_LIST, NULL },
	{ DOCKER_ADD, "keep-git-dir", FLAG_NOT, "ADD does not read git repositories; clone it before the build" },
	{ DOCKER_ADD, "link", FLAG_BOOL, NULL },
	{ DOCKER_ADD, "unpack", FLAG_BOOL, NULL },
	{ DOCKER_COPY, "chmod", FLAG_TEXT, NULL },
	{ DOCKER_COPY, "chown", FLAG_TEXT, NULL },
	{ DOCKER_COPY, "exclude", FLAG_LIST, NULL },
	{ DOCKER_COPY, "from", FLAG_TEXT, NULL },
	{ DOCKER_COPY, "link", FLAG_BOOL, NULL },
	{ DOCKER_COPY, "parents", FLAG_BOOL, NULL },
	{ DOCKER_FROM, "platform", FLAG_TEXT, NULL },
	{ DOCKER_HEALTHCHECK, "interval", FLAG_TEXT, NULL },
	{ DOCKER_HEALTHCHECK, "retries", FLAG_TEXT, NULL },
	{ DOCKER_HEALTHCHECK, "start-interval", FLAG_TEXT, NULL },
	{ DOCKER_HEALTHCHECK, "start-period", FLAG_TEXT, NULL },
	{ DOCKER_HEALTHCHECK, "timeout", FLAG_TEXT, NULL },
	{ DOCKER_RUN, "device", FLAG_NOT, "a build step gets no devices" },
	{ DOCKER_RUN, "mount", FLAG_LIST, NULL },
	{ DOCKER_RUN, "network", FLAG_TEXT, NULL },
	{ DOCKER_RUN, "security", FLAG_NOT, "a build step never runs with fewer protections" },
};

static size_t name_of(const char *flag)
{
	return strcspn(flag + 2, "=");
}

const char *instruction_flag(const struct instruction *in, const char *name, size_t *at)
{
	size_t mine = 0, n = strlen(name);

	for (size_t *i = at ? at : &mine; *i < in->flags.n;) {
		const char *f = in->flags.at[(*i)++];

		if (name_of(f) == n && memcmp(f + 2, name, n) == 0)
			return f[2 + n] ? f + 3 + n : "";
	}
	return NULL;
}

static int flag_unknown(const struct instruction *in, const char *flag, struct err *e)
{
	const char *known[ARRAY_LEN(flags)], *near;
	char name[64];
	size_t n = 0;

	snprintf(name, sizeof(name), "%.*s", (int)name_of(flag), flag + 2);
	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		if (flags[i].kind == in->kind)
			known[n++] = flags[i].name;
	near = near_word(name, known, n);
	err_set(e, ERR_INVALID, -EINVAL, "%s has no flag '--%s'", instruction_name(in->kind), name);
	if (near)
		err_remedy(e, "did you mean --%s?", near);
	return -EINVAL;
}

static int flag_check(const struct instruction *in, size_t at, struct err *e)
{
	const char *flag = in->flags.at[at], *value = strchr(flag, '=');
	const char *what = instruction_name(in->kind);
	size_t n = name_of(flag), i;

	for (i = 0; i < ARRAY_LEN(flags); i++)
		if (flags[i].kind == in->kind && strlen(flags[i].name) == n && memcmp(flags[i].name, flag + 2, n) == 0)
			break;
	if (i == ARRAY_LEN(flags))
		return flag_unknown(in, flag, e);
	if (flags[i].type == FLAG_NOT)
		return err_set(e, ERR_UNSUPPORTED, -ENOTSUP, "%s --%s is not supported: %s", what, flags[i].name,
			       flags[i].why);
	if (flags[i].type != FLAG_LIST)
		for (size_t j = 0; j < at; j++)
			if (name_of(in->flags.at[j]) == n && memcmp(in->flags.at[j], flag, n + 2) == 0)
				return err_set(e, ERR_INVALID, -EINVAL, "%s: --%s is given twice", what, flags[i].name);
	if (flags[i].type != FLAG_BOOL && !value)
		return err_set(e, ERR_INVALID, -EINVAL, "%s: --%s needs a value: --%s=VALUE", what, flags[i].name,
			       flags[i].name);
	if (flags[i].type == FLAG_BOOL && value && strcasecmp(value, "=true") && strcasecmp(value, "=false"))
		return err_set(e, ERR_INVALID, -EINVAL, "%s: --%s must be true or false, not '%.40s'", what,
			       flags[i].name, value + 1);
	return 0;
}

int docker_duration(const char *text, int64_t *ret_ns, struct err *e)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { "m", 60e9 }, { "h", 3600e9 } };
	const char *p = text;
	double total = 0;

	if (strcmp(text, "0") == 0) {
		*ret_ns = 0;
		return 0;
	}
	while (*p) {
		char *end;
		double v;
		size_t n, i;

		if (!isdigit((unsigned char)*p) && *p != '.')
			goto bad;
		n = strspn(p, "0123456789.");
		v = strtod(p, &end);
		if (end != p + n)
			goto bad;
		p = end;
		n = strspn(p, "abcdefghijklmnopqrstuvwxyz");
		for (i = 0; i < ARRAY_LEN(units); i++)
			if (strlen(units[i].name) == n && memcmp(units[i].name, p, n) == 0)
				break;
		if (i == ARRAY_LEN(units))
			goto bad;
		total += v * units[i].ns;
		p += n;
	}
	if (p == text || total > 9e18)
		goto bad;
	*ret_ns = (int64_t)total;
	return 0;
bad:
	return err_set(e, ERR_INVALID, -EINVAL, "invalid duration '%.40s' (like 30s, 1m30s, 500ms)", text);
}

static int health_check(const struct instruction *in, struct err *e)
{
	static const char *const times[] = { "interval", "timeout", "start-period", "start-interval" };
	const char *retries = instruction_flag(in, "retries", NULL);
	int64_t ns;

	if (!in->args.n)
		return err_set(e, ERR_INVALID, -EINVAL, "HEALTHCHECK needs CMD or NONE");
	if (strcasecmp(in->args.at[0], "NONE") == 0)
		return in->args.n == 1 && !in->flags.n ?
			       0 :
			       err_set(e, ERR_INVALID, -EINVAL, "HEALTHCHECK NONE takes no arguments");
	if (strcasecmp(in->args.at[0], "CMD") != 0)
		return err_set(e, ERR_INVALID, -EINVAL, "HEALTHCHECK needs CMD or NONE, not '%.40s'", in->args.at[0]);
	if (in->args.n < 2)
		return err_set(e, ERR_INVALID, -EINVAL, "HEALTHCHECK CMD needs a command");
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		const char *v = instruction_flag(in, times[i], NULL);

		if (v && docker_duration(v, &ns, e) < 0)
			return err_wrap(e, -EINVAL, "HEALTHCHECK --%s", times[i]);
		if (v && ns > 0 && ns < 1000000)
			return err_set(e, ERR_INVALID, -EINVAL, "HEALTHCHECK --%s must be at least 1ms", times[i]);
	}
	if (retries && (strspn(retries, "0123456789") != strlen(retries) || !*retries || strlen(retries) > 9))
		return err_set(e, ERR_INVALID, -EINVAL, "HEALTHCHECK --retries must be a number, not '%.40s'", retries);
	return 0;
}

char *instruction_trigger(const struct instruction *in)
{
	AUTO(buf_done) struct buf b = BUF_INIT(2 * DOCKERFILE_MAX);
	int r = buf_adds(&b, in->rest);

	for (size_t i = 0; r == 0 && i < in->heredocs; i++)
		r = buf_addf(&b, "\n%s%s", in->heredoc[i].content, in->heredoc[i].name);
	return r < 0 ? NULL : buf_take(&b);
}

static int trigger_check(const struct instruction *in, char escape, struct err *e)
{
	AUTO(dockerfile_free) struct dockerfile *d = NULL;
	AUTO_FREE char *text = instruction_trigger(in);
	int r;

	if (!text)
		return err_set(e, ERR_INTERNAL, -ENOMEM, "not enough memory");
	if (!*text)
		return err_set(e, ERR_INVALID, -EINVAL, "ONBUILD needs an instruction");
	r = dockerfile_parse_trigger(text, escape, in->line, &d, e);
	if (r < 0)
		return r;
	if (d->at[0].kind == DOCKER_ONBUILD || d->at[0].kind == DOCKER_FROM || d->at[0].kind == DOCKER_MAINTAINER)
		return err_set(e, ERR_INVALID, -EINVAL, "ONBUILD %s is not allowed", instruction_name(d->at[0].kind));
	return instruction_check(&d->at[0], escape, e);
}

static int copy_check(const struct instruction *in, struct err *e)
{
	const char *what = instruction_name(in->kind), *from = instruction_flag(in, "from", NULL);
	struct heredoc h;
	bool is;
	int r;

	if (in->args.n < 2)
		return err_set(e, ERR_INVALID, -EINVAL, "%s needs at least one source and a destination", what);
	if (!in->json) {
		r = heredoc_word(in->args.at[in->args.n - 1], &h, e);
		if (r < 0)
			return r;
		is = h.name != NULL;
		free(h.name);
		if (is)
			return err_set(e, ERR_INVALID, -EINVAL, "%s: a here-document cannot be the destination", what);
	}
	if (from && (!*from || strchr(from, '$')))
		return err_set(e, ERR_INVALID, -EINVAL, "COPY --from must be a stage or an image, without variables");
	return 0;
}

static int run_check(const struct instruction *in, struct err *e)
{
	const char *network = instruction_flag(in, "network", NULL), *text;
	size_t at = 0;
	int r;

	if (!in->args.n)
		return err_set(e, ERR_INVALID, -EINVAL, "RUN needs a command");
	if (network && strcmp(network, "default") && strcmp(network, "none"))
		return err_set(e, ERR_UNSUPPORTED, -ENOTSUP,
			       "RUN --network=%.40s is not supported: it is default (what the build got) or none",
			       network);
	while ((text = instruction_flag(in, "mount", &at))) {
		struct run_mount m;

		r = run_mount_parse(text, NULL, &m, e);
		if (r < 0)
			return r;
		run_mount_done(&m);
	}
	return 0;
}

static int from_check(const struct instruction *in, struct err *e)
{
	const char *name;

	if (in->args.n != 1 && (in->args.n != 3 || strcasecmp(in->args.at[1], "AS") != 0))
		return err_set(e, ERR_INVALID, -EINVAL, "FROM needs an image, and optionally AS and a name");
	if (in->args.n == 1)
		return 0;
	name = in->args.at[2];
	for (const char *p = name; *p; p++)
		if (!(isalpha((unsigned char)*p) || (p > name && (isdigit((unsigned char)*p) || strchr("-_.", *p)))))
			return err_set(e, ERR_INVALID, -EINVAL,
				       "invalid name of a stage '%.60s': letters, then letters, digits and - _ .",
				       name);
	return 0;
}

static int at_least_one(const struct instruction *in, struct err *e)
{
	if (!in->args.n)
		return err_set(e, ERR_INVALID, -EINVAL, "%s needs an argument", instruction_name(in->kind));
	return 0;
}

int instruction_check(const struct instruction *in, char escape, struct err *e)
{
	for (size_t i = 0; i < in->flags.n; i++) {
		/*
		 * A word that looks like a flag of a command in the shell form is a flag of the instruction, as in
		 * other builders.
		 */
		int r = flag_check(in, i, e);

		if (r < 0)
			return r;
	}
	switch (in->kind) {
	case DOCKER_ADD:
	case DOCKER_COPY:
		return copy_check(in, e);
	case DOCKER_FROM:
		return from_check(in, e);
	case DOCKER_HEALTHCHECK:
		return health_check(in, e);
	case DOCKER_ONBUILD:
		return trigger_check(in, escape, e);
	case DOCKER_RUN:
		return run_check(in, e);
	case DOCKER_SHELL:
		if (in->json && in->args.n)
			return 0;
		return err_set(e, ERR_INVALID, -EINVAL, "SHELL must be a JSON array: SHELL [\"/bin/sh\", \"-c\"]");
	case DOCKER_ARG:
		for (size_t i = 0; i < in->args.n; i++)
			if (in->args.at[i][0] == '=')
				return err_set(e, ERR_INVALID, -EINVAL, "ARG: '%.80s' has no name", in->args.at[i]);
		return at_least_one(in, e);
	case DOCKER_VOLUME:
		for (size_t i = 0; i < in->args.n; i++)
			if (!in->args.at[i][strspn(in->args.at[i], " \t")])
				return err_set(e, ERR_INVALID, -EINVAL, "VOLUME: a path is empty");
		return at_least_one(in, e);
	case DOCKER_CMD:
	case DOCKER_ENTRYPOINT:
		return 0; /* without arguments they clear the base image's value */
	case DOCKER_ENV:
	case DOCKER_EXPOSE:
	case DOCKER_LABEL:
	case DOCKER_MAINTAINER:
	case DOCKER_STOPSIGNAL:
	case DOCKER_USER:
	case DOCKER_WORKDIR:
		return at_least_one(in, e);
	}
	return 0;
}

int stages_find(const struct stages *s, const char *name, size_t before)
{
	char *end;
	unsigned long number;

	for (size_t i = before; i-- > 0;)
		if (s->at[i].name && strcasecmp(s->at[i].name, name) == 0)
			return (int)i;
	if (!isdigit((unsigned char)*name))
		return -1;
	number = strtoul(name, &end, 10);
	return !*end && number < before ? (int)number : -1;
}

void stages_done(struct stages *s)
{
	free(s->at);
	*s = (struct stages){ 0 };
}

static int stage_add(struct stages *s, struct instruction *in, size_t at, struct err *e)
{
	struct stage *more = realloc(s->at, (s->n + 1) * sizeof(*more));
	char *name = in->args.n == 3 ? in->args.at[2] : NULL;

	if (!more)
		return err_set(e, ERR_INTERNAL, -ENOMEM, "not enough memory");
	s->at = more;
	for (char *p = name; p && *p; p++)
		*p = (char)tolower((unsigned char)*p);
	for (size_t i = 0; name && i < s->n; i++)
		if (s->at[i].name && strcmp(s->at[i].name, name) == 0)
			return err_set(e, ERR_INVALID, -EINVAL, "the stage of line %u is called '%.60s', too",
				       s->at[i].line, name);
	s->at[s->n++] = (struct stage){ .name = name,
					.base = in->args.at[0],
					.platform = instruction_flag(in, "platform", NULL),
					.line = in->line,
					.first = at + 1,
					.end = at + 1 };
	return 0;
}

int stages_check(struct dockerfile *d, struct stages *ret, struct err *e)
{
	struct stages s = { 0 };
	int r = 0;

	for (size_t i = 0; i < d->n; i++) {
		struct instruction *in = &d->at[i];

		r = instruction_check(in, d->escape, e);
		if (r == 0 && in->kind == DOCKER_FROM)
			r = stage_add(&s, in, i, e);
		else if (r == 0 && s.n)
			s.at[s.n - 1].end = i + 1;
		else if (r == 0 && in->kind == DOCKER_ARG)
			s.before++;
		else if (r == 0)
			r = err_set(e, ERR_INVALID, -EINVAL, "%s before the first FROM; only ARG may be there",
				    instruction_name(in->kind));
		if (r < 0) {
			stages_done(&s);
			return strncmp(e ? e->msg : "", "line ", 5) ? err_wrap(e, r, "line %u", in->line) : r;
		}
	}
	if (!s.n) {
		stages_done(&s);
		return err_set(e, ERR_INVALID, -EINVAL, "the Dockerfile has no FROM");
	}
	*ret = s;
	return 0;
}
