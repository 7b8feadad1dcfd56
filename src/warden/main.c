/*
 * cloche-warden: the one program that stays root.
 *
 * Theory of operation. A daemon without any privilege asks over a SOCK_SEQPACKET socket; this program makes and ends
 * sandboxes and hands out descriptors: the socket of a sandbox's agent and the pidfd of its first process. It reads
 * fixed-size structs (warden/msg.h) and nothing else: no JSON, no HTTP, no archives, no configuration file. The daemon
 * is assumed to be compromised: root's command line says what may be mounted.
 *
 * One thread serves; others belong to the pool: makers make blanks ahead, janitors clean up after sandboxes.
 * All have given up every privilege that making a sandbox does not take (warden/privileges.h) before the first byte is
 * read. Its children are the agents. Connections come and go, sandboxes stay; SIGTERM ends all of them and cleans up.
 * With --keep they outlive even this program, however it ends: the next one finds them by their records
 * (engine/blank/persist.h). SIGUSR1 ends all of them, kept or not, and then this program.
 */
#include "base/base.h"
#include "base/log.h"
#include "base/str.h"
#include "base/sys.h"
#include "config.h"
#include "engine/kernel_memory/link.h"
#include "tier/tiers.h"
#include "warden/policy.h"
#include "warden/privileges.h"
#include "warden/server.h"

#include <getopt.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
	struct server_opts server;
	struct policy policy;
	unsigned parent; /* 0: none */
	unsigned keys_fd; /* 0: none */
	bool keep;
};

#define AT(field) offsetof(struct options, field)
#define ENV(field) AT(server.warden.env.field)
/* Its command line, which only root writes: `cloche serve`, which has checked each value (daemon/conf.h), and tests. */
static const struct {
	const char *name;
	enum { FLAG, NUMBER /* of 32 bits */, PLACE /* an absolute path */, MOUNT, DEVICE } kind;
	size_t at;
} known[] = {
	{ "socket-fd", NUMBER, AT(server.sock) }, /* serve this SOCK_SEQPACKET socket, connected or listening */
	{ "uid", NUMBER, AT(server.uid) }, /* may connect to it besides root */
	{ "images", PLACE, AT(policy.images) }, /* each folder in it is an image; without it there is only `host` */
	{ "allow-mount", MOUNT, 0 }, /* sandboxes may mount this folder and those in it (repeatable) */
	{ "allow-device", DEVICE, 0 }, /* sandboxes may have this device (repeatable) */
	{ "cdi", PLACE, ENV(cdi) }, /* folders of specifications of devices, with ':' between them */
	{ "pool", NUMBER, AT(server.warden.pool) }, /* sandboxes to keep ready */
	{ "keep", FLAG, AT(keep) }, /* sandboxes continue when this program ends; needs --state */
	{ "state", PLACE, ENV(state) }, /* folder for records of kept sandboxes, writable by root only */
	{ "layers", PLACE, ENV(layers) }, /* folder for sealed layers, accessible to root only, */
	{ "disks", PLACE, ENV(disks) }, /* for disks of sandboxes, */
	{ "vm", PLACE, ENV(vm) }, /* and for templates of virtual machines */
	{ "vm-ready", NUMBER, ENV(vm_ready) }, /* virtual machines to keep ready for each template in use */
	{ "vm-accel", NUMBER, ENV(accel) }, /* enum env_accel */
	{ "sockets", NUMBER, AT(server.warden.sockets) }, /* internet sockets of a sandbox; 0: by its memory */
	/* limit of a tenant's sandboxes, in percent of the host's pools */
	{ "tenant-share", NUMBER, AT(server.warden.tenant_share) },
	{ "no-share", FLAG, ENV(no_share) }, /* do not share memory between sandboxes from one memory image */
	{ "memory-keys-fd", NUMBER, AT(keys_fd) }, /* with which memory images are encrypted, the newest first */
	{ "parent", NUMBER, AT(parent) }, /* end when this process, the parent, has ended */
	{ "agent", PLACE, ENV(agent) }, /* the agent's program, if not the one beside this */
};

