/*
 * Locks of files that no process has a descriptor for, so that no fdinfo shows them: a mapping keeps the file, a
 * message on a unix socket that was not received, or a system call that waits. /proc/locks has them, by the device and
 * inode of the file. It is expensive: a read goes through the list from its start, and all that lock wait meanwhile. So
 * it is read seldom, by a thread of its own, and only some places of it that a program cannot foresee; each line that
 * is found stands for many. A lock belongs to the sandbox
 *
 *   whose own file system the file is on (its overlay and tmpfs, which no other sandbox and not the host has), or
 *   that has mapped it, if it is a memfd.
 *
 * Others have no known owner: memfds, pipes and sockets in flight, and files that sandboxes share, like those of an
 * image. All functions: one thread at a time.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_LOCK_BYTES 224U /* struct file_lock, and its share of the inode's lists */
#define KERNEL_LOCKS_PAGES 6 /* places of /proc/locks in a sample */
#define KERNEL_LOCKS_LINES (KERNEL_LOCKS_PAGES * 128)
#define KERNEL_LOCKS_WORTH (1U << 20) /* bytes of locks: if there are fewer, mappings are not read */
#define KERNEL_LOCKS_DEVICES 64

struct kernel_lock {
	uint64_t dev, ino;
	/*
	 * a lock of an open file description, which can remain without a descriptor. Other locks end with the
	 * descriptor, or are one per file
	 */
	bool ofd;
};

/* Parses a line of /proc/locks. False: it is not a lock that is held. */
bool kernel_lock_parse(const char *line, struct kernel_lock *ret);
/* Parses a line of /proc/PID/maps. False: it is not the mapping of a file. */
bool kernel_lock_parse_map(const char *line, uint64_t *dev, uint64_t *ino);

struct kernel_locks;

/* Locks of one sandbox. All zero before the first look, except since_ns. */
struct kernel_locks_of {
	uint64_t sample; /* the last sample that was used */
	uint64_t mapping; /* the sample for which its mappings were read */
	uint64_t own, mapped; /* bytes, according to the two rules */
	uint64_t until_ns; /* when these figures expire */
	/*
	 * time of the first look. An earlier sample shows locks of others: device numbers of ended file systems are
	 * reused
	 */
	uint64_t since_ns;
	uint64_t not_before_ns; /* earlier samples do not count: what they show may have ended */
};

/* NULL: no memory. */
struct kernel_locks *kernel_locks_new(void);
/* Does not wait for the thread. NULL: does nothing. */
void kernel_locks_free(struct kernel_locks *k);

/*
 * How much time it takes. Slowly: once a second; when memory grows: a fifth of the time at most; when some were found
 * and more come: half of the time.
 */
enum kernel_locks_when { KERNEL_LOCKS_SLOWLY, KERNEL_LOCKS_SOON, KERNEL_LOCKS_NOW };
/* Starts a sample, unless one is under way or was taken a moment ago. */
void kernel_locks_start(struct kernel_locks *k, enum kernel_locks_when when);

/* Takes what the thread has found. True: kernel_locks_assign should be called. */
bool kernel_locks_news(struct kernel_locks *k, const struct kernel_locks_of *of);

struct kernel_locks_owner {
	uint64_t id; /* of the sandbox; never 0 */
	const uint64_t *device; /* device numbers of its own file systems */
	size_t ndevices;
	const int *pid; /* its processes */
	size_t npids;
};
/* Assigns locks to @o: updates @of by all that is known now. */
void kernel_locks_assign(struct kernel_locks *k, const struct kernel_locks_owner *o, struct kernel_locks_of *of);

/* Bytes of locks that descriptors show. */
struct kernel_locks_shown {
	uint64_t all;
	uint64_t shared; /* part of ->bytes on file systems that are not the sandbox's own */
	bool whole; /* all descriptors were looked at recently */
};
/*
 * The bytes of all locks of a sandbox. Those that descriptors do not show count for a moment after they were found; they count four
 * times: a look into /proc/locks is so slow that as many may come meanwhile.
 */
uint64_t kernel_locks_bytes_of(const struct kernel_locks_of *of, const struct kernel_locks_shown *shown);
/* The machine's number of locks at the last sample; only some 100,000 are seen. */
uint64_t kernel_locks_count(const struct kernel_locks *k);
