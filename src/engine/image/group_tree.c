/* Makes the mounts by which an agent shows its control groups. */
#include "engine/image/group_tree.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/mount.h"

#include <sys/stat.h>

#define ATTRS (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define USUAL "/sys/fs/cgroup/"

/* As agent/group_view.c shows them. */
static const struct {
	enum cgroup_controller id;
	const char *place;
} shown_groups[] = { { CGROUP_MEMORY, "c/memory" },
		     { CGROUP_PIDS, "c/pids" },
		     { CGROUP_CPU, "c/cpu" },
		     { CGROUP_CPUACCT, "c/cpuacct" } };

/* Java believes in version 1 only where these are mounted, too: covered, since what they show is the host's. */
static const char *const foreign[] = { "cpuset", "cpuacct" };

void group_stock_init(struct group_stock *k)
{
	k->base = -1;
	memset(k->from, 0xff, sizeof(k->from)); /* -1 */
	memset(k->foreign, 0xff, sizeof(k->foreign));
}

void group_stock_done(struct group_stock *k)
{
	fd_close(k->base);
	fd_close_many(k->from, ARRAY_LEN(k->from));
	fd_close_many(k->foreign, ARRAY_LEN(k->foreign));
	group_stock_init(k);
}

int group_stock_open(struct group_stock *k, const struct cgroup_host *h, unsigned mask)
{
	int r = 0;

	k->groups = h->version == 1;
	if (!k->groups)
		return 0;
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(shown_groups); i++)
		if (mask & CGROUP_BIT(shown_groups[i].id))
			r = k->from[shown_groups[i].id] = mount_clone_named(h->base[shown_groups[i].id], ATTRS);
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(foreign); i++) {
		char path[64];

		if (!strcmp(foreign[i], "cpuacct") && mask & CGROUP_BIT(CGROUP_CPUACCT))
			continue;
		snprintf(path, sizeof(path), USUAL "%s", foreign[i]);
		/* The host may not have it, or something mounted in it that may not be uncovered. */
		k->foreign[i] = mount_clone(AT_FDCWD, path, ATTRS, -1);
	}
	if (r < 0)
		group_stock_done(k);
	return r < 0 ? r : 0;
}

int group_stock_fill(struct group_stock *k, int base, int dev)
{
	AUTO_CLOSE int tree = mount_clone(base, "", ATTRS, -1);
	int r = tree < 0 ? tree : mount_put_copy(dev, "", ATTRS & ~(uint64_t)MOUNT_ATTR_NODEV, tree, "e");

	if (r == 0 && k->groups)
		r = mount_put_copy(base, "c", ATTRS, tree, "c"); /* so that all of it can be moved as one */
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(foreign); i++) {
		char place[32];

		if (k->foreign[i] < 0)
			continue;
		snprintf(place, sizeof(place), "c/%s", foreign[i]);
		r = mount_put(k->foreign[i], tree, place);
		if (r == 0)
			r = mount_put_copy(base, "k", ATTRS, tree, place);
		fd_close(TAKE_FD(k->foreign[i]));
	}
	if (r < 0)
		group_stock_done(k);
	else
		k->base = TAKE_FD(tree);
	return r;
}

int group_tree_show(const struct group_stock *k, int cpus, struct group_tree *t)
{
	AUTO_CLOSE int tree = -1;
	struct stat st;
	int r;

	if (fstat(cpus, &st) < 0)
		return -errno;
	if (t->shown == st.st_ino)
		return 0;
	tree = mount_copy_tree(k->base, -1);
	r = tree < 0 ? tree : mount_put_copy(cpus, "sys", ATTRS, tree, "s");
	if (r == 0)
		r = mount_put_copy(cpus, "", ATTRS, tree, "f");
	if (r < 0)
		return r;
	group_tree_done(t);
	*t = (struct group_tree){ st.st_ino, TAKE_FD(tree) };
	return 0;
}

void group_tree_done(struct group_tree *t)
{
	if (t->shown)
		fd_close(t->mnt);
	t->shown = 0;
}

int group_tree_make(const struct group_stock *k, int base, const struct cgroup *c)
{
	AUTO_CLOSE int tree = mount_copy_tree(base, -1);
	int r = tree < 0 ? tree : 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(shown_groups); i++)
		if (c->mask & CGROUP_BIT(shown_groups[i].id)) {
			AUTO_CLOSE int mnt = mount_copy(k->from[shown_groups[i].id], c->name, 0);

			r = mount_put(mnt, tree, shown_groups[i].place);
		}
	return r < 0 ? r : TAKE_FD(tree);
}
