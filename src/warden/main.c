/*
 * cloche-warden: the one program that stays root.
 *
 * Theory of operation. A daemon without any privilege asks over a SOCK_SEQPACKET socket; this program makes and ends
 * sandboxes and hands out descriptors: the socket of a sandbox's agent and the pidfd of its first process. It reads
 * fixed-size structs (warden/msg.h) and nothing else: no JSON, no HTTP, no archives, no configuration file. The daemon
 * is assumed to be in somebody else's hands: what may be mounted is said by root on the command line.
 *
 * One thread serves; two more belong to the pool, one that makes blanks ahead and one that cleans up behind. All have
 * given up every privilege that making a sandbox does not take (warden/privileges.h) before the first byte is read.
 * Its children are the agents. Connections come and go, sandboxes stay; SIGTERM ends all of them and cleans up. With
 * --keep they outlive even this program, however it ends: the next one finds them by their records (engine/blank/persist.h).
 * SIGUSR1 ends all of them, kept or not, and then this program.
 */
#include "base/base.h"
#include "base/log.h"
#include "base/str.h"
#include "base/sys.h"
#include "config.h"
#include "engine/program.h"
#include "vm/host/tier.h"
#include "warden/policy.h"
#include "warden/privileges.h"
#include "warden/server.h"

#include <getopt.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct options {
	int socket_fd; /* -1: none */
	const char *listen;
	struct policy policy;
	uint64_t pool, uid;
	uint64_t parent; /* 0: none */
	const char *state, *layers, *disks, *vm;
	uint64_t vm_ready, sockets, tenant_share;
	enum env_accel accel;
	bool keep, no_share;
	const char *agent;
	bool help;
	unsigned memory_keys;
	uint8_t memory_key[CRYPT_KEYS_MAX][CRYPT_KEY];
};

static void usage(FILE *to)
{
	fputs("usage: cloche-warden --socket-fd N | --listen PATH [options]\n"
	      "\n"
	      "  --socket-fd N      serve this SOCK_SEQPACKET socket (connected, or listening)\n"
	      "  --listen PATH      make a socket there, mode 0600\n"
	      "  --uid UID          owner of that socket, may connect besides root\n"
	      "  --images DIR       each folder in it is an image; without it there is only `host`\n"
	      "  --allow-mount DIR  sandboxes may mount this folder and those in it (repeatable)\n"
	      "  --pool N           sandboxes to keep ready, 1 to 1024 (8)\n"
	      "  --keep             sandboxes continue when this program ends; needs --state\n"
	      "  --state DIR        folder for records of kept sandboxes, writable by root only\n"
	      "  --layers DIR       folder for sealed layers, accessible to root only\n"
	      "  --vm DIR           folder for templates of virtual machines, accessible to root only\n"
	      "  --vm-ready N       virtual machines to keep ready for each template in use, 0 to 64 (1)\n"
	      "  --vm-accel HOW     auto (KVM where it works), tcg or kvm\n"
	      "  --sockets N        internet sockets of a sandbox, up to 65536; 0: by its memory (0)\n"
	      "  --tenant-share N   limit of a tenant's sandboxes, in percent of the host's pools, 1 to 100 (50)\n"
	      "  --no-share         do not share memory between sandboxes from one memory image\n"
	      "  --parent PID       end when this process, the parent, has ended\n"
	      "  --agent PATH       the agent's program (beside this one)\n"
	      "  --version, --help\n",
	      to);
}

static int parse_number(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct err *e)
{
	uint64_t v;
	int r = parse_u64(text, &v, e);

	if (r == 0 && (v < min || v > max))
		r = err_set(e, ERR_INVALID, -ERANGE, "'%s' must be between %llu and %llu", text,
			    (unsigned long long)min, (unsigned long long)max);
	if (r < 0)
		return err_wrap(e, r, "--%s", name);
	*ret = v;
	return 0;
}

static int parse_folder(const char *name, const char *text, const char **ret, struct err *e)
{
	struct stat st;

	if (text[0] != '/')
		return err_set(e, ERR_INVALID, -EINVAL, "--%s '%s': must be an absolute path", name, text);
	if (stat(text, &st) < 0)
		return err_sys(e, ERR_NOT_FOUND, -errno, "--%s '%s'", name, text);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_INVALID, -ENOTDIR, "--%s '%s': not a folder", name, text);
	*ret = text;
	return 0;
}

