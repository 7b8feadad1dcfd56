/* Kernel memory that is no socket's: one mode per kind. See fill.h. */
#define _GNU_SOURCE
#include "fill.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#include "fill_locks.h"
#include "fill_pipes.h"

static void in_folder(const char *top, const char *what, int nth)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s.%d", top, what, nth);
	mkdir(path, 0700);
	if (chdir(path) < 0)
		_exit(1);
}

/* The largest access list that is let through, on both lists of each folder. */
static void fill_acl(const char *top, int nth)
{
	struct entry {
		uint16_t tag, perm;
		uint32_t id;
	};
	static struct {
		uint32_t version;
		struct entry e[8190];
	} acl = { .version = 2 };
	static const int sizes[] = { 8190, 4095, 2000, 500, 125, 61, 29, 21, 13, 9, 5 };
	size_t with = 0;
	char name[32];

	in_folder(top, "acl", nth);
	for (long i = 0;; i++) {
		snprintf(name, sizeof(name), "%ld", i);
		if (mkdir(name, 0700) < 0)
			goto no;
		for (;;) {
			int n = sizes[with], m = 0;
			size_t bytes = 4 + 8 * (size_t)n;

			acl.e[m++] = (struct entry){ 1, 7, (uint32_t)-1 };
			while (m < n - 3) {
				acl.e[m] = (struct entry){ 2, 7, (uint32_t)(1000 + m) };
				m++;
			}
			acl.e[m++] = (struct entry){ 4, 7, (uint32_t)-1 };
			acl.e[m++] = (struct entry){ 0x10, 7, (uint32_t)-1 };
			acl.e[m++] = (struct entry){ 0x20, 7, (uint32_t)-1 };
			if (setxattr(name, "system.posix_acl_access", &acl, bytes, 0) == 0 &&
			    setxattr(name, "system.posix_acl_default", &acl, bytes, 0) == 0)
				break;
			if (++with == sizeof(sizes) / sizeof(sizes[0]))
				goto no;
		}
		fill_count(2);
	}
no:
	atomic_store(&fill->error, errno);
}

static void fill_acl_tmp(int nth)
{
	fill_acl("/tmp", nth);
}

static void fill_acl_shm(int nth)
{
	fill_acl("/dev/shm", nth);
}

/* Folders that inherit the list of their parent. */
static void fill_acl_inherit(int nth)
{
	static struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} e[13];
	} acl = { .version = 2 };
	char name[32];
	int m = 0;

	in_folder("/dev/shm", "inherit", nth);
	for (; m < 10; m++) {
		acl.e[m].tag = m ? 2 : 1;
		acl.e[m].perm = 7;
		acl.e[m].id = m ? 1000U + (unsigned)m : (uint32_t)-1;
	}
	for (; m < 13; m++) {
		acl.e[m].tag = m == 10 ? 4 : m == 11 ? 0x10 : 0x20;
		acl.e[m].perm = 7;
		acl.e[m].id = (uint32_t)-1;
	}
	if (setxattr(".", "system.posix_acl_default", &acl, sizeof(acl), 0) < 0) {
		atomic_store(&fill->error, errno);
		return;
	}
	for (long i = 0; snprintf(name, sizeof(name), "%ld", i), fill_note(mkdir(name, 0777)) == 0; i++)
		;
}

static void fill_xattr(const char *top, int nth)
{
	static char value[65536];
	char name[32];
	int fd;

	in_folder(top, "xattr", nth);
	for (long i = 0;; i++) {
		snprintf(name, sizeof(name), "%ld", i);
		fd = open(name, O_CREAT | O_WRONLY, 0600);
		if (fill_note(fd) < 0)
			return;
		for (size_t n = 65535; n > 16; n /= 2)
			if (fsetxattr(fd, "user.x", value, n, 0) == 0)
				break;
		close(fd);
	}
}

static void fill_xattr_tmp(int nth)
{
	fill_xattr("/tmp", nth);
}

static void fill_xattr_shm(int nth)
{
	fill_xattr("/dev/shm", nth);
}

