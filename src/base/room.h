/*
 * Free space on a disk that several kinds of data fill, some of them on behalf of any caller. The kind that needs most
 * stops first: layers must leave ROOM_LAYERS free, kept output ROOM_OUTPUT, and new work is refused at ROOM_WORK. So
 * one caller's checkpoints or output do not stop the work of others, and the last space is reserved for records that
 * must always be written: that something has ended or was deleted.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum room_use { ROOM_WORK = 1, ROOM_OUTPUT, ROOM_LAYERS };

struct room {
	/* Free for users other than root, also when root asks. UINT64_MAX: the file system has no size (in memory). */
	uint64_t left;
	uint64_t size;
};

/* Of the disk that @path is on, from the folder @dir (or AT_FDCWD). -errno. */
int room_of(int dir, const char *path, struct room *ret);
/* Likewise of an open file. */
int room_of_fd(int fd, struct room *ret);
/*
 * Allocates @len bytes from @from on for an open file, whose size does not change: later writes to that range succeed
 * also on a full disk. Returns 0 also where the file system cannot do that, -ENOSPC or another -errno otherwise.
 */
int room_ahead(int fd, uint64_t from, uint64_t len);
/* Whether @errnum (or -errno) says that a disk is full. */
bool room_lacks(int errnum);
/* What @use must leave of it. */
uint64_t room_low(const struct room *r, enum room_use use);
