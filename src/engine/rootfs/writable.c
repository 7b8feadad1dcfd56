/* Makes the writable layer and its folders. */
#include "engine/rootfs/writable.h"
#include "base/base.h"
#include "base/sys.h"
#include "engine/blank/slot.h"
#include "engine/image/disk.h"
#include "engine/rootfs/shown.h"
#include "layers/tree.h"
#include "linux/idmap.h"
#include "linux/mount.h"

#include <sys/stat.h>
#include <unistd.h>

struct place {
	const char *name;
	unsigned mode;
	bool owned; /* by the sandbox's root, else by ours */
};

static int make(int dir, const struct place *p, uint32_t owner)
{
	int r = sys_mkdirat(dir, p->name, p->mode);

	/* mkdir masks the sticky and group bits away. */
	if (r == 0 && p->mode & 01022) {
		AUTO_CLOSE int fd = sys_openat(dir, p->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);

		r = fd < 0 ? fd : sys_fchmod(fd, p->mode);
	}
	if (r == 0 && p->owned && owner)
		r = sys_fchownat(dir, p->name, owner, owner, AT_SYMLINK_NOFOLLOW);
	return r;
}

static int make_all(int dir, const struct place *p, size_t n, uint32_t owner)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = make(dir, &p[i], owner);
	return r;
}

static int make_homes(int writable, const struct writable_opts *o)
{
	static const struct place homes[] = { { "u/home", 0755, true },	    { "u/tmp", 01777, true },
					      { "u/root", 0700, true },	    { "u/run", 0755, true },
					      { "u/var", 0755, true },	    { "u/var/tmp", 01777, true },
					      { "u/home/user", 0755, true } };
	int r = make_all(writable, homes, ARRAY_LEN(homes), o->uid_base);

	if (r == 0 && o->uid_base)
		r = sys_fchownat(writable, "u/home/user", o->uid_base + o->uid, o->uid_base + o->gid,
				 AT_SYMLINK_NOFOLLOW);
	return r;
}

static int make_extra(int writable, const struct writable_opts *o)
{
	static const struct place trees[] = {
		{ "uu", 0755, true }, { "uw", 0700, false }, { "ud", 0755, true }, { "dw", 0700, false }
	};
	static const struct place read_only_places[] = {
		{ "t", 01777, true }, { "k", 0755, false }, { "tw", 0700, false }, { "kw", 0700, false }
	};
	int r = 0;

	if (o->system_writable)
		r = make_all(writable, trees, ARRAY_LEN(trees), o->uid_base);
	if (r == 0 && o->read_only_root) {
		r = make_all(writable, read_only_places, ARRAY_LEN(read_only_places), o->uid_base);
		if (r == 0 && o->uid_base)
			r = sys_fchownat(writable, "k", o->uid_base + o->uid, o->uid_base + o->gid,
					 AT_SYMLINK_NOFOLLOW);
	}
	if (r == 0 && o->own_homes)
		r = make_homes(writable, o);
	return r;
}

/* What is shown in /proc and /sys (engine/rootfs/premount.c): its content is written when it is known. */
static int make_shown(int writable)
{
	static const char *const names[] = { "meminfo", "loadavg", "cpu.max" };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(names); i++) {
		r = sys_mknodat(writable, names[i], S_IFREG | 0444, 0);
		r = r == -EEXIST ? 0 : r; /* on a disk that is used again */
	}
	return r;
}

/*
 * On a disk a write may block. So there the files are in memory, mounted on a folder of the layer: a process that has
 * the layer has them, too. Where mounts must be attached to be used, they stay on the disk, and are not updated.
 */
