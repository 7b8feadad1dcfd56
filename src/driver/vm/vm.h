/* The VM tier's own parts. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A file of the folder `vm`, beside this program or in its libexec folder: what `make vm-kernel` made. */
int vm_file(const char *name, char *buf, size_t size, struct err *e);
/* The initramfs of this build: modules, PID 1, the agent. A descriptor without a name. */
int vm_initrd(int *ret, struct err *e);
/* An empty disk for a sandbox's changes. A descriptor without a name. */
int vm_disk(uint64_t size, uint64_t inodes, int *ret, struct err *e);
/* A root filesystem folder as an erofs image: made once, kept in the cache, made again when anything in it changes. */
int vm_image(const char *path, int *ret, struct err *e);
/* The same of a folder that is open. @key: what it is called, from one run to the next. */
int vm_image_of(const char *key, int dir, int *ret, struct err *e);
