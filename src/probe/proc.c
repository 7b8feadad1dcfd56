/* Processes: pid 1, the host's, and what this one was allowed to keep. */
#include "probe/probe.h"
#include "base/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define STATUS "/proc/self/status"
#define NR_PIDFD_GETFD 438
#define NR_PROCESS_MADVISE 440

/*
 * What root of a sandbox may keep: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE,
 * SETFCAP. Written out here again on purpose: a probe that shared the engine's list would agree with its mistakes.
 */
#define ROOT_MAY_KEEP                                                                                                  \
	((1ULL << 0) | (1ULL << 1) | (1ULL << 3) | (1ULL << 4) | (1ULL << 5) | (1ULL << 6) | (1ULL << 7) |             \
	 (1ULL << 10) | (1ULL << 31))

static enum verdict kill_init(struct probe_run *p)
{
	static const int signals[] = { SIGHUP,	SIGINT,	 SIGQUIT, SIGILL,  SIGABRT, SIGBUS,  SIGFPE,
				       SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGTSTP,
				       SIGTTIN, SIGXCPU, SIGSYS,  SIGSTOP, SIGKILL };
	const struct timespec moment = { .tv_nsec = 50 * 1000 * 1000 };
	unsigned sent = 0;
	char stat[256], *state;
	ssize_t n;
	int fd;

	if (probe_in_host_pidns())
		return probe_end(p, probe_reached(p, "a signal to the machine's pid 1", kill(1, 0) < 0 ? -errno : 0),
				 "refused");
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		sent += kill(1, signals[i]) == 0;
	nanosleep(&moment, NULL);
	/* When pid 1 dies, so do we: to get here at all is most of the answer. */
	fd = open("/proc/1/stat", O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, stat, sizeof(stat) - 1);
	fd_close(fd);
	if (n > 0) {
		stat[n] = '\0';
		state = strrchr(stat, ')');
		if (state && (state[2] == 'T' || state[2] == 't' || state[2] == 'Z')) {
			probe_say(p, "pid 1 is in state %c after %u signals", state[2], sent);
			kill(1, SIGCONT);
			return PROBE_OPEN;
		}
	}
	return probe_end(p, false, sent ? "signals are taken and ignored" : "every signal refused");
}

static enum verdict trace_init(struct probe_run *p)
{
	bool hole = false;

	if (probe_call(SYS_ptrace, (long)PTRACE_SEIZE, 1L, 0UL, 0UL) >= 0) {
		probe_say(p, "seized; ");
		hole = true;
	} else if (!probe_in_host_pidns() && probe_call(SYS_ptrace, (long)PTRACE_ATTACH, 1L, 0UL, 0UL) >= 0) {
		waitpid(1, NULL, __WALL);
		probe_call(SYS_ptrace, (long)PTRACE_DETACH, 1L, 0UL, 0UL);
		probe_say(p, "attached; ");
		hole = true;
	}
	return probe_end(p, hole, "refused");
}

static bool readable(struct probe_run *p, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char c;
	bool yes = fd >= 0 && read(fd, &c, 1) == 1;

	fd_close(fd);
	if (yes)
		probe_say(p, "%s ", path);
	return yes;
}

static enum verdict read_init(struct probe_run *p)
{
	static const char *const secret[] = { "/proc/1/environ",    "/proc/1/maps",	   "/proc/1/smaps",
					      "/proc/1/auxv",	    "/proc/1/stack",	   "/proc/1/syscall",
					      "/proc/1/io",	    "/proc/1/personality", "/proc/1/task/1/environ",
					      "/proc/1/task/1/maps" };
	char buf[8];
	struct iovec mine = { buf, sizeof(buf) }, theirs = { (void *)0x400000, sizeof(buf) };
	bool hole = false;
	long r;
	int fd;

	for (size_t i = 0; i < ARRAY_LEN(secret); i++)
		hole |= readable(p, secret[i]);
	fd = open("/proc/1/mem", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		probe_say(p, "/proc/1/mem ");
		hole = true;
		close(fd);
	}
	r = probe_call(SYS_process_vm_readv, 1L, &mine, 1UL, &theirs, 1UL, 0UL);
	hole |= probe_reached(p, "process_vm_readv", r);
	r = probe_call(SYS_process_vm_writev, 1L, &mine, 1UL, &(struct iovec){ (void *)8, 8 }, 1UL, 0UL);
	hole |= probe_reached(p, "process_vm_writev", r);
	return probe_end(p, hole, "memory, environment and maps are closed");
}

