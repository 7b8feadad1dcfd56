/* Locks, leases and what keeps them: modes of fill_objects.c, which has the includes. */
#pragma once

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

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
