/* Parses the options of `cloche run`. */
#include "cli/options.h"
#include "base/base.h"
#include "base/near.h"
#include "base/str.h"
#include "proto/account.h"
#include "tier/tiers.h"

#include <getopt.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	OPT_ISOLATION = 256,
	OPT_IMAGE,
	OPT_CPUS,
	OPT_MEMORY,
	OPT_DISK,
	OPT_INODES,
	OPT_STORAGE,
	OPT_PIDS,
	OPT_NOFILE,
	OPT_TIMEOUT,
	OPT_CPU_TIME,
	OPT_OUTPUT,
	OPT_IO,
	OPT_READ_ONLY,
	OPT_TMPFS,
	OPT_NETWORK,
	OPT_ALLOW,
	OPT_ALLOW_PRIVATE,
	OPT_RESOLVER,
	OPT_HOST,
	OPT_MOUNT,
	OPT_WORKDIR,
	OPT_USER,
	OPT_HOSTNAME,
	OPT_SECCOMP,
	OPT_JSON,
	OPT_NO_TTY,
	OPT_GPU,
	OPT_DEVICE,
	OPT_CDI,
	OPT_RM,
	OPT_LATER,
};

static const struct option table[] = {
	{ "isolation", required_argument, NULL, OPT_ISOLATION },
	{ "image", required_argument, NULL, OPT_IMAGE },
	{ "cpus", required_argument, NULL, OPT_CPUS },
	{ "memory", required_argument, NULL, OPT_MEMORY },
	{ "disk", required_argument, NULL, OPT_DISK },
	{ "inodes", required_argument, NULL, OPT_INODES },
	{ "storage", required_argument, NULL, OPT_STORAGE },
	{ "pids", required_argument, NULL, OPT_PIDS },
	{ "nofile", required_argument, NULL, OPT_NOFILE },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "cpu-time", required_argument, NULL, OPT_CPU_TIME },
	{ "output-limit", required_argument, NULL, OPT_OUTPUT },
	{ "io-bps", required_argument, NULL, OPT_IO },
	{ "read-only", no_argument, NULL, OPT_READ_ONLY },
	{ "tmpfs", required_argument, NULL, OPT_TMPFS },
	{ "network", required_argument, NULL, OPT_NETWORK },
	{ "allow", required_argument, NULL, OPT_ALLOW },
	{ "allow-private", required_argument, NULL, OPT_ALLOW_PRIVATE },
	{ "resolver", required_argument, NULL, OPT_RESOLVER },
	{ "host", required_argument, NULL, OPT_HOST },
	{ "env", required_argument, NULL, 'e' },
	{ "mount", required_argument, NULL, OPT_MOUNT },
	{ "workdir", required_argument, NULL, OPT_WORKDIR },
	{ "user", required_argument, NULL, OPT_USER },
	{ "hostname", required_argument, NULL, OPT_HOSTNAME },
	{ "seccomp", required_argument, NULL, OPT_SECCOMP },
	{ "gpu", required_argument, NULL, OPT_GPU },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "cdi-dir", required_argument, NULL, OPT_CDI },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "tty", no_argument, NULL, 't' },
	{ "no-tty", no_argument, NULL, OPT_NO_TTY },
	{ "interactive", no_argument, NULL, 'i' },
	{ "rm", no_argument, NULL, OPT_RM },
	{ "help", no_argument, NULL, 'h' },
	{ "template", required_argument, NULL, OPT_LATER },
	{ "secret", required_argument, NULL, OPT_LATER },
	{ NULL, 0, NULL, 0 },
};