static int put_apart(const struct env *v, int writable)
{
	static const struct mount_opt opts[] = {
		{ "size", "64k" }, { "nr_inodes", "8" }, { "mode", "0755" }, { NULL, NULL }
	};
	AUTO_CLOSE int mnt = -1, at = -1;
	int r = v->stage ? 0 : sys_mkdirat(writable, SHOWN_APART, 0700);

	if (v->stage || (r < 0 && r != -EEXIST))
		return r;
	r = mnt = mount_new("tmpfs", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (r >= 0)
		r = make_shown(mnt);
	if (r == 0)
		r = at = sys_openat(writable, SHOWN_APART, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	return r < 0 ? r : mount_attach_at(mnt, at, 0);
}

static int fill(int writable, const struct writable_opts *o)
{
	static const struct place base[] = { { "u", 0755, true }, { "w", 0700, false }, { "shm", 01777, true } };
	int r = make_all(writable, base, ARRAY_LEN(base), o->uid_base);

	if (r == 0)
		r = make_shown(writable);
	return r == 0 ? make_extra(writable, o) : r;
}

static void sizes(const struct writable_opts *o, char size[24], char inodes[24])
{
	snprintf(size, 24, "%llu", (unsigned long long)o->size);
	/* The folders above count too; the user's share stays what was asked. */
	snprintf(inodes, 24, "%llu", o->inodes ? (unsigned long long)o->inodes + 32 : 0ULL);
}

#define IDS "ids" /* on a disk that stays: its owner says where the ids of the files' owners begin */

/*
 * What an earlier sandbox wrote has owners of that one's range of ids. Idmapped, they are those of the new one. What was in
 * its memory alone is not there any more.
 */
static int take_over(int writable, const struct writable_opts *o, struct err *e)
{
	static const struct place shm = { "shm", 01777, true };
	AUTO_CLOSE int map = -1;
	struct stat st;
	int r = fstatat(writable, IDS, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;

	if (r < 0)
		return err_sys(e, ERR_LOST, r, "the sandbox's disk was never completed");
	if (st.st_uid != o->uid_base) {
		map = idmap_move(st.st_uid, o->uid_base, SLOT_UIDS, e);
		if (map < 0)
			return map;
		r = mount_map_ids(writable, map);
		if (r < 0)
			return err_sys(e, ERR_UNSUPPORTED, r, "change the owners of the files of a disk");
	}
	r = tree_remove(writable, "shm");
	if (r == 0 || r == -ENOENT)
		r = make(writable, &shm, o->uid_base);
	if (r == 0)
		r = make_shown(writable);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "prepare a disk again") : 0;
}

static int writable_kept(struct env *v, const struct writable_opts *o, struct err *e)
{
	AUTO_CLOSE int writable = -1;
	int r;

	if (v->disks < 0)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "this warden keeps no disks");
	writable =
		disk_kept(&v->image.filler, v->disks, o->kept, o->again ? DISK_AGAIN : DISK_NEW, o->size, o->inodes, e);
	if (writable < 0)
		return writable;
	r = o->again ? take_over(writable, o, e) : 0;
	if (r == 0)
		r = env_stage(v, writable);
	if (r == 0 && !o->again) {
		r = fill(writable, o);
		if (r == 0)
			r = sys_mknodat(writable, IDS, S_IFREG | 0400, 0);
		if (r == 0)
			r = sys_fchownat(writable, IDS, o->uid_base, o->uid_base, AT_SYMLINK_NOFOLLOW);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "prepare the writable layer");
	}
	if (r == 0) {
		r = put_apart(v, writable);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "prepare the files that show a sandbox its use");
	}
	if (r < 0 && !o->again)
		sys_unlinkat(v->disks, o->kept, 0);
	return r < 0 ? r : TAKE_FD(writable);
}

int writable_new(struct env *v, const struct writable_opts *o, struct err *e)
{
	AUTO_CLOSE int writable = -1;
	char size[24], inodes[24];
	int r;

	if (o->disk && o->kept && o->kept[0])
		return writable_kept(v, o, e);
	if (o->disk) {
		writable = v->disk ? disk_open(v->disk, e) : disk_new(&v->image.filler, o->size, o->inodes, e);
	} else {
		const struct mount_opt opts[] = {
			{ "size", size }, { "nr_inodes", inodes }, { "mode", "0755" }, { NULL, NULL }
		};

		sizes(o, size, inodes);
		writable = mount_new_err("tmpfs", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
	}
	if (writable < 0)
		return writable;
	r = env_stage(v, writable);
	if (r == 0)
		r = fill(writable, o);
	if (r == 0 && o->disk)
		r = put_apart(v, writable);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "prepare the writable layer") : TAKE_FD(writable);
}

int writable_fit(int writable, const struct writable_opts *o, uint64_t size, uint64_t inodes, struct err *e)
{
	char want_size[24], want_inodes[24];
	int r = 0;

	if (o->size != size || o->inodes != inodes) {
		sizes(o, want_size, want_inodes);
		r = mount_resize(writable, want_size, want_inodes);
	}
	if (r == 0)
		r = make_extra(writable, o);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "resize the writable layer") : 0;
}
