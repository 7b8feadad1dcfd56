/* Files that virtual machines need: the kernel of `make vm-kernel`, programs of this build, disks, images. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"

/* Whether everything that a machine needs is installed. Starts nothing. */
int vm_ready(struct err *e);
/* A file of the folder `vm`, beside this program or in its libexec folder, which `make vm-kernel` has filled. */
int vm_file(const char *name, char *buf, size_t size, struct err *e);
/* The initramfs of this build: modules, PID 1, the agent. A descriptor without a name, sealed. */
int vm_initrd(int *ret, struct err *e);
/* Makes the empty file @fd a disk for a sandbox's changes. 0: default sizes. */
int vm_disk(int fd, uint64_t size, uint64_t inodes, struct err *e);
/* Identifies QEMU, the kernel and this build's programs, without reading them. */
int vm_identity(uint8_t ret[SHA256_SIZE], struct err *e);
/* Adds the attributes by which a file that was replaced is recognized. */
int vm_add_identity(struct sha256 *s, const char *path, struct err *e);
int vm_sum(int fd, uint8_t ret[SHA256_SIZE]); /* the sum of a file's whole content; 0 or -errno */
int vm_kernel_sum(uint8_t ret[SHA256_SIZE], struct err *e);

/* The progress of a long task: each field is read and written by itself, atomically. */
enum vm_step { VM_STEP_NONE, VM_STEP_WALK, VM_STEP_OTHER, VM_STEP_MKFS, VM_STEP_DISK };
struct vm_pace {
	int *stop; /* once not 0, the task gives up soon */
	int step; /* enum vm_step */
	uint64_t bytes; /* bytes written, in VM_STEP_MKFS */
	int report; /* a socket that gets each change (task.h); -1: none */
};
void vm_pace_set(struct vm_pace *p, enum vm_step step, uint64_t bytes);
bool vm_pace_stopped(const struct vm_pace *p);
/* Locks @fd, waiting for its present holder. -ECANCELED when the task is given up. */
int vm_pace_lock(struct vm_pace *p, int fd);

#define VM_IMAGE_PART ".erofs.part" /* suffix of an image in the making */

struct vm_cache {
	int dir; /* open; stays the caller's */
	const char *path;
};
/* The cache folder for images and for what is known of this host: its path and a descriptor. */
int vm_cache_open(char *folder, size_t size, struct err *e);
/*
 * Makes the folder @dir (an image's root; @key: its name, the same in each run) an erofs file in the cache, unless an
 * up-to-date one is there. *ret is open for reading; @ret_id identifies its content. Slow; @p reports its progress, and
 * stops it.
 */
int vm_image(const struct vm_cache *c, const char *key, int dir, struct vm_pace *p, int *ret,
	     uint8_t ret_id[SHA256_SIZE], struct err *e);
/* The same for a folder whose content never changes: @name is that of its file. */
int vm_image_fixed(const struct vm_cache *c, const char *key, const char *name, int dir, struct vm_pace *p, int *ret,
		   struct err *e);