void options_help(void)
{
	fputs("usage: cloche run [options] [--] COMMAND [ARGUMENT…]\n"
	      "\n"
	      "Runs a command in a new sandbox and exits with the command's exit code\n"
	      "(128+N ended by signal N, 124 timeout, 125 cloche itself failed, 126 not executable, 127 not found,\n"
	      "137 killed by a limit). By default there is no network inside. Written files are removed with the sandbox.\n"
	      "\n"
	      "limits (0 removes one)                                          default\n"
	      "  --cpus N            cores, as 0.5 or 2                        1\n"
	      "  --memory SIZE       memory, no swap; files in memory count    512M\n"
	      "  --disk SIZE         what may be written                       1G\n"
	      "  --inodes N          number of files                           one per 8K of disk\n"
	      "  --pids N            processes and threads                     256\n"
	      "  --nofile N          open files per process                    1024\n"
	      "  --timeout TIME      wall time, as 30s, 5m                     5m\n"
	      "  --cpu-time TIME     CPU time of the whole sandbox             none\n"
	      "  --output-limit SIZE stdout and stderr each: head and tail     1M\n"
	      "  --io-bps SIZE       bytes per second to and from its disk     none\n"
	      "files\n"
	      "  --image host|DIR|NAME  the root filesystem; NAME is a stored image of the daemon, which then runs the command:\n"
	      "                      `cloche run --image NAME --help`          host\n"
	      "  --read-only         root read-only; work folder and /tmp stay writable\n"
	      "  --storage memory|disk  where changes are kept                 memory\n"
	      "  --tmpfs PATH[:size=SIZE]   a writable folder in memory, 64M by default (repeatable)\n"
	      "  --mount SRC:DST[:ro]       a folder or file of this host, accessed with its owner's rights (repeatable)\n"
	      "  --workdir DIR       working folder; created when missing      the home\n"
	      "network\n"
	      "  --network MODE      none; allow: what --allow names; open: the public internet;   none\n"
	      "                      observe: as open, and prints the sufficient --allow options\n"
	      "  --allow RULE        NAME, *.NAME or ADDRESS[/N], with :PORTS (80 and 443), +ech at the end (repeatable)\n"
	      "  --allow-private ADDRESS[/N][:PORTS]   a non-public address that rules or `open` may then reach\n"
	      "                      (repeatable)\n"
	      "  --resolver ADDRESS  DNS server                                those of this host\n"
	      "  --host NAME=ADDRESS a fixed answer for a name (repeatable)\n"
	      "devices\n"
	      "  --gpu all|N|UUID    GPUs of this machine; several with commas                 none\n"
	      "  --device NAME       a device of CDI, as nvidia.com/gpu=0, or a node, as /dev/fuse (repeatable)\n"
	      "  --cdi-dir FOLDER    where specifications of devices are (repeatable)          /etc/cdi, /var/run/cdi\n"
	      "other\n"
	      "  --user NAME[:GROUP]    a name in the image, or UID[:GID]      user\n"
	      "  -e, --env NAME[=VALUE] a variable; without a value, the caller's (repeatable)\n"
	      "  --seccomp FILE      a profile in OCI/Docker JSON, on top of the built-in one\n"
	      "  --hostname NAME     the host name inside                      sandbox\n"
	      "  --isolation TIER    container or vm                           container\n"
	      "  -t, --tty | --no-tty   a terminal inside                      when stdin and stdout are terminals\n"
	      "  -i, --interactive, --rm   no effect: stdin is always passed on, and the sandbox always removed\n"
	      "  --json              the whole result as one JSON object on stdout\n"
	      "  --language NAME     run code from a file or stdin, by a daemon; `cloche run --language python --help`\n"
	      "\n"
	      "SIZE is bytes, or a number with K, M, G, T. TIME is seconds, or a number with ms, s, m, h, d.\n"
	      "\n"
	      "  cloche run --mount ./project:/work --workdir /work -- python3 main.py\n"
	      "  echo 'print(6 * 7)' | cloche run --json --timeout 10s --memory 128M -- python3 -\n",
	      stdout);
}

static int copy(char *dst, size_t size, const char *src, const char *what, struct err *e)
{
	if (strlen(src) >= size)
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "%s: longer than %zu bytes", what, size - 1);
	memcpy(dst, src, strlen(src) + 1);
	return 0;
}

static int parse_u32(const char *text, uint32_t *ret, struct err *e)
{
	uint64_t v;
	int r = parse_u64(text, &v, e);

	if (r == 0 && v > UINT32_MAX)
		r = err_set(e, ERR_INVALID, -ERANGE, "'%s': too large", text);
	if (r == 0)
		*ret = (uint32_t)v;
	return r;
}