static int take(struct options *o, unsigned i, const char *text, struct err *e)
{
	void *at = (char *)o + known[i].at;
	uint64_t n = 0;
	int r = 0;

	if (known[i].kind == FLAG)
		*(bool *)at = true;
	else if (known[i].kind == NUMBER)
		r = parse_u64(text, &n, e);
	else if (known[i].kind == DEVICE && o->policy.ndevices == POLICY_DEVICES)
		r = err_set(e, ERR_INVALID, -E2BIG, "at most %d", POLICY_DEVICES);
	else if (known[i].kind == DEVICE)
		o->policy.devices[o->policy.ndevices++] = text;
	else if (text[0] != '/')
		r = err_set(e, ERR_INVALID, -EINVAL, "'%s': must be an absolute path", text);
	else if (known[i].kind == PLACE)
		*(const char **)at = text;
	else if (o->policy.nmounts < POLICY_MOUNTS)
		o->policy.mounts[o->policy.nmounts++] = text;
	else
		r = err_set(e, ERR_INVALID, -E2BIG, "at most %d", POLICY_MOUNTS);
	if (r == 0 && n > UINT32_MAX)
		r = err_set(e, ERR_INVALID, -ERANGE, "%s: too large", text);
	if (known[i].kind == NUMBER)
		memcpy(at, &(uint32_t){ (uint32_t)n }, sizeof(uint32_t));
	return r < 0 ? err_wrap(e, r, "--%s", known[i].name) : 0;
}

static int parse(int argc, char **argv, struct options *o, struct err *e)
{
	struct option names[ARRAY_LEN(known) + 1] = { 0 };
	int at, c, r = 0;

	for (unsigned i = 0; i < ARRAY_LEN(known); i++)
		names[i] = (struct option){ known[i].name, known[i].kind == FLAG ? no_argument : required_argument,
					    NULL, 0 };
	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, "", names, &at)) != -1)
		r = c == 0 ? take(o, (unsigned)at, optarg, e) :
			     err_set(e, ERR_INVALID, -EINVAL, "option '%.60s': unknown, or its value is missing",
				     argv[optind - 1]);
	if (r == 0 && (optind < argc || o->server.sock < 0 || o->server.warden.env.accel > ENV_ACCEL_KVM ||
		       o->keep != (o->server.warden.env.state != NULL)))
		r = err_set(e, ERR_INVALID, -EINVAL,
			    "it is started by `cloche serve`, with --socket-fd, and --keep together with --state");
	return r;
}

/* Reads the keys at once: the descriptor is later closed with all others that are not needed. */
static int read_keys(const struct options *o, struct env_opts *v, struct err *e)
{
	ssize_t n = o->keys_fd ? pread((int)o->keys_fd, v->memory_key, sizeof(v->memory_key), 0) : 0;

	if (n < 0 || n % CRYPT_KEY || (o->keys_fd && !n))
		return err_set(e, ERR_INVALID, -EINVAL, "--memory-keys-fd: must contain keys of %u bytes", CRYPT_KEY);
	v->memory_keys = (unsigned)n / CRYPT_KEY;
	return 0;
}

/* Closes everything that the parent left open, and opens 0 to 2, so that no socket gets one of these numbers. */
static int tidy_fds(int keep, struct err *e)
{
	int fd, r = 0;

	do {
		fd = sys_openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
	} while (fd >= 0 && fd < 3);
	if (fd < 0)
		return err_sys(e, ERR_INTERNAL, fd, "open /dev/null");
	fd_close(fd);
	if (keep > 3)
		r = sys_close_range(3, (unsigned)keep - 1, 0);
	if (r == 0)
		r = sys_close_range(keep < 3 ? 3U : (unsigned)keep + 1, ~0U, 0);
	if (r == 0 && keep >= 0)
		r = sys_fcntl(keep, F_SETFD, FD_CLOEXEC);
	return r < 0 ? err_sys(e, ERR_INVALID, r, "descriptors") : 0;
}

