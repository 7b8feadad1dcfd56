/* Where a sandbox's changes go: a filesystem of its own with a size and a number of inodes, in memory or on disk. */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "engine/blank/env.h"

struct writable_opts {
	uint64_t size, inodes; /* 0 = not limited (disk: 16 GiB) */
	uint32_t uid_base;
	bool disk, read_only_root, system_writable;
	bool own_homes; /* layers show foreign owners: make the writable places here */
	uint32_t uid, gid; /* inside */
	const char *kept; /* with ->disk: the id of one that stays; "" or NULL: of none */
	bool again; /* and is there already */
};

/*
 * Returns a mount (staged when the host needs that) holding u and w (overlay of /), shm, meminfo, loadavg, cpu.max; uu, uw, ud, dw
 * (overlays of /usr and /var/lib/dpkg) when ->system_writable; t and k (/tmp and the work folder), tw and kw when ->read_only_root.
 */
int writable_new(struct env *v, const struct writable_opts *o, struct err *e);
/* For one prepared ahead with @size and @inodes: sets others, and makes what the options ask for beyond the default. */
int writable_fit(int writable, const struct writable_opts *o, uint64_t size, uint64_t inodes, struct err *e);
