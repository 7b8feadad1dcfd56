/*
 * Limits: that they cannot be lifted from inside, and bombs that run into each of them. A bomb stops by itself at a
 * bound (--mib, --pids): reaching the bound is what "open" means.
 */
#include "probe/probe.h"
#include "base/base.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define MEG (1UL << 20)

static enum verdict raise_limits(struct probe_run *p)
{
	bool hole = false;

	for (int r = 0; r < (int)RLIM_NLIMITS; r++) {
		struct rlimit rl;

		if (getrlimit((__typeof__(RLIMIT_CORE))r, &rl) < 0 || rl.rlim_max == RLIM_INFINITY)
			continue;
		rl.rlim_max++;
		if (setrlimit((__typeof__(RLIMIT_CORE))r, &rl) == 0) {
			probe_say(p, "limit %d; ", r);
			hole = true;
		}
	}
	return probe_end(p, hole, "no hard limit can be raised");
}

static enum verdict realtime(struct probe_run *p)
{
	static const int policies[] = { SCHED_FIFO, SCHED_RR };
	struct sched_param sp = { .sched_priority = 1 };
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
		/* The raw call: libc may not offer it. */
		if (probe_call(SYS_sched_setscheduler, 0L, (long)policies[i], &sp) < 0)
			continue;
		probe_say(p, "policy %d; ", policies[i]);
		hole = true;
	}
	return probe_end(p, hole, "refused");
}

static enum verdict priority(struct probe_run *p)
{
	int before = getpriority(PRIO_PROCESS, 0);
	bool hole = setpriority(PRIO_PROCESS, 0, before - 1) == 0;

	if (hole)
		probe_say(p, "went from %d to %d", before, before - 1);
	return probe_end(p, hole, "refused");
}

static enum verdict io_priority(struct probe_run *p)
{
	/* Class 1 is real time. */
	long r = probe_call(SYS_ioprio_set, 1UL, 0UL, (1UL << 13) | 0UL);

	if (r >= 0)
		probe_say(p, "real-time I/O granted");
	return probe_end(p, r >= 0, "refused");
}

/* Huge pages come from the machine's pool, which the memory limit does not count. */
static enum verdict huge_pages(struct probe_run *p)
{
	void *m = mmap(NULL, 2 * MEG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (m != MAP_FAILED)
		probe_say(p, "one taken from the machine's pool");
	return probe_end(p, m != MAP_FAILED, "none to be had");
}

static enum verdict locked_memory(struct probe_run *p)
{
	struct rlimit rl = { 0, 0 };

	getrlimit(RLIMIT_MEMLOCK, &rl);
	probe_say(p, "limit %llu bytes", (unsigned long long)rl.rlim_max);
	return PROBE_INFO;
}

/* Kernel memory that no limit counts: access lists, NUMA policies, programs and keys at sockets. */
static enum verdict uncounted_memory(struct probe_run *p)
{
	static const struct {
		const char *name;
		int level, option;
	} options[] = { { "SO_ATTACH_FILTER", SOL_SOCKET, 26 },
			{ "SO_ATTACH_REUSEPORT_CBPF", SOL_SOCKET, 51 },
			{ "TCP_MD5SIG", 6, 14 } };
	static const char *const folders[] = { "/tmp", "/dev/shm" };
	static struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} e[200];
	} list = { .version = 2 };
	struct {
		uint16_t code;
		uint8_t jt, jf;
		uint32_t k;
	} code = { 6, 0, 0, 9 };
	struct {
		uint16_t len;
		void *code;
	} prog = { 1, &code };
	unsigned char key[216] = { 2 /* AF_INET */ };
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long node = 1;
	bool hole = false;

	for (unsigned i = 0; i < ARRAY_LEN(list.e); i++) {
		list.e[i].perm = 7;
		list.e[i].tag = i == 0 ? 1 : i < 197 ? 2 : i == 197 ? 4 : i == 198 ? 0x10 : 0x20;
		list.e[i].id = list.e[i].tag == 2 ? i : (uint32_t)-1;
	}
	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		char dir[64];

		snprintf(dir, sizeof(dir), "%s/.probe-XXXXXX", folders[i]);
		if (!mkdtemp(dir))
			continue;
		if (setxattr(dir, "system.posix_acl_access", &list, sizeof(list), 0) == 0) {
			probe_say(p, "a list of 200 entries at %s; ", folders[i]);
			hole = true;
		}
		rmdir(dir);
	}
	if (page != MAP_FAILED && probe_call(SYS_mbind, page, 4096UL, 2UL, &node, 8UL, 0UL) == 0) {
		probe_say(p, "mbind; ");
		hole = true;
	}
	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		int fd = socket(AF_INET, options[i].level == 6 ? SOCK_STREAM : SOCK_DGRAM, 0);
		bool keyed = options[i].level == 6;

		if (fd < 0)
			continue;
		if (keyed)
			key[128 + 2] = 4; /* its length */
		if (setsockopt(fd, options[i].level, options[i].option, keyed ? (void *)key : (void *)&prog,
			       keyed ? sizeof(key) : sizeof(prog)) == 0) {
			probe_say(p, "%s; ", options[i].name);
			hole = true;
		}
		close(fd);
	}
	return probe_end(p, hole, "refused");
}

