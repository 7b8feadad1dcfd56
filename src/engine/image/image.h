/*
 * Root filesystems. `host` is the machine's own /usr over a small skeleton (a curated /etc, empty homes, device
 * nodes) that is made once, kept in a cache folder, and made anew when what it was copied from changes.
 */
#pragma once
#include <stdbool.h>

#include "base/err.h"
#include "engine/image/fill.h"
#include "engine/image/group_tree.h"

struct image_host {
	int lock; /* the skeleton's folder, share-locked for as long as it is in use */
	int root; /* the skeleton of / */
	int dev; /* the device folder; -1 without root */
	int base; /* the agent's first root */
	int usr; /* the host's /usr */
	int dpkg; /* the host's /var/lib/dpkg, -1 = there is none */
	int layers; /* the sealed layers, where the mount namespace is not the warden's own; -1 there */
	struct group_stock groups; /* there, too */
	struct image_filler filler;
};

void image_host_init(struct image_host *h);
void image_host_done(struct image_host *h);
/* @cache is made when missing. Device nodes are only made when @devices. @by fills it, and later what image_cpus() makes. */
int image_host_open(const char *cache, bool devices, const struct image_filler *by, struct image_host *ret,
		    struct err *e);
/*
 * A folder with what a sandbox of @cpus processors is shown: cpuinfo, stat, sys/. Made on first use since the machine
 * was started and kept with the skeleton. Returns its descriptor or -errno.
 */
int image_cpus(const struct image_host *h, unsigned cpus, struct err *e);
/* A root filesystem folder given by path. */
int image_open(const char *path, int *ret_fd, struct err *e);
