/* What virtual machines are made of: the kernel of `make vm-kernel`, programs of this build, disks, images. */
#pragma once
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
int vm_sum(int fd, uint8_t ret[SHA256_SIZE]); /* of all that is in a file; 0 or -errno */
int vm_kernel_sum(uint8_t ret[SHA256_SIZE], struct err *e);

/*
 * The folder @dir (an image's root; @key: what it is called, from one run to the next) as an erofs file: made once, kept
 * in the cache, made again when anything in it changes. *ret is open for reading; @ret_id names what is in it. Takes
 * long; making it is given up when *stop is not 0 any more.
 */
int vm_image(const char *key, int dir, const int *stop, int *ret, uint8_t ret_id[SHA256_SIZE], struct err *e);
