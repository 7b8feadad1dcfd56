/*
 * A writable layer on disk: an ext4 filesystem in a file that has no name, behind a loop device that frees itself.
 * Whatever dies, nothing of it stays behind. Or, for a sandbox that is to come back after a reboot, in a file with a name,
 * with a journal, so that it is whole whenever it is opened again.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"

/* Returns a detached mount or -errno. */
int disk_new(uint64_t size, uint64_t inodes, struct err *e);
/*
 * The disk @id in the folder @dir. A new one must not be there yet; one that goes on must: ERR_LOST. ERR_CONFLICT (-EBUSY)
 * while another mount has it: its file is locked for as long as its loop device is there, whoever made that.
 */
enum disk_way { DISK_NEW, DISK_AGAIN };
int disk_kept(int dir, const char *id, enum disk_way way, uint64_t size, uint64_t inodes, struct err *e);
/* See engine/sandbox/sandbox.h. */
int disk_next(int dir, const char *id, char *ret, struct err *e);
/* Aside: nobody knows it. It is moved to the folder "quarantine" of the disks, for people to look at and to delete. */
enum disk_end { DISK_AWAY, DISK_ASIDE };
#define DISK_QUARANTINE "quarantine"
int disk_remove(int dir, const char *id, enum disk_end end, struct err *e);
/* Of an empty file. ERR_REFUSED: no file can be so large here. */
int disk_size(int file, uint64_t size, struct err *e);
/* Makes an empty ext4 filesystem of the whole file. */
int disk_format(int file, uint64_t inodes, struct err *e);
/* A mount of an ext4 block device that was made for it. Size and inodes are its maker's matter. */
int disk_open(const char *device, struct err *e);
