/*
 * The agent's base (agent/blank.c) with a sandbox's control groups of version 1 in it, as agent/group_view.c mounts them where this is
 * missing. It is made once for a slot and copied whole for each sandbox that has the slot: one call of the kernel instead of ten, and
 * the pool's own mount namespace, which agents start in, does not have the host's groups.
 */
#pragma once
#include "linux/cgroup.h"

/* What the trees are made of: mounts that are attached nowhere and can be copied in the mount namespace they were made in. */
struct group_stock {
	/* with all of it that no sandbox has of its own; -1 = there are no trees, agents mount what they can */
	int base;
	int from[CGROUP_CONTROLLERS]; /* the host's folders that sandboxes have their groups in, or -1 */
	int foreign[2]; /* mounts of controllers that they have no group in, or -1: until ->base is made */
};

void group_stock_init(struct group_stock *k);
void group_stock_done(struct group_stock *k);
/* Copies the host's mounts, by the paths they have in our mount namespace. @mask: the controllers that sandboxes have groups in. */
int group_stock_open(struct group_stock *k, const struct cgroup_host *h, unsigned mask);
/* Then, or later with another root: makes ->base. @base: the folder. -errno: there are no trees. */
int group_stock_fill(struct group_stock *k, int base);

/* A tree with the folders of @c. The mount, attached nowhere, or -errno. */
int group_tree_make(const struct group_stock *k, const struct cgroup *c);
/* The same once more, for an agent. */
int group_tree_copy(int tree);