static int open_stop(int sig, int other, struct err *e)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, sig);
	sigaddset(&set, other);
	/* Blocked in every thread; the agents unblock all signals for themselves. */
	sigprocmask(SIG_BLOCK, &set, NULL);
	/* An inherited "ignore" would make the kernel reap our children. */
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_sys(e, ERR_EXHAUSTED, -errno, "make a signalfd") : fd;
}

/*
 * A pidfd, since a "parent death signal" would be lost: changing ids clears it, and making a sandbox changes ids for a
 * moment.
 */
static int open_parent(pid_t pid, struct err *e)
{
	int fd = sys_pidfd_open(pid, 0);

	if (fd >= 0 && getppid() == pid)
		return fd;
	fd_close(fd);
	return err_set(e, ERR_LOST, -ESRCH, "--parent %d: not the parent process", pid);
}

static void raise_nofile(void)
{
	unsigned long long most = 1 << 20;
	struct rlimit l;

	/* A sandbox takes about five descriptors here. The limit of its execs is set for each of them. */
	fd_get_u64(AT_FDCWD, "/proc/sys/fs/nr_open", &most);
	if (sys_prlimit(RLIMIT_NOFILE, most, most) < 0 && getrlimit(RLIMIT_NOFILE, &l) == 0)
		sys_prlimit(RLIMIT_NOFILE, l.rlim_max, l.rlim_max);
	/*
	 * Makes the descriptor table large enough for hundreds of sandboxes before threads share it: a shared table
	 * grows by waiting for every processor, in the middle of a create.
	 */
	fd_close(sys_fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 8191));
}

static int run(struct options *o, struct err *e)
{
	const struct env_policy policy = policy_of(&o->policy);
	struct server_opts *so = &o->server;
	AUTO_CLOSE int stop = -1, stop_all = -1, parent = -1;
	int r;

	so->warden.tiers = tiers;
	so->warden.looker = &kernel_looker_process;
	so->warden.env.freezer = so->warden.env.accounting = so->warden.env.all_programs = true;
	so->warden.env.policy = &policy;
	r = read_keys(o, &so->warden.env, e);
	if (r == 0)
		r = tidy_fds(so->sock, e);
	if (r < 0)
		return r;
	umask(022);
	raise_nofile();
	r = so->stop = stop = open_stop(SIGTERM, SIGINT, e);
	if (r >= 0)
		r = so->stop_all = stop_all = open_stop(SIGUSR1, SIGUSR1, e);
	if (r >= 0 && o->parent)
		r = so->parent = parent = open_parent((pid_t)o->parent, e);
	if (r >= 0)
		r = privileges_drop(e);
	return r < 0 ? r : server_run(so, e);
}

int main(int argc, char **argv)
{
	struct options o = { .server = { .sock = -1,
					 .stop = -1,
					 .stop_all = -1,
					 .parent = -1,
					 .warden.pool = 8,
					 .warden.env.vm_ready = 1 } };
	struct err e = { 0 };
	int r;

#ifdef CLOCHE_FAULTS
	sys_test_parse(getenv("CLOCHE_FAULT_HOST"));
#endif
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("cloche-warden " CLOCHE_VERSION);
		return 0;
	}
	log_set_level(LOG_LEVEL_INFO); /* few messages, and steps that take a minute should be logged */
	r = parse(argc, argv, &o, &e);
	if (r == 0 && geteuid() != 0)
		r = err_set(&e, ERR_DENIED, -EPERM, "needs root");
	if (r == 0)
		r = run(&o, &e);
	if (r == 0)
		return 0;
	fprintf(stderr, "cloche-warden: %s%s%s\n", e.msg, e.remedy[0] ? "; " : "", e.remedy);
	return 1;
}