static int parse_user(struct options *o, const char *text, struct err *e)
{
	uint32_t uid, gid;
	char head[16];
	const char *colon;
	int r;

	if (!strcmp(text, "root") || !strcmp(text, "0") || !strcmp(text, "0:0")) {
		o->spec.uid = o->spec.gid = 0;
		o->name = NULL;
		o->user = "root";
		o->home = "/root";
		return 0;
	}
	if (account_check(text) == 0 && strcmp(text, "user") != 0) {
		/* The user's ids are only known inside. The work folder belongs to uid 1000, as for the other users. */
		o->spec.uid = o->spec.gid = 1000;
		o->name = text;
		o->home = "/home/user";
		return 0;
	}
	o->name = NULL;
	if (!strcmp(text, "user"))
		text = "1000";
	colon = strchr(text, ':');
	if ((colon ? (size_t)(colon - text) : strlen(text)) >= sizeof(head))
		return err_set(e, ERR_INVALID, -EINVAL,
			       "'%.40s': must be user, root, UID, UID:GID, or names: NAME, NAME:GROUP", text);
	snprintf(head, sizeof(head), "%.*s", colon ? (int)(colon - text) : (int)strlen(text), text);
	r = parse_u32(head, &uid, NULL);
	if (r == 0)
		r = parse_u32(colon ? colon + 1 : head, &gid, NULL);
	if (r < 0)
		return err_set(e, ERR_INVALID, -EINVAL,
			       "'%.40s': must be user, root, UID, UID:GID, or names: NAME, NAME:GROUP", text);
	if (uid > 65535 || gid > 65535)
		return err_set(e, ERR_INVALID, -ERANGE, "'%.40s': ids must be at most 65535", text);
	o->spec.uid = uid;
	o->spec.gid = gid;
	o->user = uid == 0 ? "root" : "user";
	o->home = uid == 0 ? "/root" : "/home/user";
	return 0;
}

/* SRC:DST[:ro]; the source may be relative to where we are. */
static int parse_mount(struct sandbox_spec *s, const char *text, struct err *e)
{
	struct spec_mount *m = &s->mount[s->nmounts];
	const char *dst = strchr(text, ':'), *opt;
	char src[PATH_MAX], real[PATH_MAX];
	int r;

	if (s->nmounts == SPEC_MOUNTS)
		return err_set(e, ERR_INVALID, -E2BIG, "at most %d of them", SPEC_MOUNTS);
	if (!dst || dst == text || dst[1] != '/')
		return err_set(e, ERR_INVALID, -EINVAL, "'%s': must be SRC:DST or SRC:DST:ro, DST absolute", text);
	snprintf(src, sizeof(src), "%.*s", (int)(dst - text), text);
	dst++;
	opt = strchr(dst, ':');
	if (opt && strcmp(opt, ":ro") && strcmp(opt, ":rw"))
		return err_set(e, ERR_INVALID, -EINVAL, "'%s': only :ro or :rw may follow", text);
	if (!realpath(src, real))
		return err_sys(e, ERR_NOT_FOUND, -errno, "source '%s'", src);
	r = copy(m->src, sizeof(m->src), real, "source", e);
	if (r < 0)
		return r;
	if ((size_t)snprintf(m->dst, sizeof(m->dst), "%.*s", opt ? (int)(opt - dst) : (int)strlen(dst), dst) >=
	    sizeof(m->dst))
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "target: the path is too long");
	m->read_only = opt && !strcmp(opt, ":ro");
	s->nmounts++;
	return 0;
}

