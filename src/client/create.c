#include "client/client.h"
#include "base/base.h"
#include "base/str.h"
#include "client/show.h"

enum { OPT_CPUS = 256, OPT_META, OPT_READ_ONLY, OPT_TMPFS, OPT_MOUNT, OPT_LATER };

enum kind { TEXT, SIZE, NUMBER, TIME };

/* Options that become one field of the request. */
static const struct plain {
	const char *name, *field;
	enum kind kind;
} plain[] = {
	{ "name", "name", TEXT },
	{ "key", "key", TEXT },
	{ "image", "image", TEXT },
	{ "isolation", "isolation", TEXT },
	{ "memory", "memory", SIZE },
	{ "disk", "disk", SIZE },
	{ "output-limit", "output_limit", SIZE },
	{ "io-bps", "io_bps", SIZE },
	{ "inodes", "inodes", NUMBER },
	{ "pids", "pids", NUMBER },
	{ "nofile", "nofile", NUMBER },
	{ "ttl", "timeout", TIME },
	{ "idle", "idle", TIME },
	{ "timeout", "exec_timeout", TIME },
	{ "storage", "storage", TEXT },
	{ "workdir", "workdir", TEXT },
	{ "user", "user", TEXT },
	{ "hostname", "hostname", TEXT },
	{ "network", "network", TEXT },
};
#define PLAIN 512 /* + its index */

