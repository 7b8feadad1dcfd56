/* Parses the options of a sandbox into the body of a request. */
#include "client/want.h"
#include "base/base.h"
#include "base/str.h"
#include "client/client.h"
#include "client/show.h"

enum {
	OPT_CPUS = 768,
	OPT_META,
	OPT_READ_ONLY,
	OPT_TMPFS,
	OPT_MOUNT,
	OPT_GPU,
	OPT_GPU_SHARED,
	OPT_DEVICE,
	OPT_LATER,
	OPT_NETWORK,
	OPT_ALLOW,
	OPT_BUDGET,
	OPT_TREE_BUDGET,
	OPT_SECRET,
	OPT_NO_SECRETS,
	OPT_IDLE
};
#define IDLE_PAUSE (OPT_IDLE + 1)
#define IDLE_HIBERNATE (OPT_IDLE + 2)

enum kind { TEXT, SIZE, NUMBER, TIME };

/* Options that become one field of the request: X(id, option, field, kind). */
#define PLAIN_OPTIONS(X)                                                                                               \
	X(IMAGE, "image", "image", TEXT)                                                                               \
	X(ISOLATION, "isolation", "isolation", TEXT)                                                                   \
	X(MEMORY, "memory", "memory", SIZE)                                                                            \
	X(DISK, "disk", "disk", SIZE)                                                                                  \
	X(OUTPUT_LIMIT, "output-limit", "output_limit", SIZE)                                                          \
	X(IO_BPS, "io-bps", "io_bps", SIZE)                                                                            \
	X(INODES, "inodes", "inodes", NUMBER)                                                                          \
	X(PIDS, "pids", "pids", NUMBER)                                                                                \
	X(NOFILE, "nofile", "nofile", NUMBER)                                                                          \
	X(TTL, "ttl", "timeout", TIME)                                                                                 \
	X(TIMEOUT, "timeout", "exec_timeout", TIME)                                                                    \
	X(STORAGE, "storage", "storage", TEXT)                                                                         \
	X(WORKDIR, "workdir", "workdir", TEXT)                                                                         \
	X(USER, "user", "user", TEXT)                                                                                  \
	X(HOSTNAME, "hostname", "hostname", TEXT)

#define PLAIN 512 /* + its place */
#define PLAIN_ID(id, option, field, kind) PLAIN_##id,
#define PLAIN_FIELD(id, option, field, kind) { field, kind },
#define PLAIN_OPTION(id, option, field, kind) { option, required_argument, NULL, PLAIN + PLAIN_##id },

enum { PLAIN_OPTIONS(PLAIN_ID) };

static const struct plain {
	const char *field;
	enum kind kind;
} plain[] = { PLAIN_OPTIONS(PLAIN_FIELD) };

const struct option want_options[] = {
	PLAIN_OPTIONS(PLAIN_OPTION){ "network", required_argument, NULL, OPT_NETWORK },
	{ "allow", required_argument, NULL, OPT_ALLOW },
	{ "budget", required_argument, NULL, OPT_BUDGET },
	{ "tree-budget", required_argument, NULL, OPT_TREE_BUDGET },
	{ "idle", required_argument, NULL, OPT_IDLE },
	{ "idle-pause", required_argument, NULL, IDLE_PAUSE },
	{ "idle-hibernate", required_argument, NULL, IDLE_HIBERNATE },
	{ "cpus", required_argument, NULL, OPT_CPUS },
	{ "meta", required_argument, NULL, OPT_META },
	{ "env", required_argument, NULL, 'e' },
	{ "read-only", no_argument, NULL, OPT_READ_ONLY },
	{ "tmpfs", required_argument, NULL, OPT_TMPFS },
	{ "mount", required_argument, NULL, OPT_MOUNT },
	{ "gpu", required_argument, NULL, OPT_GPU },
	{ "gpu-shared", no_argument, NULL, OPT_GPU_SHARED },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "secret", required_argument, NULL, OPT_SECRET },
	{ "no-secrets", no_argument, NULL, OPT_NO_SECRETS },
	{ "seccomp", required_argument, NULL, OPT_LATER },
	{ "cpu-time", required_argument, NULL, OPT_LATER },
	{ NULL, 0, NULL, 0 },
};