static enum verdict links_init(struct probe_run *p)
{
	static const char *const links[] = {
		"root", "cwd", "exe", "ns/mnt", "ns/user", "ns/net", "fd/0", "fd/1", "fd/3"
	};
	char path[64], target[200];
	bool hole = false;
	DIR *d;

	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		snprintf(path, sizeof(path), "/proc/1/%s", links[i]);
		if (readlink(path, target, sizeof(target)) < 0)
			continue;
		probe_say(p, "%s ", path);
		hole = true;
	}
	d = opendir("/proc/1/fd");
	if (d) {
		probe_say(p, "list of its descriptors ");
		hole = true;
		closedir(d);
	}
	return probe_end(p, hole, "none resolves");
}

static enum verdict files_init(struct probe_run *p)
{
	static const char *const files[] = {
		"oom_score_adj", "oom_adj", "coredump_filter", "clear_refs", "uid_map",	       "gid_map", "setgroups",
		"loginuid",	 "comm",    "autogroup",       "sched",	     "timens_offsets", "mem"
	};
	bool hole = false;
	int slack;

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		char path[64];
		int fd;

		snprintf(path, sizeof(path), "/proc/1/%s", files[i]);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		probe_say(p, "%s ", path);
		hole = true;
		close(fd);
	}
	/* Any user may open this file; the kernel checks the write. 50 us is the initial value of every process. */
	slack = open("/proc/1/timerslack_ns", O_WRONLY | O_CLOEXEC);
	if (slack >= 0 && write(slack, "50000", 5) == 5) {
		probe_say(p, "/proc/1/timerslack_ns ");
		hole = true;
	}
	fd_close(slack);
	return probe_end(p, hole, "none opens for writing");
}

static enum verdict steal_init(struct probe_run *p)
{
	long pidfd = probe_call(SYS_pidfd_open, 1UL, 0UL);
	bool hole = false;

	if (pidfd < 0)
		return probe_end(p, false, "no pidfd of pid 1");
	for (unsigned long fd = 0; fd < 16; fd++) {
		long r = probe_call(NR_PIDFD_GETFD, pidfd, fd, 0UL);

		if (r < 0)
			continue;
		probe_say(p, "descriptor %lu; ", fd);
		hole = true;
	}
	if (probe_call(SYS_kcmp, 1L, 1L, 0UL, 0UL, 0UL) >= 0) {
		probe_say(p, "kcmp; ");
		hole = true;
	}
	return probe_end(p, hole, "refused");
}

/* Sandbox root shares pid 1's uid, so classic Unix lets it do these: it harms only its own sandbox. */
static enum verdict tune_init(struct probe_run *p)
{
	struct rlimit rl;
	bool limits = prlimit(1, RLIMIT_NOFILE, NULL, &rl) == 0;
	int nice = getpriority(PRIO_PROCESS, 1);
	bool prio = setpriority(PRIO_PROCESS, 1, nice) == 0;

	probe_say(p, "limits of pid 1 %s, its priority %s", limits ? "can be set" : "closed",
		  prio ? "can be set" : "closed");
	if (!limits && !prio)
		return PROBE_CLOSED;
	return getuid() == 0 ? PROBE_INFO : PROBE_OPEN;
}

static enum verdict oom_self(struct probe_run *p)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, "-900", 4);

	fd_close(fd);
	if (n == 4)
		probe_say(p, "set to -900: the kernel would kill the host's processes first");
	return probe_end(p, n == 4, "refused");
}

static enum verdict host_processes(struct probe_run *p)
{
	DIR *d = opendir("/proc");
	unsigned n = 0, kernel = 0;
	struct dirent *e;

	if (!d)
		return probe_end(p, false, "no /proc");
	while ((e = readdir(d))) {
		char path[300], stat[512];
		ssize_t len;
		int fd;

		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		n++;
		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		len = fd < 0 ? 0 : read(fd, stat, sizeof(stat) - 1);
		fd_close(fd);
		stat[len > 0 ? len : 0] = '\0';
		kernel += strstr(stat, "(kthreadd)") != NULL || strstr(stat, "(ksoftirqd/") != NULL;
	}
	closedir(d);
	probe_say(p, "%u processes visible, %u of the kernel", n, kernel);
	return kernel || probe_in_host_pidns() ? PROBE_OPEN : PROBE_CLOSED;
}

/* The first namespace of these kinds has a number that is part of the kernel's interface. */
static enum verdict own_namespaces(struct probe_run *p)
{
	static const struct {
		const char *kind;
		unsigned ino;
	} first[] = { { "ipc", 0xEFFFFFFFU }, { "uts", 0xEFFFFFFEU },	 { "user", 0xEFFFFFFDU },
		      { "pid", 0xEFFFFFFCU }, { "cgroup", 0xEFFFFFFBU }, { "time", 0xEFFFFFFAU },
		      { "net", 0xEFFFFFF9U }, { "mnt", 0xEFFFFFF8U } };
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(first); i++) {
		char path[64], link[64], want[64];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/ns/%s", first[i].kind);
		snprintf(want, sizeof(want), "%s:[%u]", first[i].kind, first[i].ino);
		n = readlink(path, link, sizeof(link) - 1);
		if (n < 0)
			continue;
		link[n] = '\0';
		if (!strcmp(link, want)) {
			probe_say(p, "%s ", first[i].kind);
			hole = true;
		}
	}
	return probe_end(p, hole, "none is the machine's");
}