static const struct option options[] = {
	{ "name", required_argument, NULL, PLAIN },
	{ "key", required_argument, NULL, PLAIN + 1 },
	{ "image", required_argument, NULL, PLAIN + 2 },
	{ "isolation", required_argument, NULL, PLAIN + 3 },
	{ "memory", required_argument, NULL, PLAIN + 4 },
	{ "disk", required_argument, NULL, PLAIN + 5 },
	{ "output-limit", required_argument, NULL, PLAIN + 6 },
	{ "io-bps", required_argument, NULL, PLAIN + 7 },
	{ "inodes", required_argument, NULL, PLAIN + 8 },
	{ "pids", required_argument, NULL, PLAIN + 9 },
	{ "nofile", required_argument, NULL, PLAIN + 10 },
	{ "ttl", required_argument, NULL, PLAIN + 11 },
	{ "idle", required_argument, NULL, PLAIN + 12 },
	{ "timeout", required_argument, NULL, PLAIN + 13 },
	{ "storage", required_argument, NULL, PLAIN + 14 },
	{ "workdir", required_argument, NULL, PLAIN + 15 },
	{ "user", required_argument, NULL, PLAIN + 16 },
	{ "hostname", required_argument, NULL, PLAIN + 17 },
	{ "network", required_argument, NULL, PLAIN + 18 },
	{ "cpus", required_argument, NULL, OPT_CPUS },
	{ "meta", required_argument, NULL, OPT_META },
	{ "env", required_argument, NULL, 'e' },
	{ "read-only", no_argument, NULL, OPT_READ_ONLY },
	{ "tmpfs", required_argument, NULL, OPT_TMPFS },
	{ "mount", required_argument, NULL, OPT_MOUNT },
	{ "template", required_argument, NULL, OPT_LATER },
	{ "allow", required_argument, NULL, OPT_LATER },
	{ "secret", required_argument, NULL, OPT_LATER },
	{ "seccomp", required_argument, NULL, OPT_LATER },
	{ "cpu-time", required_argument, NULL, OPT_LATER },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche create [options]\n"
	"\n"
	"Makes a sandbox that stays until it is removed, and prints its id.\n"
	"\n"
	"which\n"
	"  --name NAME         a name for it, as good as its id              the id\n"
	"  --key KEY           get or create: the same key always reaches the same sandbox\n"
	"  --meta NAME=VALUE   to find it again with `ls --meta` (repeatable)\n"
	"how long\n"
	"  --ttl TIME          removed after this time                       never\n"
	"  --idle TIME         removed after this time without a call        never\n"
	"limits (0 lifts one)                                                default\n"
	"  --cpus N            cores, as 0.5 or 2                            1\n"
	"  --memory SIZE       memory, no swap; files in memory count        512M\n"
	"  --disk SIZE         what may be written                           1G\n"
	"  --inodes N          files that may be made                        one per 8K of disk\n"
	"  --pids N            processes and threads                         256\n"
	"  --nofile N          open files per process                        1024\n"
	"  --timeout TIME      wall time of each exec                        5m\n"
	"  --output-limit SIZE stdout and stderr of an exec's answer, each   1M\n"
	"  --io-bps SIZE       block I/O per second, each way                none\n"
	"files\n"
	"  --image host|NAME   the root filesystem                           host\n"
	"  --read-only         root read-only; work folder and /tmp stay writable\n"
	"  --storage memory|disk  where changes are kept                     memory\n"
	"  --tmpfs PATH[:size=SIZE]   more writable memory (repeatable)\n"
	"  --mount SRC:DST[:ro]       a folder of the daemon's host that its configuration allows (repeatable)\n"
	"  --workdir DIR       where execs start; made if missing            the home\n"
	"other\n"
	"  --user NAME|UID[:GID]  user, root (of the sandbox), or ids        user\n"
	"  -e, --env NAME[=VALUE] a variable of every exec; without a value, ours (repeatable)\n"
	"  --network none      no network at all                             none\n"
	"  --hostname NAME     the host name inside                          sandbox\n"
	"  --isolation TIER    container                                     container\n";

static int set_new(json_t *o, const char *key, json_t *value, struct err *e)
{
	if (!value || json_object_set_new(o, key, value) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "not UTF-8, or no memory");
	return 0;
}

static int set_plain(json_t *body, const struct plain *p, const char *arg, struct err *e)
{
	uint64_t v = 0;
	int r = 0;

	switch (p->kind) {
	case TEXT:
		return set_new(body, p->field, json_string(arg), e);
	case SIZE:
		r = parse_size(arg, &v, e);
		break;
	case NUMBER:
		r = parse_u64(arg, &v, e);
		break;
	case TIME:
		r = parse_duration(arg, &v, e);
		if (r == 0 && v % 1000)
			return set_new(body, p->field, json_real((double)v / 1000), e);
		v /= 1000;
		break;
	}
	if (r == 0 && v > INT64_MAX)
		r = err_set(e, ERR_INVALID, -ERANGE, "'%.60s': too large", arg);
	return r < 0 ? r : set_new(body, p->field, json_integer((json_int_t)v), e);
}

static json_t *list_of(json_t *body, const char *key)
{
	json_t *list = json_object_get(body, key);

	if (!list) {
		list = json_array();
		json_object_set_new(body, key, list);
	}
	return list;
}

static int add_tmpfs(json_t *body, const char *arg, struct err *e)
{
	const char *opt = strchr(arg, ':');
	uint64_t size = 64 * MIB;
	json_t *one;
	int r = 0;

	if (opt && strncmp(opt, ":size=", 6))
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be PATH or PATH:size=SIZE", arg);
	if (opt)
		r = parse_size(opt + 6, &size, e);
	if (r < 0)
		return r;
	one = json_pack("{s:s%, s:I}", "path", arg, opt ? (size_t)(opt - arg) : strlen(arg), "size", (json_int_t)size);
	if (!one || json_array_append_new(list_of(body, "tmpfs"), one) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", arg);
	return 0;
}

static int add_mount(json_t *body, const char *arg, struct err *e)
{
	const char *dst = strchr(arg, ':'), *opt;
	json_t *one;

	if (!dst || dst == arg || dst[1] != '/')
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be SRC:DST or SRC:DST:ro, DST absolute", arg);
	opt = strchr(dst + 1, ':');
	if (opt && strcmp(opt, ":ro") && strcmp(opt, ":rw"))
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': only :ro or :rw may follow", arg);
	one = json_pack("{s:s%, s:s%, s:b}", "source", arg, (size_t)(dst - arg), "target", dst + 1,
			opt ? (size_t)(opt - dst - 1) : strlen(dst + 1), "read_only", opt && !strcmp(opt, ":ro"));
	if (!one || json_array_append_new(list_of(body, "mounts"), one) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", arg);
	return 0;
}

static int apply(json_t *body, int opt, const char *arg, struct err *e)
{
	uint32_t milli;
	int r;

	switch (opt) {
	case OPT_CPUS:
		r = parse_cpus(arg, &milli, e);
		return r < 0 ? r
			     : set_new(body, "cpus",
				       milli % 1000 ? json_real(milli / 1000.0) : json_integer(milli / 1000), e);
	case OPT_META:
		if (!json_object_get(body, "metadata"))
			json_object_set_new(body, "metadata", json_object());
		return show_set_pair(json_object_get(body, "metadata"), arg, e);
	case 'e':
		return args_add_env(body, arg, e);
	case OPT_READ_ONLY:
		return set_new(body, "read_only", json_true(), e);
	case OPT_TMPFS:
		return add_tmpfs(body, arg, e);
	case OPT_MOUNT:
		return add_mount(body, arg, e);
	case OPT_LATER:
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "not in this version");
	default:
		return set_plain(body, &plain[opt - PLAIN], arg, e);
	}
}

static const char *option_name(int opt)
{
	for (const struct option *o = options; o->name; o++)
		if (o->val == opt)
			return o->name;
	return "option";
}

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object(), *answer = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		r = apply(body, opt, optarg, e);
		if (r < 0)
			return opt == OPT_LATER ? r : err_wrap(e, r, "--%s", option_name(opt));
	}
	if (r == 0 && !a->help)
		r = args_count(a, 0, 0, "options", e);
	if (r < 0 || a->help)
		return r;
	r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = conn_json(c, "POST", "/v1/sandboxes", body, &answer, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(answer, SHOW_LINE, e);
	show_line(show_str(answer, "id"));
	return 0;
}

const struct command cmd_create = {
	.name = "create",
	.text = "make a sandbox that stays",
	.help = help,
	.letters = "e:",
	.options = options,
	.run = run,
};
