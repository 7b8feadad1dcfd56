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

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

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

/* Every second byte, so that neighbours do not join. */
static void fill_locks(int nth, int cmd, const char *top)
{
	struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1 };
	char path[96];
	int fd = -1;

	for (long n = 0;; n++) {
		/* Few at each file: the kernel goes through all of them for a new one. */
		if (n % 192 == 0) {
			snprintf(path, sizeof(path), "%s/lock.%d.%ld", top, nth, n);
			fd = top[0] ? open(path, O_CREAT | O_RDWR, 0600) : memfd_create("lock", 0);
			l.l_start = 0;
		}
		if (fill_note(fcntl(fd, cmd, &l)) < 0)
			return;
		l.l_start += 2;
	}
}

static void fill_locks_posix(int nth)
{
	fill_locks(nth, F_SETLK, "/tmp");
}

static void fill_locks_ofd(int nth)
{
	fill_locks(nth, F_OFD_SETLK, "/dev/shm");
}

static void fill_locks_memfd(int nth)
{
	fill_locks(nth, F_OFD_SETLK, "");
}

/* A file of its own: of /dev/shm, or a memfd, which is on a file system that all programs of the machine share. */
static int lock_file(int nth, bool shm)
{
	char path[64];
	int fd;

	if (!shm)
		return memfd_create("lock", 0);
	snprintf(path, sizeof(path), "/dev/shm/kept.%d", nth);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	unlink(path);
	return fd;
}

static int send_file(int fd)
{
	char byte = 0, room[CMSG_SPACE(sizeof(fd))] = { 0 };
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int pair[2];

	*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(fd)) };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0 || sendmsg(pair[0], &m, MSG_DONTWAIT) < 0 ? -1 : 0;
}

enum keeper { MAPPED, SENT };

/* Locks of files that no descriptor of a process is open for: a mapping keeps the file, or a message that nobody receives. */
static void fill_locks_kept(int nth, enum keeper keeper, bool shm, long each)
{
	struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1 };

	for (;;) {
		int fd = lock_file(nth, shm);

		if (fd < 0 || ftruncate(fd, 4096) < 0)
			break;
		for (l.l_start = 0; l.l_start < 2 * each; l.l_start += 2)
			if (fill_note(fcntl(fd, F_OFD_SETLK, &l)) < 0)
				return;
		if (keeper == MAPPED ? mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED : send_file(fd) < 0)
			break;
		close(fd);
	}
	atomic_store(&fill->error, errno);
}

static void fill_locks_mapped(int nth)
{
	fill_locks_kept(nth, MAPPED, false, 192);
}

static void fill_locks_mapped_shm(int nth)
{
	fill_locks_kept(nth, MAPPED, true, 192);
}

static void fill_locks_sent(int nth)
{
	fill_locks_kept(nth, SENT, false, 192);
}

/* The kernel limits how many descriptors are in flight, not how many locks a file has. */
static void fill_locks_sent_many(int nth)
{
	fill_locks_kept(nth, SENT, false, 1000);
}

static void fill_locks_sent_shm(int nth)
{
	fill_locks_kept(nth, SENT, true, 1000);
}

static void *table_thread(void *arg)
{
	if (unshare(CLONE_FILES) == 0)
		fill_locks(*(int *)arg, F_OFD_SETLK, "");
	else
		atomic_store(&fill->error, errno);
	for (;;)
		pause();
	return arg;
}

/* Descriptors of a thread alone, whose process has ended its first thread. */
static void fill_locks_thread(int nth)
{
	pthread_t t;

	if (pthread_create(&t, NULL, table_thread, &nth) == 0)
		syscall(SYS_exit, 0);
}

static void fill_flock(int nth)
{
	char path[64];

	for (long i = 0;; i++) {
		int fd;

		snprintf(path, sizeof(path), "/tmp/flock.%d.%ld", nth, i % 1000);
		fd = open(path, O_CREAT | O_RDWR, 0600);
		if (fd < 0 || fill_note(flock(fd, LOCK_SH)) < 0) {
			atomic_store(&fill->error, errno);
			return;
		}
	}
}