static enum verdict sysv_ipc(struct probe_run *p)
{
	static const char *const tables[] = { "/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg" };
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		FILE *f = fopen(tables[i], "re");
		int lines = 0;
		char line[512];

		while (f && fgets(line, sizeof(line), f))
			lines++;
		if (f)
			fclose(f);
		if (lines > 1) {
			probe_say(p, "%s has %d entries ", tables[i], lines - 1);
			hole = true;
		}
	}
	return probe_end(p, hole, "none in sight");
}

static enum verdict no_new_privs(struct probe_run *p)
{
	long long v = probe_field(STATUS, "NoNewPrivs", 10);

	probe_say(p, "NoNewPrivs is %lld", v);
	return v == 1 ? PROBE_CLOSED : PROBE_OPEN;
}

static enum verdict filter_on(struct probe_run *p)
{
	long long mode = probe_field(STATUS, "Seccomp", 10), n = probe_field(STATUS, "Seccomp_filters", 10);

	probe_say(p, "mode %lld, %lld filters", mode, n);
	return mode == 2 ? PROBE_CLOSED : PROBE_OPEN;
}

static enum verdict capabilities(struct probe_run *p)
{
	static const char *const sets[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" };
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		uint64_t have = (uint64_t)probe_field(STATUS, sets[i], 16);
		/* The bounding set of an ordinary user may name what root keeps: it cannot be used. */
		uint64_t may = getuid() == 0 || !strcmp(sets[i], "CapBnd") ? ROOT_MAY_KEEP : 0;

		probe_say(p, "%s %llx ", sets[i], (unsigned long long)have);
		hole |= (have & ~may) != 0;
	}
	return hole ? PROBE_OPEN : PROBE_CLOSED;
}

static enum verdict user_map(struct probe_run *p)
{
	static const char *const maps[] = { "/proc/self/uid_map", "/proc/self/gid_map" };
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(maps); i++) {
		unsigned long in, out, n;
		FILE *f = fopen(maps[i], "re");
		char line[128];

		if (!f) {
			probe_say(p, "%s does not exist; ", maps[i]);
			continue;
		}
		while (fgets(line, sizeof(line), f)) {
			char *s = line;

			in = strtoul(s, &s, 10);
			out = strtoul(s, &s, 10);
			n = strtoul(s, &s, 10);
			probe_say(p, "%lu is %lu (%lu); ", in, out, n);
			hole |= out == 0;
		}
		fclose(f);
	}
	return hole ? PROBE_OPEN : PROBE_CLOSED;
}

static enum verdict become_root(struct probe_run *p)
{
	bool hole = false;

	if (getuid() == 0) {
		/* Already root of this namespace: then every other identity must be one of this sandbox's. */
		hole = probe_reached(p, "an unmapped uid",
				     setresuid((uid_t)-1, 0x7ffffff0U, (uid_t)-1) < 0 && errno == EINVAL ? -EPERM : 0);
		return probe_end(p, hole, "root of its own namespace; ids outside it do not exist");
	}
	/* EINVAL is as good a refusal: that id does not exist here. */
	hole |= setuid(0) == 0 || setresuid(0, 0, 0) == 0 || setgid(0) == 0 || setegid(0) == 0;
	if (hole)
		probe_say(p, "became uid %d, gid %d; ", (int)geteuid(), (int)getegid());
	hole |= probe_reached(p, "setgroups", probe_call(SYS_setgroups, 1UL, &(gid_t){ 0 }));
	return probe_end(p, hole, "refused");
}

static enum verdict terminal(struct probe_run *p)
{
	int m = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), s = -1, fds[2];
	char name[64], c = '\n';
	bool hole;
	long r;

	/* A filter sees the request before the kernel sees the descriptor: ENOTTY on a pipe says it got through. */
	if (pipe2(fds, O_CLOEXEC) < 0)
		return probe_end(p, false, "no pipe");
	r = probe_call(SYS_ioctl, (long)fds[0], (unsigned long)TIOCSTI, &c);
	hole = probe_reached(p, "TIOCSTI", r);
	/* The kernel looks at 32 bits of the request only; a filter that compares 64 is fooled. */
	r = probe_call(SYS_ioctl, (long)fds[0], (unsigned long)TIOCSTI | (1UL << 32), &c);
	hole |= probe_reached(p, "TIOCSTI with high bits", r);
	r = probe_call(SYS_ioctl, (long)fds[0], (unsigned long)TIOCLINUX, &c);
	hole |= probe_reached(p, "TIOCLINUX", r);
	if (m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0 && ptsname_r(m, name, sizeof(name)) == 0)
		s = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (s >= 0) {
		setsid();
		ioctl(s, TIOCSCTTY, 0);
		if (ioctl(s, TIOCSTI, &c) == 0) {
			probe_say(p, "typed into a terminal; ");
			hole = true;
		}
	}
	return probe_end(p, hole, "refused");
}

