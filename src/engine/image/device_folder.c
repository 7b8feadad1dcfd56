/* Makes the device folders of sandboxes. */
#include "engine/image/device_folder.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/mount.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

int device_folder_link(int dev)
{
	static const char *const to[][2] = { { "/proc/self/fd", "fd" },
					     { "/proc/self/fd/0", "stdin" },
					     { "/proc/self/fd/1", "stdout" },
					     { "/proc/self/fd/2", "stderr" },
					     { "pts/ptmx", "ptmx" } };
	int r = 0;

	for (size_t k = 0; r == 0 && k < ARRAY_LEN(to); k++)
		r = sys_symlinkat(to[k][0], dev, to[k][1]);
	if (r == 0)
		r = sys_mkdirat(dev, "pts", 0755);
	/* Covered by the sandbox's own, as the next one. */
	if (r == 0)
		r = sys_mkdirat(dev, "mqueue", 0755);
	return r == 0 ? sys_mkdirat(dev, "shm", 0755) : r;
}

int device_folder_fill(int dev)
{
	static const struct {
		const char *name;
		unsigned major, minor;
	} nodes[] = { { "null", 1, 3 },	  { "zero", 1, 5 },    { "full", 1, 7 },
		      { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 } };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(nodes); i++) {
		r = sys_mknodat(dev, nodes[i].name, S_IFCHR | 0666, (unsigned)makedev(nodes[i].major, nodes[i].minor));
		/* Whatever the umask: that is all threads'. */
		if (r == 0 && fchmodat(dev, nodes[i].name, 0666, 0) < 0)
			r = -errno;
	}
	return r == 0 ? device_folder_link(dev) : r;
}

/* @path below @dev; its folders are made. */
static int make_node(int dev, const struct device_node *n, const struct device_owner *o)
{
	const uint32_t both = DEVICE_READ | DEVICE_WRITE,
		       rights = (n->may & DEVICE_READ ? 0444 : 0) | (n->may & DEVICE_WRITE ? 0222 : 0);
	char path[DEVICE_PATH];
	int r = 0;

	memcpy(path, n->to, sizeof(path));
	for (char *p = path; r == 0 && (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		r = sys_mkdirat(dev, path, 0755);
		r = r == -EEXIST ? 0 : r;
	}
	if (r == 0)
		r = sys_mknodat(dev, path, (n->block ? S_IFBLK : S_IFCHR) | 0600,
				(unsigned)makedev(n->major, n->minor));
	/* With less than all rights no user inside owns it, since an owner may change the mode. */
	if (r == 0 && n->may == both)
		r = sys_fchownat(dev, path, o->base + (n->uid == DEVICE_NO_ID ? o->uid : n->uid),
				 o->base + (n->gid == DEVICE_NO_ID ? o->gid : n->gid), AT_SYMLINK_NOFOLLOW);
	if (r == 0 && fchmodat(dev, path, n->may == both ? n->mode : rights, 0) < 0)
		r = -errno;
	return r;
}

int device_folder_own(const struct device_plan *p, const struct device_owner *o, unsigned attrs)
{
	const struct mount_opt opts[] = {
		{ "mode", "0755" }, { "size", "64k" }, { "nr_inodes", "256" }, { NULL, NULL }
	};
	struct mount_attr last = { .attr_set = attrs };
	AUTO_CLOSE int mnt = mount_new("tmpfs", opts, attrs & ~MOUNT_ATTR_RDONLY), dev = -1;
	int r = mnt;

	if (r >= 0)
		r = dev = sys_openat(mnt, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (r >= 0)
		r = device_folder_fill(dev);
	for (uint32_t i = 0; r == 0 && i < p->nnodes; i++)
		r = make_node(dev, &p->node[i], o);
	if (r == 0)
		r = sys_mount_setattr(mnt, "", AT_EMPTY_PATH, &last, sizeof(last));
	return r < 0 ? r : TAKE_FD(mnt);
}

const struct device_plan device_kvm = {
	.nnodes = 1,
	.node[0] = { .to = "kvm",
		     .major = 10,
		     .minor = 232,
		     .may = DEVICE_READ | DEVICE_WRITE,
		     .mode = 0600,
		     .uid = DEVICE_NO_ID,
		     .gid = DEVICE_NO_ID },
};