static int parse_tmpfs(struct sandbox_spec *s, const char *text, struct err *e)
{
	struct spec_tmpfs *t = &s->tmpfs[s->ntmpfs];
	const char *opt = strchr(text, ':');
	int r;

	if (s->ntmpfs == SPEC_TMPFS)
		return err_set(e, ERR_INVALID, -E2BIG, "at most %d of them", SPEC_TMPFS);
	if (opt && strncmp(opt, ":size=", 6))
		return err_set(e, ERR_INVALID, -EINVAL, "'%s': must be PATH or PATH:size=SIZE", text);
	if ((size_t)snprintf(t->path, sizeof(t->path), "%.*s", opt ? (int)(opt - text) : (int)strlen(text), text) >=
	    sizeof(t->path))
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "path: the path is too long");
	t->size = 64 * MIB;
	r = opt ? parse_size(opt + 6, &t->size, e) : 0;
	if (r == 0 && !t->size)
		r = err_set(e, ERR_INVALID, -EINVAL, "'%s': size must not be 0", text);
	if (r == 0)
		s->ntmpfs++;
	return r;
}

static int add_device(struct sandbox_spec *s, const char *kind, const char *name, size_t n, struct err *e)
{
	if (s->ndevices == DEVICE_NAMES)
		return err_set(e, ERR_INVALID, -E2BIG, "at most %d of them", DEVICE_NAMES);
	if (!n || strlen(kind) + n >= DEVICE_NAME)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.80s': not a name of a device", name);
	snprintf(s->device[s->ndevices++], DEVICE_NAME, "%s%.*s", kind, (int)n, name);
	return 0;
}

static int parse_gpus(struct sandbox_spec *s, const char *text, struct err *e)
{
	int r = 0;

	for (const char *at = text, *end; r == 0 && at; at = *end ? end + 1 : NULL) {
		end = at + strcspn(at, ",");
		r = add_device(s, "gpu=", at, (size_t)(end - at), e);
	}
	return r;
}

