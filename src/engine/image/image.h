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
	/*
	 * what a sandbox has of the three below its overlay, as one read-only tree of mounts; -1: none, they are copied one by one
	 */
	int tree;
	int layers; /* a mount of the sealed layers, in the pool's mount namespace; -1 in the warden's own */
	struct group_stock groups; /* parts of agents' trees, also only in the pool's mount namespace */
	struct image_filler filler;
};

void image_host_init(struct image_host *h);
void image_host_done(struct image_host *h);
/*
 * Opens image `host` in the folder @cache, and makes both if they are missing. Device nodes are made only with
 * @devices. @by fills the image, and later the folders of image_cpus().
 */
int image_host_open(const char *cache, bool devices, const struct image_filler *by, struct image_host *ret,
		    struct err *e);
/* Makes ->tree, if it can be copied without being attached; see env->stage. */
void image_host_join(struct image_host *h);
/*
 * Opens the folder with the files that show a sandbox its @cpus processors: cpuinfo, stat, sys/. It is made on first
 * use after each boot of the host, and kept beside the skeleton. A descriptor, or -errno.
 */
int image_cpus(const struct image_host *h, unsigned cpus, struct err *e);
