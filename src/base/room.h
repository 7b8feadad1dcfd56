/*
 * Room on a disk that several things fill, some of them for anybody who asks. Who needs most stops first: layers leave
 * ROOM_LAYERS, kept output ROOM_OUTPUT, and new work ends at ROOM_WORK. So nobody's checkpoints or output keep others
 * from working, and what is left is for what must be noted all the same: that something ended, or was deleted.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum room_use { ROOM_WORK = 1, ROOM_OUTPUT, ROOM_LAYERS };

struct room {
	/* For who is not root, whoever asks: the rest is the machine's own. UINT64_MAX: its size is not told (in memory). */
	uint64_t left;
	uint64_t size;
};

/* Of the disk that @path is on, from the folder @dir (or AT_FDCWD). -errno. */
int room_of(int dir, const char *path, struct room *ret);
/* Likewise of an open file. */
int room_of_fd(int fd, struct room *ret);
/*
 * Takes @len bytes from @from on for an open file, whose size stays: what is written there later needs no room of the disk,
 * not even on one that is full. 0 also where the file system cannot do that. -ENOSPC or another -errno.
 */
int room_ahead(int fd, uint64_t from, uint64_t len);
/* Whether @errnum (or -errno) says that a disk is full. */
bool room_lacks(int errnum);
/* What @use must leave of it. */
uint64_t room_low(const struct room *r, enum room_use use);
