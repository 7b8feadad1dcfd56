/* Everything that is mounted for one sandbox, put together on the host and handed to its agent as one SETUP frame. */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "engine/blank/blank.h"
#include "engine/blank/env.h"
#include "engine/rootfs/premount.h"
#include "engine/spec.h"
#include "proto/frame.h"

#define ROOT_LAYERS_MAX (4 + FRAME_NUMBERS_SETS)

struct root {
	struct premount premount; /* the writable layer: also used to read how full the disk is */
	int layers[ROOT_LAYERS_MAX]; /* lower layers of the overlays: closed with the sandbox when not parked */
	unsigned nlayers;
	/* the sealed layers with the sandbox's ids, until its overlays are mounted; -1. Closing it may block */
	int store;
	bool idmapped;
	uint64_t disk, inodes; /* what is enforced */
	/* The frame. */
	struct frame_setup setup;
	int fds[FRAME_MOUNTS_MAX];
};

void root_init(struct root *r);
void root_done(struct root *r);
/* Limits that follow from others: files in memory count as memory, so they never get all of it. */
void root_limits(const struct sandbox_spec *spec, uint64_t *ret_disk, uint64_t *ret_inodes);
/*
 * @img: image `host`, in the caller's mount namespace. @premount: what was sent ahead, taken over in any case; one that is
 * empty is made. @devices: files that come with devices, checked; or NULL. Builds the mounts and the frame; strings in it point into @spec and @devices.
 */
int root_build(struct env *v, const struct image_host *img, const struct blank *s, const struct sandbox_spec *spec,
	       const struct device_plan *devices, struct premount *premount, struct root *ret, struct err *e);
/* Only what is laid over /usr and dpkg's folder of image `host`, to be attached by the caller: ->fds, ->setup.mounts. */
#define ROOT_DPKG "/var/lib/dpkg"
#define ROOT_SYSTEM_USR 1U
#define ROOT_SYSTEM_DPKG 2U /* if the image has one */
int root_system(struct env *v, const struct image_host *img, const struct blank *s, int writable, unsigned which,
		struct root *ret, struct err *e);
/* Sends it; the descriptors stay open until root_done(), or the caller closes ->fds, which only had to be sent. */
int root_send(struct root *r, int sock, struct err *e);
