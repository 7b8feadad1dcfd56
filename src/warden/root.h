/* Everything that is mounted for one sandbox, put together on the host and handed to its agent as one SETUP frame. */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "proto/frame.h"
#include "warden/env.h"
#include "warden/shell.h"
#include "warden/spec.h"

#define ROOT_LAYERS_MAX 4

struct root {
	int upper; /* also tells how full the disk is */
	int meminfo; /* its text can be written anew */
	int layers[ROOT_LAYERS_MAX]; /* what overlays stand on: closed with the sandbox when not parked */
	unsigned nlayers;
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
 * @upper: one prepared by upper_new with default options, taken over on success; -1 makes one. Builds the mounts and
 * the frame; strings in it point into @spec.
 */
int root_build(struct env *v, const struct shell *s, const struct sandbox_spec *spec, int upper, struct root *ret,
	       struct err *e);
/* Sends it and closes what only had to be sent. */
int root_send(struct root *r, int sock, struct err *e);
/* Writes /proc/meminfo's text. */
int root_meminfo(const struct root *r, uint64_t limit, uint64_t used);
