/*
 * cloche-serve: the daemon, as `cloche serve` starts it.
 *
 * Theory of operation. Four processes. This one, the supervisor, is root: it reads options and configuration, makes
 * the data folder and takes its lock, opens every socket, and then does nothing but keep the others alive. The
 * warden (cloche-warden, root with few capabilities) makes and ends sandboxes. The API process is a fork of this one
 * that becomes the user `cloche` and speaks HTTP (daemon_serve()); it reads what clients send. cloche-egress, as a user of
 * its own, carries what sandboxes send to the network and decides about it; it has no files.
 *
 * Sockets belong to no process in particular: when one of the three dies it is started again on the same ones, and
 * clients wait in the backlog. All die with the supervisor; sandboxes survive all of them.
 */
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "config.h"
#include "daemon/conf.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/listen.h"
#include "daemon/quarantine.h"
#include "daemon/state_check.h"
#include "daemon/supervisor.h"
#include "engine/program.h"

#include <getopt.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#define OPTIONS_MAX 64

/* Recorded first, applied behind the file: what is typed wins over what is written. */
struct options {
	struct {
		const char *key, *value;
	} set[OPTIONS_MAX];
	unsigned n;
	const char *config;
	bool check, debug, help, recover, version;
};

static void usage(FILE *to)
{
	fputs("usage: cloche serve [options]\n"
	      "\n"
	      "Runs the daemon, which keeps sandboxes and serves them over HTTP, until it is interrupted. Sandboxes continue then.\n"
	      "docs/config.md describes all options, and the keys of the configuration file.\n"
	      "\n"
	      "  --data DIR         where state, audit log and sockets are kept (" CONF_DATA ")\n"
	      "  --listen ADDR      HOST:PORT, [V6]:PORT or unix:/PATH, repeatable (" CONF_LISTEN ")\n"
	      "  --token-file FILE  holds the admin token; created with mode 0600 when missing\n"
	      "  --config FILE      `key = value` lines (" CONF_FILE " when it exists)\n"
	      "  --user NAME        user of the API process (" IDENTITY_DEFAULT ")\n"
	      "  --images DIR       each folder in it is an image\n"
	      "  --layers DIR       where checkpoints are kept; owned by root (\"layers\" in --data)\n"
	      "  --allow-device NAME  sandboxes may have this device: gpu, VENDOR/CLASS=NAME, /dev/NODE; TENANT:NAME; repeatable\n"
	      "  --allow-mount DIR  sandboxes may mount this folder and those in it; TENANT:DIR: only those of a tenant; repeatable\n"
	      "  --pool N           sandboxes to keep ready, 1 to 1024 (32)\n"
	      "  --tls-cert FILE, --tls-key FILE\n"
	      "                     speak HTTPS on TCP sockets\n"
	      "  --stop-sandboxes   end all sandboxes when the daemon ends; by default they continue\n"
	      "  --recover          rebuild a database that is missing, damaged or of another daemon (docs/recovery.md)\n"
	      "  --check            only check the configuration\n"
	      "  --debug            print more to stderr\n"
	      "  --version, --help\n",
	      to);
}

static const struct known {
	const char *option, *key;
	enum { VALUE, PATH_VALUE, FLAG } kind;
} known[] = {
	{ "data", "data", PATH_VALUE },
	{ "listen", "listen", VALUE },
	{ "token-file", "token_file", PATH_VALUE },
	{ "user", "user", VALUE },
	{ "images", "images", PATH_VALUE },
	{ "layers", "layers", PATH_VALUE },
	{ "allow-mount", "allow_mount", PATH_VALUE },
	{ "allow-device", "allow_device", VALUE },
	{ "pool", "pool", VALUE },
	{ "tls-cert", "tls_cert", PATH_VALUE },
	{ "tls-key", "tls_key", PATH_VALUE },
	{ "stop-sandboxes", "stop_sandboxes", FLAG },
};

enum { OPT_CONFIG = 1000, OPT_CHECK, OPT_DEBUG, OPT_HELP, OPT_RECOVER, OPT_VERSION };

static int record(struct options *o, const struct known *k, const char *value, struct err *e)
{
	if (o->n == OPTIONS_MAX)
		return err_set(e, ERR_INVALID, -E2BIG, "more than %d options", OPTIONS_MAX);
	o->set[o->n].key = k->key;
	o->set[o->n++].value = k->kind == FLAG ? "yes" : value;
	return 0;
}

static int parse(int argc, char **argv, struct options *o, struct err *e)
{
	struct option table[ARRAY_LEN(known) + 7] = {
		{ "config", required_argument, NULL, OPT_CONFIG }, { "check", no_argument, NULL, OPT_CHECK },
		{ "debug", no_argument, NULL, OPT_DEBUG },	   { "help", no_argument, NULL, OPT_HELP },
		{ "version", no_argument, NULL, OPT_VERSION },	   { "recover", no_argument, NULL, OPT_RECOVER },
	};
	int c, r = 0;

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		table[6 + i] = (struct option){ known[i].option,
						known[i].kind == FLAG ? no_argument : required_argument, NULL, (int)i };
	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		if (c == OPT_CONFIG)
			o->config = optarg;
		else if (c == OPT_CHECK)
			o->check = true;
		else if (c == OPT_DEBUG)
			o->debug = true;
		else if (c == OPT_HELP)
			o->help = true;
		else if (c == OPT_RECOVER)
			o->recover = true;
		else if (c == OPT_VERSION)
			o->version = true;
		else if (c >= 0 && (size_t)c < ARRAY_LEN(known) && c != '?')
			r = record(o, &known[c], optarg, e);
		else
			r = err_set(e, ERR_INVALID, -EINVAL, "option '%.60s': unknown, or its value is missing",
				    argv[optind - 1]);
	}
	if (r == 0 && optind < argc)
		r = err_set(e, ERR_INVALID, -EINVAL, "unexpected argument '%.60s'", argv[optind]);
	if (r == -EINVAL)
		err_remedy(e, "see `cloche serve --help`");
	return r;
}

