/*
 * Trees of mounts for agents: the agent's base (agent/blank.c) with what no request decides mounted in it: devices, the files that show
 * processors, and the control groups (version 1) of one slot. A tree is made once and copied whole for each sandbox: each mount
 * that is copied or attached by itself takes the one lock that the kernel has for all mount trees of the host. Agents also start in the
 * pool's own mount namespace, which does not have the host's groups, so they could not mount them themselves. Without a tree, agents
 * (agent/blank.c, agent/group_view.c) and engine/rootfs/premount.c make the same mounts.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "linux/cgroup.h"

/*
 * The parts of trees: mounts that are attached nowhere. They can be copied only in the mount namespace in which they
 * were made.
 */
struct group_stock {
	/*
	 * the base with all that is the same for every sandbox; -1: there are no trees, and agents mount what they can
	 */
	int base;
	/* for each controller, the host's folder that has the groups of sandboxes; -1: none */
	int from[CGROUP_CONTROLLERS];
	bool groups; /* they are of version 1, and belong into the tree */
	int foreign[2]; /* mounts of controllers in which sandboxes have no group; -1: none, and after ->base is made */
};

void group_stock_init(struct group_stock *k);
void group_stock_done(struct group_stock *k);
/* Copies the host's mounts, by the paths they have in our mount namespace. @mask: the controllers that sandboxes have groups in. */
int group_stock_open(struct group_stock *k, const struct cgroup_host *h, unsigned mask);
/*
 * Makes ->base from the folders @base and @dev, after group_stock_open(), possibly under another root. -errno: there are no
 * trees.
 */
int group_stock_fill(struct group_stock *k, int base, int dev);

/* A tree without groups. */
struct group_tree {
	uint64_t
		shown; /* the inode of the folder with the files of the processors that it shows; 0: there is no tree */
	int mnt;
};

/* Makes @t anew unless it shows the folder @cpus (image_cpus()). 0 or -errno. */
int group_tree_show(const struct group_stock *k, int cpus, struct group_tree *t);
void group_tree_done(struct group_tree *t);
/* Makes a copy of the tree @base with the groups of @c in it: a mount that is attached nowhere, to be copied for agents; or -errno. */
int group_tree_make(const struct group_stock *k, int base, const struct cgroup *c);
