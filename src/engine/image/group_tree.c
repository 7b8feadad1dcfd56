/* Makes the mounts by which an agent shows its control groups. */
#include "engine/image/group_tree.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/mount.h"

#include <sys/stat.h>
#include <unistd.h>

#define ATTRS (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define USUAL "/sys/fs/cgroup/"

/* As agent/group_view.c shows them. */
static const struct {
	enum cgroup_controller id;
	const char *place;
} shown[] = { { CGROUP_MEMORY, "c/memory" },
	      { CGROUP_PIDS, "c/pids" },
	      { CGROUP_CPU, "c/cpu" },
	      { CGROUP_CPUACCT, "c/cpuacct" } };

/* Java believes in version 1 only where these are mounted, too: covered, since what they show is the host's. */
static const char *const foreign[] = { "cpuset", "cpuacct" };

void group_stock_init(struct group_stock *k)
{
	k->base = -1;
	for (size_t i = 0; i < ARRAY_LEN(k->from); i++)
		k->from[i] = -1;
	for (size_t i = 0; i < ARRAY_LEN(k->foreign); i++)
		k->foreign[i] = -1;
}

void group_stock_done(struct group_stock *k)
{
	fd_close(k->base);
	fd_close_many(k->from, ARRAY_LEN(k->from));
	fd_close_many(k->foreign, ARRAY_LEN(k->foreign));
	group_stock_init(k);
}

/* A copy of the mount that the folder @fd is in, of the same name in our mount namespace: there @fd itself cannot be copied. */
static int copy_by_name(int fd)
{
	char link[32], path[512];
	struct stat want, have;
	ssize_t n;
	int mnt;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	mnt = mount_clone(AT_FDCWD, path, ATTRS, -1);
	if (mnt >= 0 && fstat(fd, &want) == 0 && fstat(mnt, &have) == 0 && want.st_dev == have.st_dev &&
	    want.st_ino == have.st_ino)
		return mnt;
	fd_close(mnt);
	return mnt < 0 ? mnt : -ESTALE;
}

int group_stock_open(struct group_stock *k, const struct cgroup_host *h, unsigned mask)
{
	int r = 0;

	if (h->version != 1)
		return -EOPNOTSUPP;
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(shown); i++)
		if (mask & CGROUP_BIT(shown[i].id))
			r = k->from[shown[i].id] = copy_by_name(h->base[shown[i].id]);
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

/* Puts the mount @mnt on @place below @tree. */
static int put(int mnt, int tree, const char *place)
{
	AUTO_CLOSE int at = mnt < 0 ? mnt : sys_openat(tree, place, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

	return at < 0 ? at : mount_attach_at(mnt, at, 0);
}

static int put_copy(int from, const char *path, int tree, const char *place)
{
	AUTO_CLOSE int mnt = mount_clone(from, path, ATTRS, -1);

	return put(mnt, tree, place);
}

int group_stock_fill(struct group_stock *k, int base)
{
	AUTO_CLOSE int tree = mount_clone(base, "", ATTRS, -1);
	int r = tree < 0 ? tree : put_copy(base, "c", tree, "c"); /* so that all of it can be moved as one */

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(foreign); i++) {
		char place[32];

		if (k->foreign[i] < 0)
			continue;
		snprintf(place, sizeof(place), "c/%s", foreign[i]);
		r = put(k->foreign[i], tree, place);
		if (r == 0)
			r = put_copy(base, "k", tree, place);
		fd_close(TAKE_FD(k->foreign[i]));
	}
	if (r < 0) {
		group_stock_done(k);
		return r;
	}
	k->base = TAKE_FD(tree);
	return 0;
}

int group_tree_copy(int tree)
{
	return sys_open_tree(tree, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
}

int group_tree_make(const struct group_stock *k, const struct cgroup *c)
{
	AUTO_CLOSE int tree = group_tree_copy(k->base);
	int r = tree < 0 ? tree : 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(shown); i++)
		if (c->mask & CGROUP_BIT(shown[i].id))
			r = put_copy(k->from[shown[i].id], c->name, tree, shown[i].place);
	return r < 0 ? r : TAKE_FD(tree);
}
