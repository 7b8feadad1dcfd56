/* The device folder that a sandbox is given. */
#pragma once
#include <stdint.h>

#include "proto/device_plan.h"

/* Fills the empty folder @dev: nodes, links, and places for pts, mqueue and shm. 0 or -errno, as all of these. */
int device_folder_fill(int dev);
/* The same without the nodes. */
int device_folder_link(int dev);
struct device_owner {
	uint32_t base; /* inside id 0 is this one outside */
	uint32_t uid, gid; /* inside */
};
/*
 * A device folder of one sandbox's own, with the nodes of @p beside the usual ones: a detached mount with @attrs, or -errno. A node
 * that can be read and written has the owner and mode that @p says, or the sandbox's user. Any thread's.
 */
int device_folder_own(const struct device_plan *p, const struct device_owner *o, unsigned attrs);
extern const struct device_plan device_kvm; /* /dev/kvm for the user alone */
