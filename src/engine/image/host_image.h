/* Filling the skeleton of image `host`. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A number that changes when anything the skeleton is made from changes. */
uint64_t host_image_key(void);
/* Fills the empty folder @dir: root/, base/, and dev/ when @devices. */
int host_image_fill(int dir, bool devices, struct err *e);
/* What a device folder holds besides the nodes: links, and places for pts and shm. */
int host_image_link_devices(int dev);
/*
 * A device folder of one sandbox's own, with a "kvm" that only @owner may open: a detached mount with @attrs, or -errno. Any
 * thread's.
 */
int host_image_devices_kvm(uint32_t owner, unsigned attrs);
/* Removes @name below @dirfd with all it holds. Best effort: 0 or the first -errno. */
int host_image_remove(int dirfd, const char *name);
