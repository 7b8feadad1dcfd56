/*
 * Locks of files that no process has a descriptor for, so that no fdinfo shows them: a mapping keeps the file, a message on a unix
 * socket that was not received, or a system call that waits. /proc/locks has them, by the device and inode of the file. It is expensive: a read goes
 * through the list from its start, and all that lock wait meanwhile. So we read it seldom, by a thread of its own, and only some
 * places of it that a program cannot foresee; each line that is found stands for many. A lock belongs to the sandbox
 *
 *   whose own file system the file is on (its overlay and tmpfs, which no other sandbox and not the host has), or
 *   that has mapped it, if it is a memfd.
 *
 * Others are nobody's: memfds, pipes and sockets in flight, and files that sandboxes share, like those of an image. All functions:
 * one thread at a time.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_LOCK_BYTES 224U /* struct file_lock, and its share of the inode's lists */
#define KERNEL_LOCKS_PAGES 6 /* places of /proc/locks that are read */
#define KERNEL_LOCKS_LINES (KERNEL_LOCKS_PAGES * 128)
#define KERNEL_LOCKS_WORTH (1U << 20) /* bytes: fewer are not looked into */
#define KERNEL_LOCKS_DEVICES 64

struct kernel_lock {
	uint64_t dev, ino;
	bool ofd; /* of an open file, which can be kept without a descriptor. Others vanish with the descriptor, or are one a file */
};

/* A line of /proc/locks. False: it is no lock that is held. */
bool kernel_lock_parse(const char *line, struct kernel_lock *ret);
/* A line of /proc/PID/maps. False: not the mapping of a file. */
bool kernel_lock_parse_map(const char *line, uint64_t *dev, uint64_t *ino);

struct kernel_locks;

/* Of one sandbox. All zero before the first look, but for since_ns. */
struct kernel_locks_of {
	uint64_t sample; /* the last one that was looked into */
	uint64_t mapping; /* and the one its mappings were looked for */
	uint64_t own, mapped; /* bytes, by the two rules */
	uint64_t until_ns; /* how long they count */
	uint64_t since_ns; /* the first look. A sample from before it shows locks of others: device numbers of file systems that have ended are used again */
	uint64_t not_before_ns; /* a sample from before that does not count: what it shows may be ended */
};

/* NULL: no memory. */
struct kernel_locks *kernel_locks_new(void);
/* Does not wait for the thread. NULL is nothing. */
void kernel_locks_free(struct kernel_locks *k);

/* Each second; when memory grows: a fifth of the time at most; when some were found and more come: half of the time. */
enum kernel_locks_when { KERNEL_LOCKS_SLOWLY, KERNEL_LOCKS_SOON, KERNEL_LOCKS_NOW };
/* Starts a look into /proc/locks, unless one is under way or was a moment ago. */
void kernel_locks_start(struct kernel_locks *k, enum kernel_locks_when when);

/* Takes what the thread has found. True: kernel_locks_assign should be called. */
bool kernel_locks_news(struct kernel_locks *k, const struct kernel_locks_of *of);

struct kernel_locks_owner {
	uint64_t id; /* of the sandbox; never 0 */
	const uint64_t *device; /* its own file systems */
	size_t ndevices;
	const int *pid; /* its processes */
	size_t npids;
};
/* Which of the locks are @o's: @of is brought up to date, as far as is known by now. */
void kernel_locks_assign(struct kernel_locks *k, const struct kernel_locks_owner *o, struct kernel_locks_of *of);

/* Bytes of locks that descriptors show. */
struct kernel_locks_shown {
	uint64_t all;
	uint64_t shared; /* of that, on file systems that are not the sandbox's own */
	bool whole; /* all descriptors have been looked at of late */
};
/*
 * The bytes of all locks of a sandbox. Those that descriptors do not show count for a moment after they were found; they count four
 * times: a look into /proc/locks is so slow that as many may come meanwhile.
 */
uint64_t kernel_locks_bytes_of(const struct kernel_locks_of *of, const struct kernel_locks_shown *shown);
/* How many locks the machine has, by the last look; at most some 100,000 are seen. */
uint64_t kernel_locks_count(const struct kernel_locks *k);
