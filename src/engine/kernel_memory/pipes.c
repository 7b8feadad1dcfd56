/* Measures pipes in a thread, in batches that a walk has noted. */
#include "engine/kernel_memory/pipes.h"
#include "base/base.h"
#include "base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BUFFER_BYTES (32U << 10) /* bytes that one buffer of a pipe holds at most */
#define BUFFERS_MOST 256U /* the usual value of /proc/sys/fs/pipe-max-size, in buffers */
#define PAGE 4096
#define BATCH_MOST 2048U /* pipes asked at a time; others count as full */
#define WAITS_NS 20000000ULL /* a thread that takes longer waits for a lock */

/* The watch and the thread share it. */
struct kernel_pipes_batch {
	unsigned refs; /* __atomic, as the next two */
	bool done;
	uint64_t bytes;
	bool whole; /* it is the last part of a walk */
	uint64_t before; /* bytes in the earlier parts */
	int64_t have; /* the machine's uncounted memory when the walk began */
	uint64_t n, count; /* pipes noted, and pipes that there are */
	struct {
		int pid, tid, fd;
		bool writes; /* it has a name, and is only open for writing */
		uint64_t inode;
	} pipe[BATCH_MOST];
};

/* The fields of struct statx that are needed here: C libraries differ in what they define. */
struct type_of {
	uint32_t none[7];
	uint16_t mode, none2;
	uint64_t inode, none3[27];
};
static_assert(sizeof(struct type_of) == 256, "the kernel's size");
#define TYPE_AND_INODE 0x101U

static void batch_unref(struct kernel_pipes_batch *b)
{
	if (b && !__atomic_sub_fetch(&b->refs, 1, __ATOMIC_SEQ_CST))
		free(b);
}

/* The inode number of a pipe. 0: it is no pipe. Asks no server of a file system. */
static uint64_t pipe_inode(int fds, const char *number, const char *link)
{
	struct type_of st;

	if (!strncmp(link, "pipe:[", 6))
		return strtoull(link + 6, NULL, 10);
	if (link[0] != '/' || syscall(SYS_statx, fds, number, AT_STATX_DONT_SYNC, TYPE_AND_INODE, &st) < 0 ||
	    !S_ISFIFO(st.mode))
		return 0;
	return st.inode;
}

static struct kernel_pipes_batch *batch_new(void)
{
	struct kernel_pipes_batch *b = calloc(1, sizeof(*b));

	if (b)
		b->refs = 1;
	return b;
}

void kernel_pipes_begin(struct kernel_pipes *p, int64_t have)
{
	memset(p->seen, 0, sizeof(p->seen));
	p->count = p->parted = p->found = 0;
	p->walk_have = have;
	batch_unref(TAKE_PTR(p->next));
	p->next = p->asked ? NULL : batch_new();
}

void kernel_pipes_add(struct kernel_pipes *p, int fds, int pid, int tid, const char *number, const char *link)
{
	const uint64_t inode = pipe_inode(fds, number, link), at = inode % (KERNEL_PIPES_SEEN * 64);
	struct kernel_pipes_batch *b = p->next;
	struct stat st;

	if (!inode || p->seen[at / 64] & 1ULL << at % 64)
		return;
	p->seen[at / 64] |= 1ULL << at % 64;
	p->count++;
	if (!b || b->n == BATCH_MOST)
		return;
	b->pipe[b->n].pid = pid;
	b->pipe[b->n].tid = tid;
	b->pipe[b->n].fd = (int)strtol(number, NULL, 10);
	b->pipe[b->n].inode = inode;
	b->pipe[b->n++].writes =
		link[0] == '/' && (fstatat(fds, number, &st, AT_SYMLINK_NOFOLLOW) < 0 || !(st.st_mode & S_IRUSR));
}

/*
 * Measures a pipe. One with a name that is only open for writing is not opened: that would wake processes that wait for
 * a reader. A pipe that is gone meanwhile holds nothing.
 */
static uint64_t ask_pipe(const struct kernel_pipes_batch *b, uint64_t i)
{
	uint64_t buffers = BUFFERS_MOST;
	char path[64];
	struct stat st;
	int fd, bytes = 0, size;

	if (b->pipe[i].writes)
		return (uint64_t)BUFFERS_MOST * BUFFER_BYTES;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/fd/%d", b->pipe[i].pid, b->pipe[i].tid, b->pipe[i].fd);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : KERNEL_PIPES_FULL;
	size = fcntl(fd, F_GETPIPE_SZ);
	if (size < 0 || fstat(fd, &st) < 0 || st.st_ino != b->pipe[i].inode)
		buffers = 0;
	else if (ioctl(fd, FIONREAD, &bytes) == 0)
		buffers = (uint64_t)bytes < (uint64_t)size / PAGE ? (uint64_t)bytes : (uint64_t)size / PAGE;
	close(fd);
	return buffers * BUFFER_BYTES;
}

static void *ask(void *arg)
{
	struct kernel_pipes_batch *b = arg;
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < b->n && __atomic_load_n(&b->refs, __ATOMIC_SEQ_CST) > 1; i++)
		bytes += ask_pipe(b, i);
	__atomic_store_n(&b->bytes, bytes, __ATOMIC_SEQ_CST);
	__atomic_store_n(&b->done, true, __ATOMIC_SEQ_CST);
	batch_unref(b);
	return NULL;
}

static void start(struct kernel_pipes *p, struct kernel_pipes_batch *b)
{
	pthread_attr_t a;
	pthread_t t;

	b->before = p->found;
	b->have = p->walk_have;
	b->count = p->count - p->parted;
	p->parted = p->count;
	b->refs = 2;
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&t, &a, ask, b) == 0) {
		p->asked = b;
		p->asked_ns = clock_mono_ns();
	} else {
		b->refs = 1;
		batch_unref(b);
		batch_unref(TAKE_PTR(p->next)); /* without that part, the walk has no result */
	}
	pthread_attr_destroy(&a);
}

void kernel_pipes_ask(struct kernel_pipes *p)
{
	struct kernel_pipes_batch *b = p->next;

	if (!b || p->asked || (!b->whole && p->count == p->parted))
		return;
	p->next = b->whole ? NULL : batch_new();
	start(p, b);
}

void kernel_pipes_end(struct kernel_pipes *p, bool cut)
{
	if (!cut)
		p->last = p->count;
	if (p->next)
		p->next->whole = !cut;
}

bool kernel_pipes_take(struct kernel_pipes *p)
{
	const uint64_t most = p->count > p->last ? p->count : p->last;
	struct kernel_pipes_batch *b = p->asked;
	bool whole;

	if (!b)
		return false;
	if (!__atomic_load_n(&b->done, __ATOMIC_SEQ_CST)) {
		if (clock_mono_ns() - p->asked_ns <= WAITS_NS)
			return false;
		p->found = p->count * KERNEL_PIPES_FULL;
		if (most * KERNEL_PIPES_FULL > p->bytes)
			p->bytes = most * KERNEL_PIPES_FULL;
		return false;
	}
	p->found = b->before + b->bytes + (b->count - b->n) * KERNEL_PIPES_FULL;
	p->have = b->have;
	whole = b->whole;
	if (whole || p->found > p->bytes)
		p->bytes = p->found;
	p->asked = NULL;
	batch_unref(b);
	return whole;
}

void kernel_pipes_done(struct kernel_pipes *p)
{
	batch_unref(TAKE_PTR(p->next));
	batch_unref(TAKE_PTR(p->asked));
}
