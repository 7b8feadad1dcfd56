/*
 * What of a sandbox's mounts needs no image: its writable layer, and what /proc and /sys tell of its size. Sent to the
 * agent before the image is known, so that a sandbox from the pool only waits for the image itself.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "warden/env.h"
#include "warden/shell.h"
#include "warden/upper.h"

struct early {
	int upper; /* -1 = nothing was sent yet */
	int meminfo; /* its text can be written anew */
	unsigned cpus; /* as many are shown */
	uint64_t size, inodes; /* of the layer */
};

void early_init(struct early *y);
void early_done(struct early *y);
/* @img: where what is shown of the CPUs is kept, in a mount namespace that is the caller's. */
int early_make(struct env *v, const struct image_host *img, const struct shell *s, const struct upper_opts *o,
	       unsigned cpus, struct early *ret, struct err *e);
/* Writes /proc/meminfo's text. */
int early_meminfo(const struct early *y, uint64_t limit, uint64_t used);
