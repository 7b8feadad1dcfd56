/* What virtual machines are made of: the kernel of `make vm-kernel`, programs of this build, disks, images. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"

/* Whether what a machine needs is installed. Starts none. */
int vm_ready(struct err *e);
/* A file of the folder `vm`, beside this program or in its libexec folder: what `make vm-kernel` made. */
int vm_file(const char *name, char *buf, size_t size, struct err *e);
/* The initramfs of this build: modules, PID 1, the agent. A descriptor without a name, sealed. */
int vm_initrd(int *ret, struct err *e);
/* Makes the empty file @fd a disk for a sandbox's changes. 0: sizes by default. */
int vm_disk(int fd, uint64_t size, uint64_t inodes, struct err *e);
/* Which QEMU, kernel and programs of ours there are, without reading them. */
int vm_identity(uint8_t ret[SHA256_SIZE], struct err *e);
/* Of that, what a kernel boots or not with: QEMU and the kernel itself. */
int vm_board_id(uint8_t ret[SHA256_SIZE], struct err *e);
int vm_sum(int fd, uint8_t ret[SHA256_SIZE]); /* of all that is in a file; 0 or -errno */
int vm_kernel_sum(uint8_t ret[SHA256_SIZE], struct err *e);

/* What somebody who takes long is at, for another thread: each field by itself, atomically. */
enum vm_step { VM_STEP_NONE, VM_STEP_WALK, VM_STEP_OTHER, VM_STEP_MKFS, VM_STEP_DISK };
struct vm_pace {
	int *stop; /* not 0 any more: give up soon */
	int step; /* enum vm_step */
	uint64_t bytes; /* written, of VM_STEP_MKFS */
};
void vm_pace_set(struct vm_pace *p, enum vm_step step, uint64_t bytes);
bool vm_pace_stopped(const struct vm_pace *p);
/* Locks @fd for ourselves, waiting for who has it. -ECANCELED when told to give up. */
int vm_pace_lock(struct vm_pace *p, int fd);

/* The folder of the cache that images, and what is known of this host, are kept in: its path, and open. */
int vm_cache_open(char *folder, size_t size, struct err *e);
/*
 * The folder @dir (an image's root; @key: what it is called, from one run to the next) as an erofs file: made once, kept
 * in the cache, made again when anything in it changes. *ret is open for reading; @ret_id names what is in it. Takes
 * long; @p says how far it is, and stops it.
 */
int vm_image(const char *key, int dir, struct vm_pace *p, int *ret, uint8_t ret_id[SHA256_SIZE], struct err *e);