static int add_mount(struct options *o, const char *text, struct err *e)
{
	int r;

	if (o->policy.nmounts == POLICY_MOUNTS)
		return err_set(e, ERR_INVALID, -E2BIG, "--allow-mount: at most %d", POLICY_MOUNTS);
	r = parse_folder("allow-mount", text, &o->policy.mounts[o->policy.nmounts], e);
	o->policy.nmounts += r == 0;
	return r;
}

static int parse_accel(const char *text, enum env_accel *ret, struct err *e)
{
	static const char *const names[] = { [ENV_ACCEL_AUTO] = "auto", [ENV_ACCEL_TCG] = "tcg", [ENV_ACCEL_KVM] = "kvm" };

	for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
		if (strcmp(names[i], text))
			continue;
		*ret = (enum env_accel)i;
		return 0;
	}
	return err_set(e, ERR_INVALID, -EINVAL, "--vm-accel '%.60s': must be auto, tcg or kvm", text);
}

/* Here and now: the descriptor is closed with all others that are not ours. */
static int read_keys(int fd, struct options *o, struct err *e)
{
	ssize_t n = pread(fd, o->memory_key, sizeof(o->memory_key), 0);

	if (n <= 0 || n % CRYPT_KEY)
		return err_set(e, ERR_INVALID, -EINVAL, "--memory-keys-fd: must contain keys of %u bytes", CRYPT_KEY);
	o->memory_keys = (unsigned)n / CRYPT_KEY;
	return 0;
}

static int parse(int argc, char **argv, struct options *o, struct err *e)
{
	static const struct option known[] = {
		{ "socket-fd", required_argument, NULL, 's' }, { "listen", required_argument, NULL, 'l' },
		{ "uid", required_argument, NULL, 'u' },       { "images", required_argument, NULL, 'i' },
		{ "allow-mount", required_argument, NULL, 'm' }, { "pool", required_argument, NULL, 'p' },
		{ "agent", required_argument, NULL, 'a' },     { "help", no_argument, NULL, 'h' },
		{ "keep", no_argument, NULL, 'k' },	       { "state", required_argument, NULL, 't' },
		{ "parent", required_argument, NULL, 'P' },    { "layers", required_argument, NULL, 'L' },
		{ "vm", required_argument, NULL, 'v' },	       { "vm-ready", required_argument, NULL, 'r' },
		{ "vm-accel", required_argument, NULL, 'A' }, { "disks", required_argument, NULL, 'd' },
		{ "no-share", no_argument, NULL, 'n' },      { "sockets", required_argument, NULL, 'S' },
		{ "tenant-share", required_argument, NULL, 'T' },
		{ "memory-keys-fd", required_argument, NULL, 'K' },
		{ NULL, 0, NULL, 0 },
	};
	uint64_t fd;
	int c, r = 0;

	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (c == 's' && (r = parse_number("socket-fd", optarg, 0, 1 << 20, &fd, e)) == 0)
			o->socket_fd = (int)fd;
		else if (c == 'l')
			o->listen = optarg;
		else if (c == 'u')
			r = parse_number("uid", optarg, 0, UINT32_MAX - 1, &o->uid, e);
		else if (c == 'i')
			r = parse_folder("images", optarg, &o->policy.images, e);
		else if (c == 'm')
			r = add_mount(o, optarg, e);
		else if (c == 'p')
			r = parse_number("pool", optarg, 1, 1024, &o->pool, e);
		else if (c == 'a')
			o->agent = optarg;
		else if (c == 'k')
			o->keep = true;
		else if (c == 'n')
			o->no_share = true;
		else if (c == 'K' && (r = parse_number("memory-keys-fd", optarg, 0, 1 << 20, &fd, e)) == 0)
			r = read_keys((int)fd, o, e);
		else if (c == 't')
			o->state = optarg;
		else if (c == 'L')
			o->layers = optarg;
		else if (c == 'd')
			o->disks = optarg;
		else if (c == 'v')
			o->vm = optarg;
		else if (c == 'r')
			r = parse_number("vm-ready", optarg, 0, 64, &o->vm_ready, e);
		else if (c == 'S')
			r = parse_number("sockets", optarg, 0, 65536, &o->sockets, e);
		else if (c == 'T')
			r = parse_number("tenant-share", optarg, 1, 100, &o->tenant_share, e);
		else if (c == 'A')
			r = parse_accel(optarg, &o->accel, e);
		else if (c == 'P')
			r = parse_number("parent", optarg, 1, INT32_MAX, &o->parent, e);
		else if (c == 'h')
			o->help = true;
		else if (c == '?')
			r = err_set(e, ERR_INVALID, -EINVAL, "option '%.60s': unknown, or its value is missing",
				    argv[optind - 1]);
	}
	if (r < 0 || o->help)
		return r;
	if (optind < argc)
		return err_set(e, ERR_INVALID, -EINVAL, "unexpected argument '%.60s'", argv[optind]);
	if ((o->socket_fd >= 0) == (o->listen != NULL))
		return err_set(e, ERR_INVALID, -EINVAL, "one of --socket-fd and --listen is required");
	if (o->keep != (o->state != NULL))
		return err_set(e, ERR_INVALID, -EINVAL, "--keep and --state must be used together");
	if (o->state && o->state[0] != '/')
		return err_set(e, ERR_INVALID, -EINVAL, "--state '%s': must be an absolute path", o->state);
	if (o->layers && o->layers[0] != '/')
		return err_set(e, ERR_INVALID, -EINVAL, "--layers '%s': must be an absolute path", o->layers);
	if (o->disks && o->disks[0] != '/')
		return err_set(e, ERR_INVALID, -EINVAL, "--disks '%s': must be an absolute path", o->disks);
	if (o->vm && o->vm[0] != '/')
		return err_set(e, ERR_INVALID, -EINVAL, "--vm '%s': must be an absolute path", o->vm);
	return 0;
}

