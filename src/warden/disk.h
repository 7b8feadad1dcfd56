/*
 * A writable layer on disk: an ext4 filesystem in a file that has no name, behind a loop device that frees itself.
 * Whatever dies, nothing of it stays behind.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"

/* Returns a detached mount or -errno. */
int disk_new(uint64_t size, uint64_t inodes, struct err *e);
/* Of an empty file. ERR_REFUSED: no file can be so large here. */
int disk_size(int file, uint64_t size, struct err *e);
/* Makes an empty ext4 filesystem of the whole file. */
int disk_format(int file, uint64_t inodes, struct err *e);
/* A mount of an ext4 block device that was made for it. Size and inodes are its maker's matter. */
int disk_open(const char *device, struct err *e);