static void fill_leases(int nth)
{
	char path[64];

	snprintf(path, sizeof(path), "/tmp/lease.%d", nth);
	close(open(path, O_CREAT | O_RDWR, 0600));
	for (;;) {
		int fd = open(path, O_RDONLY);

		if (fd < 0 || fill_note(fcntl(fd, F_SETLEASE, F_RDLCK)) < 0) {
			atomic_store(&fill->error, errno);
			return;
		}
	}
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
	static const char *const files[] = { "/proc/self/maps", "/proc/self/smaps", "/proc/self/mountinfo", "/proc/self/status",
					     "/proc/self/numa_maps", "/proc/net/unix", "/proc/net/tcp", "/proc/cpuinfo",
					     "/proc/self/limits", "/proc/stat", "/proc/interrupts", "/proc/locks" };
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

static int tcp_pair(int pair[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	pair[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (l < 0 || pair[0] < 0 || bind(l, (struct sockaddr *)&a, len) < 0 || listen(l, 1) < 0 ||
	    getsockname(l, (struct sockaddr *)&a, &len) < 0 || connect(pair[0], (struct sockaddr *)&a, len) < 0)
		return -1;
	pair[1] = accept(l, NULL, NULL);
	close(l);
	return pair[1];
}

/* Pages of received data that are mapped leave their socket, and nothing counts them. */
static void fill_received(int nth)
{
	enum { SOME = 65536, MAP = 256 << 20 };
	static char data[SOME] __attribute__((aligned(4096)));
	int pair[2], one = 1;
	char *map;

	(void)nth;
	if (fill_note(tcp_pair(pair)) < 0 || setsockopt(pair[0], SOL_SOCKET, 60 /* SO_ZEROCOPY */, &one, sizeof(one)) < 0)
		return;
	map = mmap(NULL, MAP, PROT_READ, MAP_SHARED, pair[1], 0);
	for (size_t at = 0; map != MAP_FAILED && at + SOME <= MAP;) {
		struct {
			uint64_t address;
			uint32_t length, skip;
		} ask = { .address = (uintptr_t)map + at, .length = SOME };
		socklen_t len = sizeof(ask);
		struct msghdr m = { 0 };

		send(pair[0], data, SOME, 0x4000000 /* MSG_ZEROCOPY */ | MSG_DONTWAIT);
		while (recvmsg(pair[0], &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0)
			;
		if (fill_note(getsockopt(pair[1], IPPROTO_TCP, 35 /* TCP_ZEROCOPY_RECEIVE */, &ask, &len)) < 0)
			return;
		at += ask.length;
		if (ask.skip)
			recv(pair[1], data, ask.skip < SOME ? ask.skip : SOME, MSG_DONTWAIT);
	}
}

/* Sends the descriptor to @to, and closes it. */
static int send_to(int to, int fd)
{
	char byte = 0, room[CMSG_SPACE(sizeof(fd))] = { 0 };
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(fd)) };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(to, &m, MSG_DONTWAIT) < 0)
		return -1;
	close(fd);
	return 0;
}

/* Sends the descriptor to nobody, and closes it. */
static int hide(int fd)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0 || send_to(pair[0], fd) < 0)
		return -1;
	close(pair[0]);
	return 0;
}

/* In the queue of a socket that is itself in the queue of another one: 128 in each, and one descriptor shows. */
static int hide_deep(int fd)
{
	static int outer[2] = { -1, -1 }, inner[2] = { -1, -1 }, n;

	if (outer[0] < 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, outer) < 0)
		return -1;
	if (n++ % 128 == 0) {
		if (inner[0] >= 0)
			close(inner[0]);
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, inner) < 0 || send_to(outer[0], inner[1]) < 0)
			return -1;
	}
	return send_to(inner[0], fd);
}

/* A byte of each 32 KiB that a connection has received, in a pipe: it keeps all of them. */
static void fill_pipes_of(int sent)
{
	static char data[32768];
	int pair[2], p[2];

	if (fill_note(tcp_pair(pair)) < 0)
		return;
	while (fill_note(pipe(p)) == 0) {
		for (int i = 0; i < 16; i++) {
			ssize_t left = send(pair[0], data, sizeof(data), 0) - splice(pair[1], NULL, p[1], NULL, 1, SPLICE_F_NONBLOCK);

			while (left > 0 && left <= (ssize_t)sizeof(data))
				left -= recv(pair[1], data, (size_t)left, 0);
		}
		close(p[1]);
		if (sent && fill_note(sent == 1 ? hide(p[0]) : hide_deep(p[0])) < 0)
			return;
	}
}

/* Holds the lock of a pipe: nothing comes from that connection. */
static void *pipe_holder(void *arg)
{
	int pair[2], p[2];

	if (tcp_pair(pair) >= 0 && pipe(p) == 0)
		splice(pair[1], NULL, p[1], NULL, 1, 0);
	return arg;
}

static void fill_pipes_held(int nth)
{
	pthread_t t;

	(void)nth;
	pthread_create(&t, NULL, pipe_holder, NULL);
	usleep(100000);
	fill_pipes_of(0);
}

static void fill_pipes(int nth)
{
	(void)nth;
	fill_pipes_of(0);
}

/* Behind many other descriptors, which have to be walked first. */
static void fill_pipes_behind(int nth)
{
	const int fd = eventfd(0, 0);

	(void)nth;
	for (int i = 0; i < 10000 && dup(fd) >= 0; i++)
		;
	fill_pipes_of(0);
}

static void fill_pipes_sent(int nth)
{
	(void)nth;
	fill_pipes_of(1);
}

static void fill_pipes_deep(int nth)
{
	(void)nth;
	fill_pipes_of(2);
}

/* Pages of a device. */
static void fill_pipes_zero(int nth)
{
	int zero = open("/dev/zero", O_RDONLY), p[2];

	(void)nth;
	while (fill_note(pipe(p)) == 0) {
		while (splice(zero, NULL, p[1], NULL, 65536, SPLICE_F_NONBLOCK) > 0)
			;
		close(p[1]);
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