/* Nothing that was left open by who started us; and 0 to 2 are taken, so that no socket of ours lands there. */
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

/* A socket nobody listens on any more may be replaced; one in use, or any other file, may not. */
static int clear_place(const struct sockaddr_un *a, struct err *e)
{
	AUTO_CLOSE int probe = -1;
	struct stat st;

	if (lstat(a->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : err_sys(e, ERR_INVALID, -errno, "--listen '%s'", a->sun_path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_CONFLICT, -EEXIST, "--listen '%s': the path exists and is not a socket",
			       a->sun_path);
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (probe < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	if (connect(probe, (const struct sockaddr *)a, sizeof(*a)) == 0 || errno != ECONNREFUSED)
		return err_set(e, ERR_CONFLICT, -EADDRINUSE, "--listen '%s': another warden listens there",
			       a->sun_path);
	return unlink(a->sun_path) < 0 ? err_sys(e, ERR_INVALID, -errno, "--listen '%s'", a->sun_path) : 0;
}

static int open_listener(const struct options *o, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	AUTO_CLOSE int fd = -1;
	mode_t old;
	int r;

	if (o->listen[0] != '/' || strlen(o->listen) >= sizeof(a.sun_path))
		return err_set(e, ERR_INVALID, -EINVAL, "--listen '%s': must be an absolute path below %zu bytes",
			       o->listen, sizeof(a.sun_path));
	memcpy(a.sun_path, o->listen, strlen(o->listen));
	r = clear_place(&a, e);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	old = umask(0177);
	r = bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
	umask(old);
	if (r == 0)
		r = sys_fchownat(AT_FDCWD, a.sun_path, (uid_t)o->uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW);
	if (r == 0 && listen(fd, 16) < 0)
		r = -errno;
	return r < 0 ? err_sys(e, ERR_INVALID, r, "--listen '%s'", o->listen) : TAKE_FD(fd);
}

static int open_stop(int sig, int other, struct err *e)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, sig);
	sigaddset(&set, other);
	/* Blocked in every thread; the agents unblock all for themselves. */
	sigprocmask(SIG_BLOCK, &set, NULL);
	/* An inherited "ignore" would make the kernel reap our children. */
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_sys(e, ERR_EXHAUSTED, -errno, "make a signalfd") : fd;
}

/* A "parent death signal" would be lost: changing ids clears it, and every sandbox made changes ids for a moment. */
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

	/* A sandbox is some five descriptors here. What its execs may open is set for each of them. */
	fd_get_u64(AT_FDCWD, "/proc/sys/fs/nr_open", &most);
	if (sys_prlimit(RLIMIT_NOFILE, most, most) < 0 && getrlimit(RLIMIT_NOFILE, &l) == 0)
		sys_prlimit(RLIMIT_NOFILE, l.rlim_max, l.rlim_max);
	/*
	 * Room for hundreds of sandboxes before threads share the table: a shared one grows by waiting for every
	 * processor, in the middle of a create.
	 */
	fd_close(sys_fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 8191));
}

