/*
 * Trees of mounts for agents: the agent's base (agent/blank.c) with the control groups (version 1) of one slot mounted
 * in it. A tree is made once for a slot, and copied whole for each sandbox with that slot: one system call instead of
 * ten. Agents start in the pool's own mount namespace, which does not have the host's groups, so they could not mount
 * them themselves. Without a tree, agent/group_view.c makes the same mounts.
 */
#pragma once
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
	int foreign[2]; /* mounts of controllers in which sandboxes have no group; -1: none, and after ->base is made */
};

void group_stock_init(struct group_stock *k);
void group_stock_done(struct group_stock *k);
/* Copies the host's mounts, by the paths they have in our mount namespace. @mask: the controllers that sandboxes have groups in. */
int group_stock_open(struct group_stock *k, const struct cgroup_host *h, unsigned mask);
/*
 * Makes ->base from the folder @base, after group_stock_open(), possibly under another root. -errno: there are no
 * trees.
 */
int group_stock_fill(struct group_stock *k, int base);

/* Makes a tree with the groups of @c: a mount that is attached nowhere, or -errno. */
int group_tree_make(const struct group_stock *k, const struct cgroup *c);
/* Copies a tree for an agent: a mount, or -errno. */
int group_tree_copy(int tree);