/* Each open of a merged folder that has changed keeps a list of all its names. */
static void fill_listing_of(const char *top, int nth)
{
	static char big[1 << 16];
	char path[256];
	int names = 12000 / 24;

	snprintf(path, sizeof(path), "%s/%0200d", top, nth);
	if (access(top, W_OK) < 0) {
		atomic_store(&fill->error, errno);
		return;
	}
	close(open(path, O_CREAT | O_WRONLY, 0600));
	for (int i = 0; i < names; i++) {
		char other[300];

		snprintf(other, sizeof(other), "%s/%0190d.%d", top, nth, i);
		if (link(path, other) < 0)
			break;
	}
	usleep(500000);
	for (;;) {
		int fd = open(top, O_RDONLY | O_DIRECTORY);
		char other[300];

		if (fill_note(fd) < 0)
			return;
		while (syscall(SYS_getdents64, fd, big, sizeof(big)) > 0)
			;
		snprintf(other, sizeof(other), "%s/%0190d.n", top, nth);
		unlink(other);
		link(path, other);
	}
}

static void fill_listing(int nth)
{
	fill_listing_of("/tmp", nth);
}

static void fill_listing_home(int nth)
{
	fill_listing_of(getuid() ? "/home/user" : "/root", nth);
}

/* As root: any folder of the image. */
static void fill_listing_etc(int nth)
{
	fill_listing_of(getuid() ? "/var/tmp" : "/etc", nth);
}

static void fill_mbind_memfd(int nth)
{
	int fd = memfd_create("numa", 0);
	size_t page = 4096, pages = 1 << 18;
	unsigned long node = 1;
	char *m;

	(void)nth;
	ftruncate(fd, (off_t)(page * pages));
	m = mmap(NULL, page * pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (;;) {
		for (size_t i = 0; i < pages; i += 2) {
			/* The policy stays at the file when the mapping is gone. */
			if (fill_note(syscall(SYS_mbind, m + i * page, page, 2 /* BIND */, &node, 8, 0)) < 0)
				return;
			if (i % 16384 == 16382) {
				munmap(m, page * pages);
				m = mmap(NULL, page * pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			}
		}
		munmap(m, page * pages);
		fd = memfd_create("numa", 0);
		ftruncate(fd, (off_t)(page * pages));
		m = mmap(NULL, page * pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
}

static void fill_mbind_map(int nth)
{
	size_t page = 4096, pages = 120000;
	unsigned long node = 1;
	char *m = mmap(NULL, page * pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)nth;
	for (size_t i = 0; i < pages; i += 2)
		if (fill_note(syscall(SYS_mbind, m + i * page, page, 2, &node, 8, 0)) < 0)
			return;
}

/* Needs a policy first. Where mbind is refused there is none, so what this says matters more than what it takes. */
static void fill_home_node(int nth)
{
	size_t page = 4096, pages = 120000;
	char *m = mmap(NULL, page * pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)nth;
	for (size_t i = 0; i < pages; i += 2)
		if (fill_note(syscall(450 /* set_mempolicy_home_node */, m + i * page, page, 0UL, 0UL)) < 0)
			return;
}

static void dear_filter(struct sock_filter *f, unsigned n, unsigned ret)
{
	/* Of all instructions the one with the most machine code. */
	for (unsigned i = 0; i < n - 1; i++)
		f[i] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 7);
	f[n - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, ret);
}

static void fill_sockopt_filter(int option)
{
	static struct sock_filter f[4096];
	struct sock_fprog p = { .len = 4096, .filter = f };

	dear_filter(f, 4096, 0xffff);
	for (;;) {
		int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1;

		if (fd < 0) {
			atomic_store(&fill->error, errno);
			return;
		}
		if (option == SO_ATTACH_REUSEPORT_CBPF) {
			struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

			setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
			bind(fd, (struct sockaddr *)&a, sizeof(a));
		}
		if (fill_note(setsockopt(fd, SOL_SOCKET, option, &p, sizeof(p))) < 0)
			return;
	}
}

static void fill_filter(int nth)
{
	(void)nth;
	fill_sockopt_filter(SO_ATTACH_FILTER);
}

static void fill_reuseport(int nth)
{
	(void)nth;
	fill_sockopt_filter(SO_ATTACH_REUSEPORT_CBPF);
}

static void fill_md5(int nth)
{
	for (;;) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (fd < 0) {
			atomic_store(&fill->error, errno);
			return;
		}
		for (unsigned i = 0;; i++) {
			struct tcp_md5sig k = { .tcpm_keylen = 16 };
			struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000000U + i) };

			(void)nth;
			memcpy(&k.tcpm_addr, &a, sizeof(a));
			if (setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &k, sizeof(k)) < 0) {
				if (i < 8) {
					atomic_store(&fill->error, errno);
					return;
				}
				break;
			}
			fill_count(1);
		}
	}
}