static int run(const struct options *o, struct err *e)
{
	struct env_policy policy = policy_of(&o->policy);
	struct server_opts so = {
		.sock = o->socket_fd, .uid = (uid_t)o->uid, .stop = -1, .stop_all = -1, .parent = -1
	};
	AUTO_CLOSE int stop = -1, stop_all = -1, parent = -1, listener = -1;
	char agent[512], dump[512];
	int r;

	so.warden.tiers = host_tiers;
	so.warden.pool = (unsigned)o->pool;
	so.warden.env.freezer = true;
	so.warden.env.accounting = true;
	so.warden.env.policy = &policy;
	so.warden.env.no_share = o->no_share;
	so.warden.env.state = o->state;
	so.warden.env.layers = o->layers;
	so.warden.env.memory_keys = o->memory_keys;
	memcpy(so.warden.env.memory_key, o->memory_key, sizeof(o->memory_key));
	so.warden.env.disks = o->disks;
	so.warden.env.vm = o->vm;
	so.warden.env.vm_ready = (unsigned)o->vm_ready;
	so.warden.sockets = (unsigned)o->sockets;
	so.warden.tenant_share = (unsigned)o->tenant_share;
	so.warden.env.accel = o->accel;
	so.warden.env.agent = o->agent ? o->agent : agent;
	r = tidy_fds(o->socket_fd, e);
	if (r == 0 && !o->agent)
		r = program_path("cloche-agent", agent, sizeof(agent), e);
	if (r < 0)
		return r;
	if (program_path("cloche-dump", dump, sizeof(dump), NULL) == 0)
		so.warden.env.dump = dump;
	umask(022);
	raise_nofile();
	so.stop = stop = open_stop(SIGTERM, SIGINT, e);
	if (stop < 0)
		return stop;
	so.stop_all = stop_all = open_stop(SIGUSR1, SIGUSR1, e);
	if (stop_all < 0)
		return stop_all;
	if (o->parent) {
		so.parent = parent = open_parent((pid_t)o->parent, e);
		if (parent < 0)
			return parent;
	}
	if (o->listen) {
		so.sock = listener = open_listener(o, e);
		if (listener < 0)
			return listener;
	}
	r = privileges_drop(e);
	if (r == 0)
		r = server_run(&so, e);
	if (listener >= 0)
		unlink(o->listen);
	return r;
}

int main(int argc, char **argv)
{
	struct options o = { .socket_fd = -1, .pool = 8, .vm_ready = 1 };
	struct err e = { 0 };
	int r;

#ifdef CLOCHE_FAULTS
	sys_test_parse(getenv("CLOCHE_FAULT_HOST"));
#endif
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("cloche-warden " CLOCHE_VERSION);
		return 0;
	}
	log_set_level(LOG_LEVEL_INFO); /* there is little, and what takes a minute should be told */
	r = parse(argc, argv, &o, &e);
	if (r == 0 && o.help) {
		usage(stdout);
		return 0;
	}
	if (r == 0 && geteuid() != 0)
		r = err_set(&e, ERR_DENIED, -EPERM, "needs root");
	if (r == 0)
		r = run(&o, &e);
	if (r == 0)
		return 0;
	fprintf(stderr, "cloche-warden: %s%s%s\n", e.msg, e.remedy[0] ? "; " : "", e.remedy);
	return 1;
}
