/*
 * Mounts of a sandbox that need no image: its writable layer, and the files of /proc and /sys with its size. Sent to
 * the agent before the image is known, so that a sandbox from the pool only waits for the image itself.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "engine/blank/blank.h"
#include "engine/blank/env.h"
#include "engine/rootfs/writable.h"

struct premount {
	int writable; /* -1 = nothing was sent yet */
	int meminfo; /* also used to read how full the layer is */
	unsigned cpus; /* as many are shown */
	uint64_t size, inodes; /* of the layer */
};

void premount_init(struct premount *y);
void premount_done(struct premount *y);
/* @img: where what is shown of the CPUs is kept, in a mount namespace that is the caller's. */
int premount_make(struct env *v, const struct image_host *img, const struct blank *s, const struct writable_opts *o,
		  unsigned cpus, struct premount *ret, struct err *e);
/* Writes the contents of /proc and /sys/fs/cgroup files before any process runs: meminfo, loadavg, cpu.max. */
int premount_show(const struct premount *y, uint64_t memory, uint32_t cpu_milli);
