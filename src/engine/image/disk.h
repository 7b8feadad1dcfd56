/*
 * A writable layer on disk: an ext4 filesystem in a file that has no name, behind a loop device that frees itself.
 * Whatever dies, nothing of it stays behind. Or, for a sandbox that is to come back after a reboot, in a file with a name,
 * with a journal, so that it is whole whenever it is opened again.
 */
#pragma once
#include <stdint.h>

#include "engine/image/fill.h"

/* Returns a detached mount or -errno. @by makes its filesystem. */
int disk_new(const struct image_filler *by, uint64_t size, uint64_t inodes, struct err *e);
/*
 * The disk @id in the folder @dir. A new one must not exist yet; one that is used again must: ERR_LOST. ERR_CONFLICT
 * (-EBUSY) while another mount has it: its file is locked as long as it has a loop device, of any process.
 */
enum disk_way { DISK_NEW, DISK_AGAIN };
int disk_kept(const struct image_filler *by, int dir, const char *id, enum disk_way way, uint64_t size, uint64_t inodes,
	      struct err *e);
/* See engine/sandbox/sandbox.h. */
int disk_next(int dir, const char *id, char *ret, struct err *e);
/*
 * Aside: a disk that no row names. It is moved to the folder "quarantine" of the disks, for an administrator to check
 * and delete.
 */
enum disk_end { DISK_AWAY, DISK_ASIDE };
#define DISK_QUARANTINE "quarantine"
int disk_remove(int dir, const char *id, enum disk_end end, struct err *e);
/* Of an empty file. ERR_REFUSED: no file can be so large here. */
int disk_size(int file, uint64_t size, struct err *e);
/* Makes an empty ext4 filesystem of the whole file. @journal: MiB; 0: none. */
int disk_format(int file, uint64_t inodes, unsigned journal, struct err *e);
/* A mount of an ext4 block device that was made for it. Size and inodes are its maker's matter. */
int disk_open(const char *device, struct err *e);