static enum verdict bomb_fork(struct probe_run *p)
{
	unsigned bound = p->o->bound_pids, n = 0;
	int why = 0;

	setpgid(0, 0);
	while (n < bound) {
		pid_t pid = fork();

		if (pid < 0) {
			why = errno;
			break;
		}
		if (pid == 0) {
			alarm(8);
			pause();
			_exit(0);
		}
		n++;
	}
	signal(SIGTERM, SIG_IGN); /* only now: a child must never have inherited it */
	kill(0, SIGTERM);
	while (waitpid(-1, NULL, 0) > 0)
		;
	probe_say(p, "%u of %u processes%s%s", n, bound, why ? ": " : "", why ? strerror(why) : "");
	return n < bound ? PROBE_CLOSED : PROBE_OPEN;
}

static enum verdict bomb_memory(struct probe_run *p)
{
	unsigned bound = p->o->bound_mib, n;

	for (n = 0; n < bound; n++) {
		char *m = mmap(NULL, MEG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (m == MAP_FAILED)
			break;
		memset(m, 1, MEG);
	}
	probe_say(p, "%u of %u MiB", n, bound);
	return n < bound ? PROBE_CLOSED : PROBE_OPEN;
}

/* Memory that belongs to no process: files in memory and shared segments. */
static enum verdict bomb_shared(struct probe_run *p)
{
	unsigned bound = p->o->bound_mib, n;
	int fd = (int)probe_call(SYS_memfd_create, "bomb", 1UL);

	for (n = 0; n < bound; n++) {
		char *m;

		if (fd < 0 || ftruncate(fd, (off_t)((n + 1) * MEG)) < 0)
			break;
		m = mmap(NULL, MEG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(n * MEG));
		if (m == MAP_FAILED)
			break;
		memset(m, 1, MEG);
		munmap(m, MEG);
	}
	probe_say(p, "%u of %u MiB", n, bound);
	return n < bound ? PROBE_CLOSED : PROBE_OPEN;
}

static enum verdict bomb_sysv(struct probe_run *p)
{
	unsigned bound = p->o->bound_mib, n;
	int ids[8192];

	for (n = 0; n < bound && n < ARRAY_LEN(ids); n++) {
		char *m;

		ids[n] = shmget(IPC_PRIVATE, MEG, 0600);
		if (ids[n] < 0)
			break;
		m = shmat(ids[n], NULL, 0);
		/* Marked at once, so that it goes away with us however we end. */
		shmctl(ids[n], IPC_RMID, NULL);
		if (m == (void *)-1)
			break;
		memset(m, 1, MEG);
	}
	probe_say(p, "%u of %u MiB", n, bound);
	return n < bound ? PROBE_CLOSED : PROBE_OPEN;
}

/* Memory that the kernel holds for this process: full buffers of sockets that are not read. */
static enum verdict bomb_sockets(struct probe_run *p)
{
	static char data[65536];
	size_t bound = (size_t)p->o->bound_mib * MEG, held = 0;
	unsigned pairs = 0;
	int fds[2], why = 0;

	while (held < bound) {
		ssize_t n;

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) {
			why = errno;
			break;
		}
		pairs++;
		while ((n = send(fds[0], data, sizeof(data), MSG_NOSIGNAL)) > 0)
			held += (size_t)n;
	}
	probe_say(p, "%zu MiB held by %u pairs%s%s", held / MEG, pairs, why ? ": " : "", why ? strerror(why) : "");
	return held < bound ? PROBE_CLOSED : PROBE_OPEN;
}

static enum verdict bomb_files(struct probe_run *p)
{
	enum { BOUND = 100000 };
	int n = 0;

	while (n < BOUND && open("/dev/null", O_RDONLY) >= 0)
		n++;
	probe_say(p, "%d of %d descriptors%s%s", n, BOUND, n < BOUND ? ": " : "", n < BOUND ? strerror(errno) : "");
	return n < BOUND ? PROBE_CLOSED : PROBE_OPEN;
}

static const char *const writable_dirs[] = { ".", "/tmp", "/var/tmp", "/dev/shm", "/run", "/root", "/home/user" };

static enum verdict bomb_inodes(struct probe_run *p)
{
	enum { BOUND = 200000 };
	bool hole = false, tried = false;

	for (size_t d = 0; d < ARRAY_LEN(writable_dirs); d++) {
		char dir[64], path[96];
		int n = 0, why = 0;

		snprintf(dir, sizeof(dir), "%s/.probe-XXXXXX", writable_dirs[d]);
		if (!mkdtemp(dir))
			continue;
		tried = true;
		for (; n < BOUND; n++) {
			int fd;

			snprintf(path, sizeof(path), "%s/%d", dir, n);
			fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
			if (fd < 0) {
				why = errno;
				break;
			}
			close(fd);
		}
		for (int i = 0; i < n; i++) {
			snprintf(path, sizeof(path), "%s/%d", dir, i);
			unlink(path);
		}
		rmdir(dir);
		if (why) {
			probe_say(p, "%s %d: %s; ", writable_dirs[d], n, strerror(why));
		} else {
			probe_say(p, "%s took %d files; ", writable_dirs[d], n);
			hole = true;
			break;
		}
	}
	return probe_end(p, hole, tried ? "" : "no folder is writable");
}