static int parse_cdi(struct options *o, const char *text, struct err *e)
{
	char real[PATH_MAX], *joined = NULL;

	if (!realpath(text, real))
		return err_sys(e, ERR_NOT_FOUND, -errno, "folder '%s'", text);
	if (strchr(real, ':'))
		return err_set(e, ERR_INVALID, -EINVAL, "'%s': must not have a colon", real);
	/* Lives until the process ends, as the other strings do. */
	if (asprintf(&joined, "%s%s%s", o->cdi ? o->cdi : "", o->cdi ? ":" : "", real) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	o->cdi = joined;
	return 0;
}

static int parse_hostname(struct options *o, const char *arg, struct err *e)
{
	static const char fit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.";

	if (!*arg || *arg == '-' || *arg == '.' || arg[strspn(arg, fit)])
		return err_set(e, ERR_INVALID, -EINVAL,
			       "'%.*s': must consist of letters, digits, '-' and '.', and start with a letter or digit",
			       (int)strcspn(arg, "\n\r\t\033"), arg);
	return copy(o->spec.hostname, sizeof(o->spec.hostname), arg, "name", e);
}

static int parse_env(struct options *o, char *text, struct err *e)
{
	const char **grown;

	if (!strchr(text, '=')) {
		const char *value = getenv(text);
		char *joined;

		if (!value)
			return err_set(e, ERR_INVALID, -EINVAL,
				       "'%.60s' is not set in the environment; give %.60s=VALUE", text, text);
		/* Lives until the process ends, as the other strings do. */
		joined = malloc(strlen(text) + strlen(value) + 2);
		if (!joined)
			return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
		memcpy(joined, text, strlen(text));
		joined[strlen(text)] = '=';
		memcpy(joined + strlen(text) + 1, value, strlen(value) + 1);
		text = joined;
	} else if (text[0] == '=') {
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be NAME=VALUE", text);
	}
	grown = realloc(o->env, (o->nenv + 1) * sizeof(*grown));
	if (!grown)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	o->env = grown;
	o->env[o->nenv++] = text;
	return 0;
}

/* Whether @next is the value of option @arg. Of the daemon's forms, which are not in the table, nearly all have one. */
static bool takes_value(const char *arg, const char *next)
{
	const char *letter = strchr(arg, 'e');

	if (strncmp(arg, "--", 2) != 0)
		return letter && !letter[1];
	for (const struct option *t = table; t->name; t++)
		if (!strcmp(arg + 2, t->name))
			return t->has_arg == required_argument;
	return !strchr(arg, '=') && next && next[0] != '-';
}

/* The value of the long option @name, before the command begins; "" when it is the last word. NULL: it is not given. */
static const char *value_of(int argc, char *const *argv, const char *name)
{
	const char *ret = NULL;
	size_t n = strlen(name);

	for (int i = 1; i < argc && argv[i][0] == '-' && argv[i][1] && strcmp(argv[i], "--") != 0; i++) {
		if (!strncmp(argv[i], name, n) && argv[i][n] == '=')
			ret = argv[i] + n + 1;
		else if (!strcmp(argv[i], name))
			ret = i + 1 < argc ? argv[i + 1] : "";
		i += takes_value(argv[i], i + 1 < argc ? argv[i + 1] : NULL);
	}
	return ret;
}

/* A name that is neither `host` nor a folder, nor looks like a path: an image that a daemon has. */
bool options_stored_image(int argc, char *const *argv)
{
	const char *image = value_of(argc, argv, "--image");
	struct stat st;

	return image && *image && strcmp(image, "host") && image[0] != '/' && image[0] != '.' && stat(image, &st) < 0 &&
	       errno == ENOENT;
}

bool options_language(int argc, char *const *argv)
{
	return value_of(argc, argv, "--language") != NULL;
}

static int parse_image(struct sandbox_spec *s, const char *text, struct err *e)
{
	char real[PATH_MAX];

	if (!strcmp(text, "host"))
		return copy(s->image, sizeof(s->image), text, "image", e);
	if (!realpath(text, real)) {
		err_sys(e, ERR_NOT_FOUND, -errno, "image '%s'", text);
		err_remedy(e, "use 'host' or the folder of a root filesystem");
		return -ENOENT;
	}
	return copy(s->image, sizeof(s->image), real, "image", e);
}

static int parse_storage(struct options *o, const char *text, struct err *e)
{
	o->storage_disk = !strcmp(text, "disk");
	if (!o->storage_disk && strcmp(text, "memory"))
		return err_set(e, ERR_INVALID, -EINVAL, "'%s': must be memory or disk", text);
	return 0;
}

static int parse_tier(struct sandbox_spec *s, const char *text, struct err *e)
{
	const struct tier_ops *tier;
	int r = tier_find(text, &tier, e);

	if (r == 0)
		s->flags = (s->flags & ~SPEC_TIERS) | tier->flag;
	return r;
}

static int apply(struct options *o, int opt, char *arg, struct err *e)
{
	struct spec_limits *l = &o->spec.limits;

	switch (opt) {
	case OPT_ISOLATION:
		return parse_tier(&o->spec, arg, e);
	case OPT_IMAGE:
		return parse_image(&o->spec, arg, e);
	case OPT_CPUS:
		return parse_cpus(arg, &l->cpu_milli, e);
	case OPT_MEMORY:
		return parse_size(arg, &l->memory, e);
	case OPT_DISK:
		return parse_size(arg, &l->disk, e);
	case OPT_INODES:
		return parse_u64(arg, &l->inodes, e);
	case OPT_STORAGE:
		return parse_storage(o, arg, e);
	case OPT_PIDS:
		return parse_u32(arg, &l->pids, e);
	case OPT_NOFILE:
		return parse_u64(arg, &o->nofile, e);
	case OPT_TIMEOUT:
		return parse_duration(arg, &o->timeout_ms, e);
	case OPT_CPU_TIME:
		return parse_duration(arg, &o->cpu_ms, e);
	case OPT_OUTPUT:
		return parse_size(arg, &o->output, e);
	case OPT_IO:
		return parse_size(arg, &l->io_bps, e);
	case OPT_READ_ONLY:
		o->spec.flags |= SPEC_READ_ONLY;
		return 0;
	case OPT_TMPFS:
		return parse_tmpfs(&o->spec, arg, e);
	case OPT_NETWORK:
		return network_want_mode(&o->network, arg, e);
	case OPT_ALLOW:
		return network_want_rule(&o->network, arg, e);
	case OPT_ALLOW_PRIVATE:
		return network_want_private(&o->network, arg, e);
	case OPT_RESOLVER:
		o->network.resolver = arg;
		return 0;
	case OPT_HOST:
		return network_want_host(&o->network, arg, e);
	case 'e':
		return parse_env(o, arg, e);
	case OPT_MOUNT:
		return parse_mount(&o->spec, arg, e);
	case OPT_WORKDIR:
		o->workdir_given = true;
		return copy(o->spec.workdir, sizeof(o->spec.workdir), arg, "folder", e);
	case OPT_USER:
		return parse_user(o, arg, e);
	case OPT_HOSTNAME:
		return parse_hostname(o, arg, e);
	case OPT_SECCOMP:
		o->seccomp = arg;
		return 0;
	case OPT_GPU:
		return parse_gpus(&o->spec, arg, e);
	case OPT_DEVICE:
		return add_device(&o->spec, "", arg, strlen(arg), e);
	case OPT_CDI:
		return parse_cdi(o, arg, e);
	case OPT_JSON:
		o->json = true;
		return 0;
	case 't':
		o->tty = TTY_YES;
		return 0;
	case OPT_NO_TTY:
		o->tty = TTY_NO;
		return 0;
	case 'i': /* as it is in any case; typed by those who know docker */
	case OPT_RM:
		return 0;
	case 'h':
		o->help = true;
		return 0;
	case OPT_LATER:
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "only a sandbox of a daemon can have it");
		err_remedy(e, "use `cloche create`, a stored image (--image NAME), or --language");
		return -EOPNOTSUPP;
	default:
		return -EINVAL;
	}
}