static void fill_eventfd(int nth)
{
	(void)nth;
	while (fill_note(eventfd(0, 0)) == 0)
		;
}

static void fill_timerfd(int nth)
{
	struct itimerspec t = { .it_value.tv_sec = 1000 };
	int fd;

	(void)nth;
	while (fill_note(fd = timerfd_create(CLOCK_MONOTONIC, 0)) == 0)
		timerfd_settime(fd, 0, &t, NULL);
}

static void fill_signalfd(int nth)
{
	sigset_t s;

	(void)nth;
	sigemptyset(&s);
	while (fill_note(signalfd(-1, &s, 0)) == 0)
		;
}

static void fill_epoll(int nth)
{
	(void)nth;
	for (;;) {
		int e = epoll_create1(0);

		if (fill_note(e) < 0)
			return;
		for (int i = 3; i < e; i++) {
			struct epoll_event ev = { .events = EPOLLIN };

			epoll_ctl(e, EPOLL_CTL_ADD, i, &ev);
		}
	}
}

/* Behind very many descriptors that hold nothing: whoever goes through them must not be outrun. */
static void fill_epoll_behind(int nth)
{
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	for (rlim_t i = 0; i < files.rlim_max * 9 / 10 && dup(0) >= 0; i++)
		;
	fill_epoll(nth);
}

static void fill_inotify(int nth)
{
	int fd;

	(void)nth;
	while (fill_note(fd = inotify_init()) == 0)
		inotify_add_watch(fd, "/", IN_ALL_EVENTS);
}

/* O_ASYNC at pipes. */
static void fill_fasync(int nth)
{
	int p[2];

	(void)nth;
	while (fill_note(pipe(p)) == 0)
		for (int i = 0; i < 2; i++) {
			fcntl(p[i], F_SETOWN, getpid());
			fcntl(p[i], F_SETFL, O_ASYNC);
		}
}

static void fill_dnotify(int nth)
{
	int fd;

	(void)nth;
	while (fill_note(fd = open("/tmp", O_RDONLY)) == 0)
		fcntl(fd, F_NOTIFY, DN_CREATE | DN_MULTISHOT);
}

static void fill_terminals(int nth)
{
	int fd;

	(void)nth;
	while (fill_note(fd = open("/dev/ptmx", O_RDWR | O_NOCTTY)) == 0)
		;
}

/* As many instructions as a process may have. */
static void fill_seccomp(int nth)
{
	static struct sock_filter f[4096];
	struct sock_fprog p = { .len = 4095, .filter = f };

	(void)nth;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	dear_filter(f, 4095, SECCOMP_RET_ALLOW);
	while (p.len > 64)
		if (fill_note(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p)) < 0) {
			p.len /= 2;
			dear_filter(f, p.len, SECCOMP_RET_ALLOW);
		}
}

static void *filter_thread(void *arg)
{
	fill_seccomp(0);
	for (;;)
		pause();
	return arg;
}

/* The same in each of many threads. */
static void fill_seccomp_threads(int nth)
{
	pthread_attr_t a;
	pthread_t t;

	(void)nth;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 16384);
	while (pthread_create(&t, &a, filter_thread, NULL) == 0)
		;
}

static void fill_landlock(int nth)
{
	uint64_t attr = 0x1fff;

	(void)nth;
	while (fill_note(syscall(444, &attr, sizeof(attr), 0)) == 0)
		;
}

static void *short_life(void *arg)
{
	return arg;
}