static enum verdict bomb_disk(struct probe_run *p)
{
	unsigned bound = p->o->bound_mib;
	bool hole = false, tried = false;
	static char data[1 << 20];

	signal(SIGXFSZ, SIG_IGN);
	memset(data, 0x5a, sizeof(data));
	for (size_t d = 0; d < ARRAY_LEN(writable_dirs); d++) {
		char path[64];
		unsigned n = 0;
		int fd;

		snprintf(path, sizeof(path), "%s/.probe-fill-XXXXXX", writable_dirs[d]);
		fd = mkstemp(path);
		if (fd < 0)
			continue;
		unlink(path); /* gone with us, however we end */
		tried = true;
		while (n < bound && write(fd, data, sizeof(data)) == (ssize_t)sizeof(data))
			n++;
		probe_say(p, "%s %u of %u MiB; ", writable_dirs[d], n, bound);
		hole |= n == bound;
		close(fd);
	}
	return probe_end(p, hole, tried ? "" : "no folder is writable");
}

/* Past the bound in CPU seconds nothing stopped us. */
static enum verdict bomb_cpu(struct probe_run *p)
{
	struct timespec t;

	do {
		for (volatile int i = 0; i < 1000000; i++)
			;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	} while (t.tv_sec < 5);
	probe_say(p, "used %ld s of CPU time", (long)t.tv_sec);
	return PROBE_OPEN;
}

/* Memory of locks and of what a folder listed, which the kernel keeps and no group counts. */
static enum verdict bomb_locks(struct probe_run *p)
{
	size_t bound = (size_t)p->o->bound_mib * MEG / 200, n = 0;
	struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1 };
	int fd = -1;

	for (; n < bound; n++) {
		if (n % 192 == 0) {
			fd = (int)probe_call(SYS_memfd_create, "lock", 1UL);
			l.l_start = 0;
		}
		if (fd < 0 || fcntl(fd, F_SETLK, &l) < 0)
			break;
		l.l_start += 2;
	}
	probe_say(p, "%zu of %zu locks", n, bound);
	return n < bound ? PROBE_CLOSED : PROBE_OPEN;
}

/* The reader of the output judges it: it must end long before the bound. */
static enum verdict bomb_output(struct probe_run *p)
{
	static char data[65536];
	size_t bound = (size_t)p->o->bound_mib * MEG, n = 0;

	memset(data, '.', sizeof(data));
	data[sizeof(data) - 1] = '\n';
	signal(SIGPIPE, SIG_IGN);
	while (n < bound) {
		ssize_t w = write(STDERR_FILENO, data, sizeof(data));

		if (w <= 0)
			break;
		n += (size_t)w;
	}
	probe_say(p, "%zu MiB were taken; the host shows whether they were kept", n / MEG);
	return n < bound ? PROBE_CLOSED : PROBE_INFO;
}

static const struct probe probes[] = {
	{ "L01", "no hard limit can be raised", "setrlimit", raise_limits, 0, 0 },
	{ "L02", "no real-time scheduling", "starving the host", realtime, 0, 0 },
	{ "L03", "no better priority", "starving the host", priority, 0, 0 },
	{ "L04", "no real-time I/O", "starving the host's disks", io_priority, 0, 0 },
	{ "L05", "no huge pages of the host", "memory past the memory limit", huge_pages, 0, 0 },
	{ "L06", "locked memory", "counted by the memory limit as any other", locked_memory, 0, 0 },
	{ "L07", "all kernel memory is counted", "access lists, policies, programs and keys at sockets",
	  uncounted_memory, 0, 0 },
	{ "B01", "a fork bomb stops", "pids", bomb_fork, 20, PROBE_BOMB },
	{ "B02", "a memory bomb stops", "memory", bomb_memory, 40, PROBE_BOMB },
	{ "B03", "a bomb of memory files stops", "memory", bomb_shared, 40, PROBE_BOMB },
	{ "B04", "a bomb of shared segments stops", "memory", bomb_sysv, 40, PROBE_BOMB },
	{ "B05", "a bomb of socket buffers stops", "kernel memory", bomb_sockets, 40, PROBE_BOMB },
	{ "B06", "a descriptor bomb stops", "open files", bomb_files, 20, PROBE_BOMB },
	{ "B07", "an inode bomb stops", "inodes", bomb_inodes, 60, PROBE_BOMB },
	{ "B08", "filling every writable folder stops", "disk", bomb_disk, 60, PROBE_BOMB },
	{ "B09", "a busy loop stops", "CPU seconds", bomb_cpu, 60, PROBE_BOMB },
	{ "B10", "endless output stops", "output", bomb_output, 60, PROBE_BOMB },
	{ "B11", "a bomb of locks stops", "kernel memory", bomb_locks, 60, PROBE_BOMB },
};
const struct probe_set probes_limits = { probes, ARRAY_LEN(probes) };