static enum verdict core_dumps(struct probe_run *p)
{
	struct rlimit rl = { 0, 0 };

	getrlimit(RLIMIT_CORE, &rl);
	probe_say(p, "hard limit %llu", (unsigned long long)rl.rlim_max);
	return rl.rlim_max == 0 ? PROBE_CLOSED : PROBE_OPEN;
}

static enum verdict environment(struct probe_run *p)
{
	/* doctor --attack puts this into the environment of `cloche run`; it must not come through. */
	const char *v = getenv("CLOCHE_ATTACK_SECRET");

	if (v)
		probe_say(p, "the caller's environment is visible");
	return probe_end(p, v != NULL, "nothing of the caller's");
}

static enum verdict layout(struct probe_run *p)
{
	long r = probe_call(SYS_personality, (unsigned long)ADDR_NO_RANDOMIZE);

	probe_say(p, "switching address randomization off is %s", r < 0 ? "refused" : "allowed");
	return PROBE_INFO;
}

static enum verdict trace_child(struct probe_run *p)
{
	pid_t pid = fork();
	int status;
	long r;

	if (pid == 0) {
		pause();
		_exit(0);
	}
	r = probe_call(SYS_ptrace, (long)PTRACE_SEIZE, (long)pid, 0UL, 0UL);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	probe_say(p, "tracing an own child is %s", r < 0 ? "refused" : "allowed");
	return PROBE_INFO;
}

static enum verdict memory_exec(struct probe_run *p)
{
	long fd = probe_call(SYS_memfd_create, "probe", 1UL);
	void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	probe_say(p, "memfd %s, writable and executable memory %s", fd < 0 ? "refused" : "allowed",
		  m == MAP_FAILED ? "refused" : "allowed");
	return PROBE_INFO;
}

static const struct probe probes[] = {
	{ "R01", "pid 1 cannot be killed or stopped", "the sandbox's own supervisor", kill_init, 0, 0 },
	{ "R02", "pid 1 cannot be traced", "CVE-2019-13272", trace_init, 0, 0 },
	{ "R03", "pid 1 cannot be read", "CVE-2016-9962; secrets in its environment", read_init, 0, 0 },
	{ "R04", "no link of pid 1 resolves", "CVE-2019-5736 by /proc/1/exe; root, cwd, fd", links_init, 0, 0 },
	{ "R05", "no file of pid 1 is writable", "oom_score_adj, uid_map", files_init, 0, 0 },
	{ "R06", "no descriptor of pid 1 can be taken", "pidfd_getfd", steal_init, 0, 0 },
	{ "R07", "pid 1 keeps its limits and priority", "starving the supervisor", tune_init, 0, 0 },
	{ "R08", "no protection from the OOM killer can be taken", "oom_score_adj", oom_self, 0, 0 },
	{ "R09", "no process of the host is visible", "pid namespace", host_processes, 0, 0 },
	{ "R10", "no namespace is the machine's own", "a namespace that was forgotten", own_namespaces, 0, 0 },
	{ "R11", "no System V IPC of the host is visible", "ipc namespace", sysv_ipc, 0, 0 },
	{ "R12", "no_new_privs is on", "CVE-2021-4034", no_new_privs, 0, 0 },
	{ "R13", "a system call filter is on", "a filter that was not installed", filter_on, 0, 0 },
	{ "R14", "no capability beyond what is promised", "all five sets", capabilities, 0, 0 },
	{ "R15", "no id of the sandbox is the host's root", "user namespace", user_map, 0, 0 },
	{ "R16", "no change to another user of the host", "setuid, setgroups", become_root, 0, 0 },
	{ "R17", "no typing into the terminal", "CVE-2017-5226, CVE-2016-2779, CVE-2019-10063", terminal, 0, 0 },
	{ "R18", "no core dumps", "the host's core_pattern handler", core_dumps, 0, 0 },
	{ "R19", "nothing of the caller's environment", "tokens in variables", environment, 0, 0 },
	{ "R20", "address randomization", "policy, not an escape", layout, 0, 0 },
	{ "R21", "tracing of own children", "policy, not an escape", trace_child, 0, 0 },
	{ "R22", "code made in memory", "policy, not an escape", memory_exec, 0, 0 },
};
const struct probe_set probes_proc = { probes, ARRAY_LEN(probes) };