static void set_defaults(struct options *o)
{
	*o = (struct options){
		.nofile = 1024,
		.timeout_ms = 300000,
		.output = MIB,
		.user = "user",
		.home = "/home/user",
	};
	o->spec.limits = (struct spec_limits){ .memory = 512 * MIB, .disk = GIB, .cpu_milli = 1000, .pids = 256 };
	o->spec.uid = o->spec.gid = 1000;
	snprintf(o->spec.image, sizeof(o->spec.image), "host");
	snprintf(o->spec.hostname, sizeof(o->spec.hostname), "sandbox");
}

static const char *option_name(int opt)
{
	for (const struct option *t = table; t->name; t++)
		if (t->val == opt)
			return t->name;
	return "?";
}

/* getopt refused and returned @opt; @at is the word it left, or NULL. In a group like -it that is another word. */
static int bad_option(int opt, const char *at, struct err *e)
{
	const bool known = optopt && strcmp(option_name(optopt), "?");
	const char letter[] = { '-', (char)optopt, '\0' };
	const char *names[ARRAY_LEN(table)], *near, *use;
	char word[40] = "";
	size_t n = 0;
	int r;

	if (opt == ':')
		r = err_set(e, ERR_INVALID, -EINVAL, "option %s needs a value", at ? at : letter);
	else if (known)
		r = err_set(e, ERR_INVALID, -EINVAL, "option %.*s takes no value", (int)strcspn(at, "="), at);
	else
		r = err_set(e, ERR_INVALID, -EINVAL, "unknown option %s", optopt ? letter : at);
	if (!known && at && !strncmp(at, "--entrypoint", 12))
		err_remedy(e, "it is for stored images: `cloche run --image NAME --entrypoint PROGRAM`");
	for (const struct option *t = table; t->name; t++)
		names[n++] = t->name;
	if (!known && at && !strncmp(at, "--", 2))
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(at + 2, "="), at + 2);
	near = near_word(word, names, n);
	use = known || opt == ':' ? NULL : near_option(optopt ? letter : at);
	if (use)
		err_remedy(e, "%s; see `cloche run --help`", use);
	else if (near)
		err_remedy(e, "did you mean --%s? See `cloche run --help`", near);
	else
		err_remedy(e, "see `cloche run --help`");
	return r;
}