/* Threads that end at once: their stacks are freed later. */
static void fill_threads(int nth)
{
	pthread_attr_t a;
	pthread_t t;

	(void)nth;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 16384);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	for (;;)
		if (pthread_create(&t, &a, short_life, NULL) == 0)
			fill_count(1);
}

static void fill_forks(int nth)
{
	(void)nth;
	for (;;) {
		pid_t pid = vfork();

		if (pid == 0)
			_exit(0);
		if (pid > 0) {
			fill_count(1);
			waitpid(pid, NULL, 0);
		}
	}
}

/* poll() keeps a list and an entry for each descriptor while it waits. */
static void *poll_thread(void *arg)
{
	poll(arg, 1000, -1);
	return arg;
}

static void fill_poll(int nth)
{
	static struct pollfd p[1000];
	pthread_attr_t a;
	pthread_t t;
	int pipes[2];

	(void)nth;
	if (pipe(pipes) < 0)
		return;
	for (int i = 0; i < 1000; i++)
		p[i] = (struct pollfd){ .fd = pipes[0], .events = POLLIN };
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 16384);
	while (fill_note(-pthread_create(&t, &a, poll_thread, p)) == 0)
		;
}

/* A vector of 1024 parts, copied for as long as the read waits. */
static void *vector_thread(void *arg)
{
	static struct iovec v[1024];
	static char byte;

	for (int i = 0; i < 1024; i++)
		v[i] = (struct iovec){ &byte, 1 };
	readv(*(int *)arg, v, 1024);
	return arg;
}

static void fill_vectors(int nth)
{
	static int pipes[2];
	pthread_attr_t a;
	pthread_t t;

	(void)nth;
	if (pipe(pipes) < 0)
		return;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 16384);
	while (fill_note(-pthread_create(&t, &a, vector_thread, pipes)) == 0)
		;
}

/* Files of /proc that were read in part keep their text. */
static void fill_proc(int nth)
{
	static const char *const files[] = { "/proc/self/maps",	  "/proc/self/smaps",	  "/proc/self/mountinfo",
					     "/proc/self/status", "/proc/self/numa_maps", "/proc/net/unix",
					     "/proc/net/tcp",	  "/proc/cpuinfo",	  "/proc/self/limits",
					     "/proc/stat",	  "/proc/interrupts",	  "/proc/locks" };
	char b[1];

	(void)nth;
	for (unsigned i = 0;; i++) {
		int fd = open(files[i % 12], O_RDONLY);

		if (fd < 0 && errno == EMFILE) {
			atomic_store(&fill->error, errno);
			return;
		}
		if (fd >= 0 && read(fd, b, 1) == 1)
			fill_count(1);
	}
}

/* Names that are not there. */
static void fill_negative(int nth)
{
	char path[300];
	struct stat st;

	for (long i = 0;; i++) {
		snprintf(path, sizeof(path), "/usr/%0200d.%ld", nth, i);
		stat(path, &st);
		fill_count(1);
	}
}

static void fill_timers(int nth)
{
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	timer_t t;

	(void)nth;
	while (fill_note(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &t)) == 0)
		;
}

static void fill_signals(int nth)
{
	sigset_t s;
	union sigval v = { 0 };

	(void)nth;
	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &s, NULL);
	while (fill_note(sigqueue(getpid(), SIGRTMIN, v)) == 0)
		;
}

static void fill_pidfd(int nth)
{
	(void)nth;
	while (fill_note(syscall(SYS_pidfd_open, getpid(), 0)) == 0)
		;
}

static void fill_mqueue(int nth)
{
	struct {
		long flags, maxmsg, msgsize, curmsgs, pad[4];
	} a = { .maxmsg = 10, .msgsize = 8192 };
	static char data[8192];
	char name[64];

	for (long i = 0;; i++) {
		int q;

		snprintf(name, sizeof(name), "q.%d.%ld", nth, i);
		q = (int)syscall(SYS_mq_open, name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &a);
		if (fill_note(q) < 0)
			return;
		while (syscall(SYS_mq_timedsend, q, data, sizeof(data), 0, NULL) == 0)
			;
		close(q);
	}
}