/* A path on the command line may be relative to where it was typed. */
static int apply(struct daemon_config *c, const char *key, const char *value, struct err *e)
{
	AUTO_FREE char *here = NULL, *whole = NULL;
	bool is_path = false;

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		is_path |= known[i].kind == PATH_VALUE && !strcmp(known[i].key, key);
	if (is_path && value[0] && value[0] != '/') {
		here = getcwd(NULL, 0);
		if (!here || asprintf(&whole, "%s/%s", here, value) < 0)
			return err_sys(e, ERR_INVALID, -errno, "find the path of this program");
		value = whole;
	}
	return conf_set(c, key, value, e);
}

static int configure(const struct options *o, struct daemon_config *c, struct err *e)
{
	int r = 0;

	conf_init(c);
	if (o->config || access(CONF_FILE, F_OK) == 0)
		r = conf_read(c, o->config ? o->config : CONF_FILE, e);
	for (unsigned i = 0; r == 0 && i < o->n; i++) {
		bool again = false;

		for (unsigned k = 0; k < i; k++)
			again |= !strcmp(o->set[k].key, o->set[i].key);
		if (!again)
			conf_clear(c, o->set[i].key);
		r = apply(c, o->set[i].key, o->set[i].value, e);
	}
	if (r == 0)
		r = conf_finish(c, e);
	if (r == 0)
		r = conf_check_files(c, e);
	return r;
}

/* Closes all inherited descriptors but the sockets of systemd, and makes sure that 0 to 2 are open. */
static int tidy_fds(int activated, struct err *e)
{
	int fd, r;

	r = sys_close_range(3U + (unsigned)activated, ~0U, 0);
	do {
		fd = sys_openat(AT_FDCWD, "/dev/null", O_RDWR, 0);
	} while (fd >= 0 && fd < 3);
	fd_close(fd);
	if (r == 0 && fd < 0)
		r = fd;
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "descriptors") : 0;
}

static void raise_nofile(void)
{
	struct rlimit l;

	/* For the API process, one per connection and some per exec. It has no privilege to raise it itself. */
	if (sys_prlimit(RLIMIT_NOFILE, 1 << 20, 1 << 20) < 0 && getrlimit(RLIMIT_NOFILE, &l) == 0)
		sys_prlimit(RLIMIT_NOFILE, l.rlim_max, l.rlim_max);
}

static int check_state(struct places *p, struct err *e)
{
	struct state_found found;
	int r = state_check(p, p->recover, &found, e);

	if (r < 0)
		return r;
	p->beside = found.beside;
	p->recover = found.recover;
	p->layers = found.layers;
	p->nlayers = found.nlayers;
	return 0;
}

static int run(const struct daemon_config *c, bool recover, struct err *e)
{
	struct supervisor_opts so = {
		.config = c, .serve = daemon_serve, .check = check_state, .recover = recover, .out = STDOUT_FILENO
	};
	char warden[512], egress[512];
	int r;

	if (geteuid() != 0) {
		err_set(e, ERR_DENIED, -EPERM, "`cloche serve` must run as root: its warden makes the sandboxes");
		err_remedy(e, "use `sudo cloche serve`; or use `cloche run`, which works without root");
		return -EPERM;
	}
	so.activated = listen_activated();
	r = tidy_fds(so.activated, e);
	if (r == 0)
		r = program_path("cloche-warden", warden, sizeof(warden), e);
	if (r == 0)
		r = program_path("cloche-egress", egress, sizeof(egress), e);
	if (r < 0)
		return r;
	so.warden = warden;
	so.egress = egress;
	raise_nofile();
	return supervisor_run(&so, e);
}

int main(int argc, char **argv)
{
	static struct daemon_config config; /* 20 kB and more: not on the stack */
	struct options o = { 0 };
	struct identity who;
	struct err e = { 0 };
	int r;

	if (argc > 1 && !strcmp(argv[1], "quarantine"))
		return quarantine_main(argc - 1, argv + 1);
	r = parse(argc, argv, &o, &e);

	signal(SIGXFSZ, SIG_IGN); /* `ulimit -f` is an error of a write, in all processes started from here */
	if (r == 0 && o.help) {
		usage(stdout);
		return 0;
	}
	if (r == 0 && o.version) {
		puts("cloche " CLOCHE_VERSION);
		return 0;
	}
	if (o.debug)
		log_set_level(LOG_LEVEL_DEBUG);
	if (r == 0)
		r = configure(&o, &config, &e);
	if (r == 0 && o.check) {
		r = identity_find(config.user, &who, &e);
		if (r == 0) {
			puts("the configuration is valid");
			return 0;
		}
	}
	if (r == 0)
		r = run(&config, o.recover, &e);
	if (r == 0)
		return 0;
	fprintf(stderr, "cloche: %s%s%s\n", e.msg, e.remedy[0] ? "; " : "", e.remedy);
	return 125;
}