static int finish(struct options *o, struct err *e)
{
	int r;

	if (!o->argc) {
		err_set(e, ERR_INVALID, -EINVAL, "no command given");
		err_remedy(e, "give one, as in `cloche run -- echo hello`");
		return -EINVAL;
	}
	/* The sandbox's root may change the system; other users could not write to it anyway. */
	if (o->spec.uid == 0 && !(o->spec.flags & SPEC_READ_ONLY))
		o->spec.flags |= SPEC_SYSTEM_WRITABLE;
	/* A mounted folder of the host is mapped to the user's ids before the sandbox could look them up. */
	if (o->name && o->spec.nmounts) {
		err_set(e, ERR_INVALID, -EINVAL,
			"--user %s cannot be used with --mount: mounts need a user whose ids are known before the "
			"start",
			o->name);
		err_remedy(e, "give the user as UID:GID");
		return -EINVAL;
	}
	if (o->storage_disk)
		o->spec.flags |= SPEC_DISK;
	if (!o->workdir_given)
		snprintf(o->spec.workdir, sizeof(o->spec.workdir), "%s", o->home);
	if (o->json && o->tty == TTY_YES)
		return err_set(e, ERR_INVALID, -EINVAL, "--json cannot be used with --tty");
	r = network_want_finish(&o->network, &o->spec, e);
	return r < 0 ? r : tier_check(&o->spec, e);
}

int options_parse(int argc, char **argv, struct options *ret, struct err *e)
{
	struct options o;
	int opt, index = 0, r;

	set_defaults(&o);
	optind = 0;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "+:e:ith", table, &index)) != -1) {
		if (opt == '?' || opt == ':') {
			r = bad_option(opt, argv[optind - 1], e);
			goto fail;
		}
		r = apply(&o, opt, optarg, e);
		if (r < 0) {
			err_wrap(e, r, "--%s", opt == OPT_LATER ? table[index].name : option_name(opt));
			goto fail;
		}
	}
	o.argv = argv + optind;
	o.argc = (uint32_t)(argc - optind);
	r = o.help ? 0 : finish(&o, e);
	if (r < 0)
		goto fail;
	*ret = o;
	return 0;
fail:
	options_done(&o);
	return r;
}

void options_done(struct options *o)
{
	free(o->env);
	o->env = NULL;
	network_want_done(&o->network);
}

/* Whether the name of @var is given among the variables from number @k on. */
static bool given_from(const struct options *o, uint32_t k, const char *var)
{
	size_t len = strcspn(var, "=") + 1;

	while (k < o->nenv && strncmp(o->env[k], var, len))
		k++;
	return k < o->nenv;
}

const char **options_env(const struct options *o, bool tty, uint32_t *ret_n)
{
	const char *path = strcmp(o->spec.image, "host") ? SPEC_PATH_DEFAULT : SPEC_PATH_HOST;
	/* One buffer each: they live as long as the process, as argv does. */
	static char home[64], user[64], term[128];
	const char *given_term = getenv("TERM"), **env = calloc(o->nenv + o->ndevice_env + 6, sizeof(*env));
	uint32_t n = 0;

	if (!env)
		return NULL;
	snprintf(home, sizeof(home), "HOME=%s", o->home);
	snprintf(user, sizeof(user), "USER=%s", o->user);
	snprintf(term, sizeof(term), "TERM=%s", given_term && *given_term ? given_term : "xterm");
	const char *const base[] = { path, o->name ? NULL : home, o->name ? NULL : user, "LANG=C.UTF-8",
				     tty ? term : NULL };
	for (size_t i = 0; i < ARRAY_LEN(base); i++)
		if (base[i] && !given_from(o, 0, base[i]))
			env[n++] = base[i];
	for (uint32_t k = 0; k < o->ndevice_env; k++)
		if (!given_from(o, 0, o->device_env[k]))
			env[n++] = o->device_env[k];
	/* Of a name given twice the last counts, as everywhere on a command line. */
	for (uint32_t k = 0; k < o->nenv; k++)
		if (!given_from(o, k + 1, o->env[k]))
			env[n++] = o->env[k];
	*ret_n = n;
	return env;
}
