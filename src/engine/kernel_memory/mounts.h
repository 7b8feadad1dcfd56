/*
 * Which paths of a sandbox are on an overlay, by the mount points of its first process, which programs in a sandbox cannot change.
 * No file system is asked: the server of one may be gone.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define KERNEL_MOUNTS_MOST 256

struct kernel_mounts {
	unsigned n;
	struct {
		const char *path; /* points into ->text */
		size_t len;
		uint64_t dev; /* device of an overlay; 0: it is not one */
		uint64_t any; /* device of any file system */
	} mount[KERNEL_MOUNTS_MOST];
	char text[64 << 10];
};

/* Reads those of the process @pid. None when it has ended. */
void kernel_mounts_read(struct kernel_mounts *m, int pid);
/* The device of the overlay that @path is on. 0: it is on another file system. */
uint64_t kernel_mounts_overlay(const struct kernel_mounts *m, const char *path);
/*
 * The devices that @m has and this process has not: file systems of the sandbox's own. At most @max of them; returns
 * how many.
 */
size_t kernel_mounts_own(const struct kernel_mounts *m, uint64_t *dev, size_t max);