/* Groups of a process: an array of up to 65,536 ids. Root of the sandbox only. */
static void *groups_thread(void *arg)
{
	static gid_t g[65536];

	for (unsigned i = 0; i < 65536; i++)
		g[i] = i % 60000;
	for (;;) {
		if (fill_note(syscall(SYS_setgroups, 65536L, g)) < 0)
			return arg;
		pause();
	}
}

static void fill_groups(int nth)
{
	pthread_attr_t a;
	pthread_t t;

	(void)nth;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 16384);
	while (pthread_create(&t, &a, groups_thread, NULL) == 0)
		;
}

/* Credentials, each kept by an open file. */
static void fill_creds(int nth)
{
	static gid_t g[65536];

	(void)nth;
	for (unsigned i = 0; i < 65536; i++)
		g[i] = i % 60000;
	for (long i = 0;; i++) {
		g[0] = (gid_t)i;
		if (getuid() == 0)
			syscall(SYS_setgroups, 65536L, g);
		else
			prctl(PR_SET_KEEPCAPS, i % 2, 0, 0, 0); /* a new set of credentials */
		if (fill_note(open("/dev/null", O_RDONLY)) < 0)
			return;
	}
}

/* Plain memory: the control. */
static void fill_memory(int nth)
{
	(void)nth;
	for (;;) {
		char *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (m == MAP_FAILED)
			return;
		memset(m, 1, 1 << 20);
		fill_count(1);
	}
}

static const struct fill_kind kinds[] = {
	{ "memory", fill_memory },
	{ "acl", fill_acl_tmp },
	{ "aclshm", fill_acl_shm },
	{ "aclinherit", fill_acl_inherit },
	{ "xattr", fill_xattr_tmp },
	{ "xattrshm", fill_xattr_shm },
	{ "locks", fill_locks_posix },
	{ "locksofd", fill_locks_ofd },
	{ "locksmemfd", fill_locks_memfd },
	{ "locksmapped", fill_locks_mapped },
	{ "locksmapshm", fill_locks_mapped_shm },
	{ "lockssent", fill_locks_sent },
	{ "lockssent1k", fill_locks_sent_many },
	{ "lockssentshm", fill_locks_sent_shm },
	{ "locksthr", fill_locks_thread },
	{ "flock", fill_flock },
	{ "leases", fill_leases },
	{ "listing", fill_listing },
	{ "listinghome", fill_listing_home },
	{ "listingetc", fill_listing_etc },
	{ "mbind", fill_mbind_memfd },
	{ "mbindmap", fill_mbind_map },
	{ "homenode", fill_home_node },
	{ "filter", fill_filter },
	{ "reuseport", fill_reuseport },
	{ "md5", fill_md5 },
	{ "eventfd", fill_eventfd },
	{ "timerfd", fill_timerfd },
	{ "signalfd", fill_signalfd },
	{ "epoll", fill_epoll },
	{ "epollbehind", fill_epoll_behind },
	{ "inotify", fill_inotify },
	{ "fasync", fill_fasync },
	{ "dnotify", fill_dnotify },
	{ "terminals", fill_terminals },
	{ "seccomp", fill_seccomp },
	{ "seccompthr", fill_seccomp_threads },
	{ "landlock", fill_landlock },
	{ "threads", fill_threads },
	{ "forks", fill_forks },
	{ "poll", fill_poll },
	{ "vectors", fill_vectors },
	{ "proc", fill_proc },
	{ "negative", fill_negative },
	{ "timers", fill_timers },
	{ "signals", fill_signals },
	{ "pidfd", fill_pidfd },
	{ "mqueue", fill_mqueue },
	{ "groups", fill_groups },
	{ "creds", fill_creds },
	{ "received", fill_received },
	{ "pipes", fill_pipes },
	{ "pipesheld", fill_pipes_held },
	{ "pipesbehind", fill_pipes_behind },
	{ "pipessent", fill_pipes_sent },
	{ "pipesdeep", fill_pipes_deep },
	{ "pipeszero", fill_pipes_zero },
};

int main(int argc, char **argv)
{
	return fill_main(argc, argv, kinds, sizeof(kinds) / sizeof(kinds[0]));
}