const char want_help[] =
	"lifetime\n"
	"  --ttl TIME          removed after this time                       never\n"
	"  --idle TIME         removed after this time without a call        never\n"
	"  --idle-pause TIME   frozen after this time without a call; the next call continues it       never\n"
	"  --idle-hibernate TIME  hibernated after it; the next call wakes it                          never\n"
	"limits (0 removes one)                                              default\n"
	"  --cpus N            cores, as 0.5 or 2                            1\n"
	"  --memory SIZE       memory, no swap; files in memory count        512M\n"
	"  --disk SIZE         what may be written                           1G\n"
	"  --inodes N          number of files                               one per 8K of disk\n"
	"  --pids N            processes and threads                         256\n"
	"  --nofile N          open files per process                        1024\n"
	"  --timeout TIME      wall time of each exec                        5m\n"
	"  --output-limit SIZE stdout and stderr of an exec's answer, each   1M\n"
	"  --io-bps SIZE       bytes per second to and from its disk, each   none\n"
	"files\n"
	"  --image host|NAME   the root filesystem                           host\n"
	"  --read-only         root read-only; work folder and /tmp stay writable\n"
	"  --storage memory|disk  where changes are kept                     memory\n"
	"  --tmpfs PATH[:size=SIZE]   a writable folder in memory, 64M by default (repeatable)\n"
	"  --mount SRC:DST[:ro]       a folder of the daemon's host that its configuration allows (repeatable)\n"
	"  --workdir DIR       working folder of execs; made when missing    the home\n"
	"devices (docs/gpu.md)\n"
	"  --gpu all|any|N|UUID  GPUs of the daemon's host; any:2: two that are free; several with commas  none\n"
	"  --gpu-shared        share them with other sandboxes that say --gpu-shared, too\n"
	"  --device NAME       a device of CDI, or a node as /dev/fuse, that the configuration allows (repeatable)\n"
	"other\n"
	"  --meta NAME=VALUE   metadata, for `ls --meta` (repeatable)\n"
	"  --user NAME|UID[:GID]  user, root (of the sandbox), or ids        user\n"
	"  -e, --env NAME[=VALUE] a variable of every exec; without a value, the caller's (repeatable)\n"
	"  --hostname NAME     the host name inside                          sandbox\n"
	"  --isolation TIER    container, or vm: a kernel of its own         container\n"
	"secrets (docs/secrets.md)\n"
	"  --secret NAME[:HOW]  a file /run/secrets/NAME. HOW: file=PATH, env[=VAR], header[=HEADER]@HOST[:PORT],\n"
	"                      basic=USER@HOST[:PORT], query=PARAMETER@HOST[:PORT], mask (repeatable)\n"
	"  --no-secrets        do not use the secrets of the template or checkpoint\n"
	"network (docs/network.md)\n"
	"  --network MODE      none; allow: what --allow names; open: the public internet; observe   none\n"
	"  --allow RULE        NAME, *.NAME, ADDRESS[/N], @SET, with :PORTS, then +ech or +terminate (repeatable)\n"
	"  --budget NAME=N     bytes_out, bytes_in, connections, concurrent, bandwidth, dns or requests_per_minute\n"
	"                      (repeatable); --tree-budget: of the sandbox and its forks together\n";

static int set_new(json_t *o, const char *key, json_t *value, struct err *e)
{
	if (!value || json_object_set_new(o, key, value) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "not UTF-8, or out of memory");
	return 0;
}

static int set_plain(json_t *body, const struct plain *p, const char *arg, struct err *e)
{
	uint64_t v = 0;
	int r = 0;

	switch (p->kind) {
	case TEXT:
		return args_set_text(body, p->field, arg, e);
	case SIZE:
		r = parse_size(arg, &v, e);
		break;
	case NUMBER:
		r = parse_u64(arg, &v, e);
		break;
	case TIME:
		return args_set_time(body, p->field, arg, e);
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
	char src[PATH_MAX], real[PATH_MAX];
	json_t *one;

	if (!dst || dst == arg || dst[1] != '/')
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be SRC:DST or SRC:DST:ro, DST absolute", arg);
	opt = strchr(dst + 1, ':');
	if (opt && strcmp(opt, ":ro") && strcmp(opt, ":rw"))
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': only :ro or :rw may follow", arg);
	if ((size_t)snprintf(src, sizeof(src), "%.*s", (int)(dst - arg), arg) >= sizeof(src))
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "source: the path is too long");
	if (src[0] != '/' && !realpath(src, real)) /* as `cloche run` without a daemon has it */
		return err_sys(e, ERR_NOT_FOUND, -errno, "source '%.200s'", src);
	one = json_pack("{s:s, s:s%, s:b}", "source", src[0] == '/' ? src : real, "target", dst + 1,
			opt ? (size_t)(opt - dst - 1) : strlen(dst + 1), "read_only", opt && !strcmp(opt, ":ro"));
	if (!one || json_array_append_new(list_of(body, "mounts"), one) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", arg);
	return 0;
}

/* --idle alone is a number, as ever; with one of the others it is a part of an object. */
static int set_idle(json_t *body, int opt, const char *arg, struct err *e)
{
	json_t *now = json_object_get(body, "idle"), *parts;

	if (opt == OPT_IDLE && !json_is_object(now))
		return args_set_time(body, "idle", arg, e);
	parts = json_is_object(now) ? json_incref(now) : json_object();
	if (json_is_number(now))
		json_object_set(parts, "delete", now);
	json_object_set_new(body, "idle", parts);
	return args_set_time(parts, opt == OPT_IDLE ? "delete" : opt == IDLE_PAUSE ? "pause" : "hibernate", arg, e);
}

/* The object "network", made when it is not there. */
static json_t *network_of(json_t *body)
{
	json_t *net = json_object_get(body, "network");

	if (!net) {
		net = json_object();
		json_object_set_new(body, "network", net);
	}
	return net;
}

int want_allow(json_t *net, const char *arg, struct err *e)
{
	json_t *rule = json_string(arg);

	if (!rule || json_array_append_new(list_of(net, "allow"), rule) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", arg);
	/* Rules without a mode imply mode allow: otherwise they would have no effect. */
	return json_object_get(net, "mode") ? 0 : set_new(net, "mode", json_string("allow"), e);
}

int want_budget(json_t *net, const char *which, const char *arg, struct err *e)
{
	const char *eq = strchr(arg, '=');
	json_t *all = json_object_get(net, which), *value;
	char name[32] = "";
	uint64_t v = 0;
	int r;

	if (!eq || eq == arg || (size_t)(eq - arg) >= sizeof(name))
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be NAME=N, as bytes_out=10M", arg);
	memcpy(name, arg, (size_t)(eq - arg));
	r = parse_size(eq + 1, &v, e);
	if (r == 0 && v > INT64_MAX)
		r = err_set(e, ERR_INVALID, -ERANGE, "'%.60s': too large", arg);
	if (r < 0)
		return r;
	if (!all) {
		all = json_object();
		json_object_set_new(net, which, all);
	}
	value = json_integer((json_int_t)v);
	return set_new(all, name, value, e);
}

/* NAME[:HOW[=FIELD][@HOST]] */
static int want_secret(json_t *body, const char *arg, struct err *e)
{
	static const char *const fields[][2] = { { "file", "path" },  { "env", "env" },		{ "header", "header" },
						 { "basic", "user" }, { "query", "parameter" }, { "mask", NULL } };
	const char *how = strchr(arg, ':'), *eq, *host = NULL, *end;
	size_t n, i;
	json_t *one;

	end = arg + strlen(arg);
	how = how ? how + 1 : "file";
	n = strcspn(how, "=@");
	for (i = 0; i < ARRAY_LEN(fields); i++)
		if (strlen(fields[i][0]) == n && !strncmp(fields[i][0], how, n))
			break;
	if (i == ARRAY_LEN(fields) || *arg == ':')
		return err_set(e, ERR_INVALID, -EINVAL,
			       "'%.60s': must be NAME, or NAME: and file, env, header, basic, query or mask", arg);
	if (i >= 2 && i <= 4 && (host = strrchr(how, '@'))) /* a path may well hold one */
		end = host;
	eq = how[n] == '=' ? how + n + 1 : NULL;
	one = json_pack("{s:s%, s:s}", "name", arg, strcspn(arg, ":"), "as", fields[i][0]);
	if (one && eq && fields[i][1])
		json_object_set_new(one, fields[i][1], json_stringn(eq, (size_t)(end - eq)));
	if (one && host)
		json_object_set_new(one, "to", json_string(host + 1));
	if (!one || json_array_append_new(list_of(body, "secrets"), one) < 0)
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
		return r < 0 ? r :
			       set_new(body, "cpus",
				       milli % 1000 ? json_real(milli / 1000.0) : json_integer(milli / 1000), e);
	case OPT_META:
		return args_add_meta(body, arg, e);
	case 'e':
		return args_add_env(body, arg, e);
	case OPT_READ_ONLY:
		return set_new(body, "read_only", json_true(), e);
	case OPT_TMPFS:
		return add_tmpfs(body, arg, e);
	case OPT_MOUNT:
		return add_mount(body, arg, e);
	case OPT_GPU:
		return args_set_text(body, "gpus", arg, e);
	case OPT_GPU_SHARED:
		return set_new(body, "gpus_shared", json_true(), e);
	case OPT_DEVICE:
		return json_array_append_new(list_of(body, "devices"), json_string(arg)) < 0 ?
			       err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", arg) :
			       0;
	case OPT_NETWORK:
		return args_set_text(network_of(body), "mode", arg, e);
	case OPT_ALLOW:
		return want_allow(network_of(body), arg, e);
	case OPT_BUDGET:
		return want_budget(network_of(body), "budget", arg, e);
	case OPT_TREE_BUDGET:
		return want_budget(network_of(body), "tree_budget", arg, e);
	case OPT_SECRET:
		return want_secret(body, arg, e);
	case OPT_NO_SECRETS:
		return args_set_text(body, "secrets", "drop", e);
	case OPT_IDLE:
	case IDLE_PAUSE:
	case IDLE_HIBERNATE:
		return set_idle(body, opt, arg, e);
	default:
		return set_plain(body, &plain[opt - PLAIN], arg, e);
	}
}

static const char *option_name(int opt)
{
	for (const struct option *o = want_options; o->name; o++)
		if (o->val == opt)
			return o->name;
	return "option";
}

int want_apply(json_t *body, int opt, const char *arg, struct err *e)
{
	int r;

	if (opt == OPT_LATER) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			"--seccomp and --cpu-time are not supported for sandboxes of a daemon in this version");
		err_remedy(e, "leave them out, or use `cloche run`, which supports both");
		return -EOPNOTSUPP;
	}
	r = apply(body, opt, arg, e);
	return r < 0 ? err_wrap(e, r, "--%s", option_name(opt)) : 0;
}
