/* Puts the mounts of a sandbox together and sends them to its agent. */
#include "engine/rootfs/root.h"
#include "base/base.h"
#include "base/id.h"
#include "base/sys.h"
#include "engine/image/devices.h"
#include "engine/image/procfs.h"
#include "engine/rootfs/unmerged.h"
#include "engine/rootfs/writable.h"
#include "layers/numbers.h"
#include "linux/idmap.h"
#include "linux/mount.h"

#include <sys/stat.h>
#include <unistd.h>

#define LAYER_ATTRS (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define PROCFS_ATTRS (LAYER_ATTRS | MOUNT_ATTR_NOEXEC)

struct build {
	struct env *env;
	const struct image_host *img;
	const struct blank *blank;
	const struct sandbox_spec *spec;
	struct root *root;
	struct err *e;
};

void root_init(struct root *r)
{
	*r = (struct root){ .store = -1 };
	premount_init(&r->premount);
	for (size_t i = 0; i < FRAME_MOUNTS_MAX; i++)
		r->fds[i] = -1;
	for (size_t i = 0; i < ROOT_LAYERS_MAX; i++)
		r->layers[i] = -1;
}

void root_done(struct root *r)
{
	fd_close_many(r->fds, FRAME_MOUNTS_MAX);
	fd_close_many(r->layers, ROOT_LAYERS_MAX);
	fd_close(r->store);
	premount_done(&r->premount);
	root_init(r);
}

void root_limits(const struct sandbox_spec *spec, uint64_t *ret_disk, uint64_t *ret_inodes)
{
	const struct spec_limits *l = &spec->limits;
	uint64_t disk = l->disk, inodes = l->inodes;

	/*
	 * Files in memory are charged to the memory limit. If they could take all of it, a full disk would end in the
	 * sandbox being killed instead of in "no space left".
	 */
	if (!(spec->flags & SPEC_DISK) && l->memory) {
		uint64_t keep = l->memory / 8;

		keep = keep < 4 * MIB ? 4 * MIB : keep > 64 * MIB ? 64 * MIB : keep;
		if (!disk || disk > l->memory - keep)
			disk = l->memory - keep;
	}
	if (!inodes && l->disk)
		inodes = l->disk / 8192 < 1024 ? 1024 : l->disk / 8192;
	*ret_disk = disk;
	*ret_inodes = inodes;
}

/* Takes @fd. */
static int add(struct build *b, int fd, enum frame_mount_kind kind, const char *target)
{
	struct frame_mounts *m = &b->root->setup.mounts;

	if (m->n == FRAME_MOUNTS_MAX) {
		fd_close(fd);
		return err_set(b->e, ERR_TOO_LARGE, -E2BIG, "too many mounts");
	}
	b->root->fds[m->n] = fd;
	m->mount[m->n].kind = (uint8_t)kind;
	m->mount[m->n].target = target;
	m->n++;
	return 0;
}

/* A read-only copy of a layer with the sandbox's own ids. */
static int layer(struct build *b, int dirfd, const char *path, const char *what)
{
	bool may_show_nobody = !(b->spec->flags & SPEC_SYSTEM_WRITABLE) && !strcmp(b->spec->image, "host");
	int mnt = mount_clone(dirfd, path, LAYER_ATTRS, b->root->idmapped ? b->blank->userns : -1);

	/*
	 * Not every filesystem can be idmapped. The host's own /usr is read-only and readable by all: owners shown as
	 * `nobody` change no right there. An image of its own would be unusable, so that is refused.
	 */
	if (mnt == -EINVAL && b->root->idmapped && may_show_nobody) {
		b->root->idmapped = false;
		mnt = mount_clone(dirfd, path, LAYER_ATTRS, -1);
	}
	if (mnt == -EINVAL && b->root->idmapped)
		return err_advise(b->e, ERR_UNSUPPORTED, mnt,
				  "put the image on ext4, xfs or btrfs (tmpfs from Linux 6.3 on)",
				  "%s: this kernel cannot map the sandbox's user ids on its filesystem", what);
	return mnt < 0 ? err_sys(b->e, ERR_UNSUPPORTED, mnt, "%s: copy its mount", what) : mnt;
}

/* Keeps @mnt for as long as the sandbox lives, in the stage where the host needs that. */
static int keep_layer(struct build *b, int mnt)
{
	int r = env_stage(b->env, mnt);

	b->root->layers[b->root->nlayers++] = mnt;
	return r < 0 ? err_sys(b->e, ERR_INTERNAL, r, "stage a layer") : 0;
}

static int store_of(const struct build *b)
{
	return b->img->layers >= 0 ? b->img->layers : b->env->layers;
}

/* The sealed layers' folders named @tree, the newest first; @fds has room for SPEC_LAYERS. How many, or -errno. */
static int open_sealed(struct build *b, const char *tree, int *fds)
{
	char path[ID_SIZE + 8];
	int n = 0;

	for (uint32_t i = b->spec->layers; i-- > 0;) {
		int fd;

		snprintf(path, sizeof(path), "%s/fs/%s", b->spec->layer[i], tree);
		fd = sys_openat(b->root->store, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
		if (fd == -ENOENT)
			continue;
		if (fd < 0) {
			fd_close_many(fds, (size_t)n);
			return err_sys(b->e, ERR_INTERNAL, fd, "open layer '%s'", b->spec->layer[i]);
		}
		fds[n++] = fd;
	}
	return n;
}

/* The topmost folder's own owner and mode are the writable layer's: they have to be as they were. */
static int dress_top(struct build *b, int sealed, const char *up)
{
	AUTO_CLOSE int dir =
		sys_openat(b->root->premount.writable, up, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	struct stat st;
	int r = dir;

	if (r >= 0)
		r = fstat(sealed, &st) < 0 ? -errno : sys_fchownat(dir, "", st.st_uid, st.st_gid, AT_EMPTY_PATH);
	if (r == 0)
		r = sys_fchmod(dir, st.st_mode & 07777);
	return r < 0 ? err_sys(b->e, ERR_INTERNAL, r, "prepare the writable layer") : 0;
}

#define LOWERS_MAX (SPEC_LAYERS + 1 + (int)NUMBERS_SETS)
static_assert(SPEC_LAYERS + 1 <= UNMERGED_LAYERS && LOWERS_MAX <= MOUNT_LOWERS, "all layers below are looked at");

/* Whether a lower layer has a file of this name; one that is free may be created and removed again. */
static bool is_taken(const int *fds, int n, const char *name)
{
	struct stat st;

	for (int i = 0; i < n; i++)
		if (fstatat(fds[i], name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	return false;
}

/* What gives open files the inode numbers that they had: below everything else. At most NUMBERS_SETS behind the @n in @fds; how many. */
static int add_numbers(struct build *b, int *fds, int n, const char *up)
{
	AUTO_CLOSE int root = -1;
	struct numbers x;
	int sets = 0;

	if (strcmp(up, "u") || !b->spec->layers || !(b->spec->flags & SPEC_MEMORY) || b->spec->flags & SPEC_READ_ONLY)
		return 0;
	root = sys_openat(b->root->premount.writable, up, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (root < 0 || is_taken(&root, 1, FRAME_NUMBERS) || is_taken(fds, n, FRAME_NUMBERS))
		return 0;
	for (; sets < (int)NUMBERS_SETS; sets++) {
		numbers_open(store_of(b), b->spec->layer[b->spec->layers - 1], (unsigned)sets, &x);
		if (x.mnt < 0 || env_stage(b->env, x.mnt) < 0)
			break;
		fds[n + sets] = b->root->layers[b->root->nlayers++] = x.mnt;
		numbers_lay_out(&x, root, b->blank->uid_base);
		x.mnt = -1;
	}
	numbers_done(&x);
	return sets;
}

/* Where programs write: @fds are the @n layers below. See unmerged.h. */
static int own_folders(struct build *b, const int *fds, int n)
{
	const char *home = b->spec->uid ? "/home/user" : "/root";
	const char *const places[] = { "/tmp", "/var/tmp", "/run/lock", home, b->spec->workdir };
	AUTO_CLOSE int root = -1;
	struct unmerged u = { .lower = fds,
			      .n = n,
			      .opaque = b->env->rootless ? "user.overlay.opaque" : "trusted.overlay.opaque" };
	int r;

	/* A disk that is used again has its own; owners that cannot be shown cannot be set, either. */
	if (b->spec->flags & (SPEC_READ_ONLY | SPEC_DISK_AGAIN | SPEC_BARE) ||
	    (!b->root->idmapped && !b->env->rootless))
		return 0;
	r = u.upper = root =
		sys_openat(b->root->premount.writable, "u", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(places); i++)
		if (places[i] == home || strcmp(places[i], home) != 0)
			r = unmerged_make(&u, places[i]);
	return r < 0 ? err_sys(b->e, ERR_INTERNAL, r, "prepare the writable layer") : 0;
}

/* @lower: below all sealed layers, taken over; -1: nothing is. -ENOENT when there is nothing at all. */
static int overlay(struct build *b, int lower, const char *up, const char *work)
{
	char upper[48], workdir[48];
	/* What a layer may hold was made by others: nothing in it leads to another place. */
	struct mount_opt rest[] = { { "source", "overlay" }, { "upperdir", upper }, { "workdir", workdir },
				    { "xino", "off" },	     { "metacopy", "off" }, { "index", "off" },
				    { NULL, NULL },	     { NULL, NULL },	    { NULL, NULL } };
	int fds[LOWERS_MAX], n = 0, all = 0, sets, r = lower < 0 ? 0 : keep_layer(b, lower);

	if (r < 0)
		return r;
	rest[6] = b->env->rootless ? (struct mount_opt){ "userxattr", NULL } :
				     (struct mount_opt){ "redirect_dir", "nofollow" };
	/* What outlives the sandbox is synced when it says so. In memory there is nothing to be spared; and its mark would keep engine/sandbox/system.c from a second try. */
	if (b->spec->flags & SPEC_DISK && !b->spec->disk[0])
		rest[7] = (struct mount_opt){ "volatile", NULL };
	if (b->spec->layers) {
		r = n = open_sealed(b, up, fds);
		if (n > 0)
			r = dress_top(b, fds[0], up);
	}
	if (r >= 0 && lower < 0 && !n)
		return -ENOENT;
	if (r >= 0) {
		if (lower >= 0)
			fds[n] = lower;
		snprintf(upper, sizeof(upper), "/proc/self/fd/%d/%s", b->root->premount.writable, up);
		snprintf(workdir, sizeof(workdir), "/proc/self/fd/%d/%s", b->root->premount.writable, work);
		all = n + (lower >= 0);
		r = strcmp(up, "u") ? 0 : own_folders(b, fds, all);
	}
	if (r >= 0) {
		sets = add_numbers(b, fds, all, up);
		r = mount_overlay(fds, (unsigned)(all + sets), rest, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, b->e);
		/* Filesystems on each other can be too many for the kernel. */
		if (r < 0 && sets)
			r = mount_overlay(fds, (unsigned)all, rest, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, b->e);
	}
	fd_close_many(fds, n < 0 ? 0 : (size_t)n);
	if (r < 0)
		err_remedy(b->e,
			   "see `cloche doctor`: overlay with idmapped layers needs Linux 5.19 and the overlay module");
	return r;
}

static int add_overlay(struct build *b, int dirfd, const char *what, const char *up, const char *work,
		       const char *target)
{
	int lower = layer(b, dirfd, "", what), mnt;

	if (lower < 0)
		return lower;
	mnt = overlay(b, lower, up, work);
	return mnt < 0 ? err_wrap(b->e, mnt, "%s", what) : add(b, mnt, FRAME_MOUNT_DIR, target);
}

static int add_clone(struct build *b, int dirfd, const char *path, uint64_t attrs, enum frame_mount_kind kind,
		     const char *target)
{
	int mnt = mount_clone(dirfd, path, attrs, -1);

	return mnt < 0 ? err_sys(b->e, ERR_INTERNAL, mnt, "copy the mount for %s", target) : add(b, mnt, kind, target);
}

/* What root's package managers change, of image `host`. */
static int add_system(struct build *b, unsigned which)
{
	int r = which & ROOT_SYSTEM_USR ? add_overlay(b, b->img->usr, "/usr", "uu", "uw", "/usr") : 0;

	if (r < 0 || b->img->dpkg < 0 || !(which & ROOT_SYSTEM_DPKG))
		return r;
	return add_overlay(b, b->img->dpkg, ROOT_DPKG, "ud", "dw", ROOT_DPKG);
}

/* As one mount, with /usr and the package database in it, which then move where they belong. -EINVAL: as in layer(). */
static int add_tree(struct build *b)
{
	static const char *const parts[] = { "/usr", ROOT_DPKG };
	int tree = mount_copy_tree(b->img->tree, b->blank->userns), r;

	if (tree < 0)
		return tree == -EINVAL ? tree : err_sys(b->e, ERR_UNSUPPORTED, tree, "image 'host': copy its mount");
	r = overlay(b, tree, "u", "w"); /* keeps it as the first of ->layers */
	r = r < 0 ? err_wrap(b->e, r, "image 'host'") : add(b, r, FRAME_MOUNT_DIR, "/");
	if (r == 0)
		r = add(b, TAKE_FD(b->root->layers[0]), FRAME_MOUNT_PARK, "");
	for (size_t i = 0; r == 0 && i < (b->img->dpkg < 0 ? 1 : ARRAY_LEN(parts)); i++) {
		int at = sys_openat(tree, parts[i] + 1, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

		r = at < 0 ? err_sys(b->e, ERR_INTERNAL, at, "image 'host'") : add(b, at, FRAME_MOUNT_DIR, parts[i]);
	}
	return r;
}

static int add_plain(struct build *b, int dirfd, const char *target)
{
	int mnt = layer(b, dirfd, "", target);

	return mnt < 0 ? mnt : add(b, mnt, FRAME_MOUNT_DIR, target);
}

/* A writable folder with nothing of an image below: of the writable layer alone, unless a sealed one has something there. */
static int add_place(struct build *b, const char *up, const char *work, const char *target)
{
	int mnt = b->spec->layers ? overlay(b, -1, up, work) : -ENOENT;

	if (mnt == -ENOENT)
		return add_clone(b, b->root->premount.writable, up, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
				 FRAME_MOUNT_DIR, target);
	return mnt < 0 ? err_wrap(b->e, mnt, "%s", target) : add(b, mnt, FRAME_MOUNT_DIR, target);
}

static int add_image(struct build *b)
{
	const struct image_host *host = b->img;
	AUTO_CLOSE int dir = -1;
	bool laid;
	int r;

	if (!strcmp(b->spec->image, SPEC_SCRATCH))
		return add_place(b, "u", "w", "/");
	if (strcmp(b->spec->image, "host")) {
		r = dir = b->env->policy.image(b->env->policy.arg, b->spec->image, b->e);
		return r < 0 ? r : add_overlay(b, dir, b->spec->image, "u", "w", "/");
	}
	laid = b->spec->flags & SPEC_SYSTEM_WRITABLE && !(b->spec->flags & SPEC_SYSTEM_LATER) && !b->env->rootless;
	r = host->tree < 0 || laid ? -EINVAL : add_tree(b);
	if (r != -EINVAL)
		return r;
	r = add_overlay(b, host->root, "image 'host'", "u", "w", "/");
	if (r < 0)
		return r;
	if (laid)
		return add_system(b, ROOT_SYSTEM_USR | ROOT_SYSTEM_DPKG);
	r = add_plain(b, host->usr, "/usr");
	return r < 0 || host->dpkg < 0 ? r : add_plain(b, host->dpkg, ROOT_DPKG);
}

int root_system(struct env *v, const struct image_host *img, const struct blank *s, int writable, unsigned which,
		struct root *ret, struct err *e)
{
	static const struct sandbox_spec spec = { .image = "host", .flags = SPEC_SYSTEM_WRITABLE };
	struct build b = { v, img, s, &spec, ret, e };
	int r;

	root_init(ret);
	ret->idmapped = true;
	ret->premount.writable = writable;
	r = add_system(&b, which);
	ret->premount.writable = -1; /* the caller's */
	if (r < 0)
		root_done(ret);
	return r;
}

/* For another number of CPUs than was shown ahead: on top of that. */
static int add_procfs(struct build *b, unsigned cpus)
{
	AUTO_CLOSE int dir = -1;
	int r;

	if (b->root->premount.cpus == cpus)
		return 0;
	dir = image_cpus(b->img, cpus, b->e);
	if (dir < 0)
		return dir;
	r = add_clone(b, dir, "sys", PROCFS_ATTRS, FRAME_MOUNT_DIR, "/sys");
	if (r == 0)
		r = add_clone(b, dir, "cpuinfo", PROCFS_ATTRS, FRAME_MOUNT_PROC_FILE, "proc/cpuinfo");
	if (r == 0)
		r = add_clone(b, dir, "stat", PROCFS_ATTRS, FRAME_MOUNT_PROC_FILE, "proc/stat");
	return r;
}

/* One mount for all of them, however many. It never gets into the sandbox: only the overlays' own copies do. */
static int open_store(struct build *b)
{
	int from = store_of(b), mnt, r;

	if (!b->spec->layers)
		return 0;
	if (from < 0)
		return err_set(b->e, ERR_UNSUPPORTED, -EOPNOTSUPP, "this warden has no layers");
	mnt = mount_clone(from, "", LAYER_ATTRS, b->blank->userns);
	if (mnt == -EINVAL)
		return err_advise(b->e, ERR_UNSUPPORTED, mnt, "put them on ext4, xfs or btrfs",
				  "layers: this kernel cannot map the sandbox's user ids on their filesystem");
	if (mnt < 0)
		return err_sys(b->e, ERR_INTERNAL, mnt, "copy the mount of the layers");
	b->root->store = mnt;
	r = env_stage(b->env, mnt);
	return r < 0 ? err_sys(b->e, ERR_INTERNAL, r, "stage the layers") : 0;
}

static int add_writable(struct build *b)
{
	int r = 0;

	if (b->spec->flags & SPEC_READ_ONLY) {
		r = add_place(b, "t", "tw", "/tmp");
		if (r == 0)
			r = add_place(b, "k", "kw", b->spec->workdir);
	}
	return r;
}

static int add_tmpfs(struct build *b, const struct spec_tmpfs *t)
{
	char size[24], uid[16], gid[16];
	const struct mount_opt opts[] = { { "size", size },    { "nr_inodes", "131072" },
					  { "mode", "01777" }, { "uid", uid },
					  { "gid", gid },      { NULL, NULL } };
	int mnt;

	snprintf(size, sizeof(size), "%llu", (unsigned long long)t->size);
	snprintf(uid, sizeof(uid), "%u", b->blank->uid_base ? b->blank->uid_base + b->spec->uid : 0);
	snprintf(gid, sizeof(gid), "%u", b->blank->uid_base ? b->blank->uid_base + b->spec->gid : 0);
	mnt = mount_new_err("tmpfs", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, b->e);
	return mnt < 0 ? err_wrap(b->e, mnt, "tmpfs '%s'", t->path) : add(b, mnt, FRAME_MOUNT_DIR, t->path);
}

/*
 * A folder or file of the host: inside, its owner is shown as the sandbox's user, and files of other owners cannot be
 * written.
 */
static int add_mount(struct build *b, const struct spec_mount *m)
{
	uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (m->read_only ? MOUNT_ATTR_RDONLY : 0);
	uint32_t base = b->blank->uid_base;
	AUTO_CLOSE int src = -1, map = -1;
	struct stat st;
	int mnt;

	/* A jail's mounts are chosen by the engine, and no request contains others. */
	src = b->spec->flags & SPEC_JAIL ? sys_openat(AT_FDCWD, m->src, O_PATH | O_CLOEXEC, 0) :
					   b->env->policy.mount(b->env->policy.arg, m->src, b->e);
	if (src < 0 && !(b->spec->flags & SPEC_JAIL))
		return src;
	if (src < 0 || fstat(src, &st) < 0)
		return err_sys(b->e, ERR_INTERNAL, src < 0 ? src : -errno, "mount source '%s'", m->src);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return err_set(b->e, ERR_INVALID, -EINVAL, "mount source '%s': must be a folder or regular file",
			       m->src);
	if (base) {
		map = idmap_new(st.st_uid, base + b->spec->uid, st.st_gid, base + b->spec->gid, b->e);
		if (map < 0)
			return err_wrap(b->e, map, "mount '%s'", m->src);
	}
	mnt = mount_clone(src, "", attrs, map);
	/*
	 * Without a map, a reader has no more rights than any user; a writer would create files with an id that has no
	 * user.
	 */
	if (mnt == -EINVAL && map >= 0 && m->read_only)
		mnt = mount_clone(src, "", attrs, -1);
	if (mnt == -EINVAL && map < 0 && !base)
		return err_advise(b->e, ERR_UNSUPPORTED, mnt, "mount a folder further down, or run as root",
				  "mount '%s': other mounts are below it, which needs root", m->src);
	if (mnt == -EINVAL)
		return err_advise(b->e, ERR_UNSUPPORTED, mnt, "mount it read-only (:ro), or from ext4, xfs, btrfs",
				  "mount '%s': the sandbox's user ids cannot be mapped on its filesystem", m->src);
	if (mnt < 0)
		return err_sys(b->e, ERR_UNSUPPORTED, mnt, "mount '%s'", m->src);
	return add(b, mnt, S_ISDIR(st.st_mode) ? FRAME_MOUNT_DIR : FRAME_MOUNT_FILE, m->dst);
}

/* A driver's file or folder: as any user of the host may read it. The owner is shown as nobody. */
static int add_device_file(struct build *b, const struct device_mount *m)
{
	AUTO_CLOSE int src = devices_open(m->from);
	struct stat st;
	int mnt;

	if (src < 0 || fstat(src, &st) < 0)
		return err_sys(b->e, ERR_NOT_FOUND, src < 0 ? src : -errno, "device's file '%s'", m->from);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return err_set(b->e, ERR_INVALID, -EINVAL, "device's file '%s': must be a folder or regular file",
			       m->from);
	mnt = mount_clone(src, "", LAYER_ATTRS, -1);
	return mnt < 0 ? err_sys(b->e, ERR_UNSUPPORTED, mnt, "device's file '%s'", m->from) :
			 add(b, mnt, S_ISDIR(st.st_mode) ? FRAME_MOUNT_DIR : FRAME_MOUNT_FILE, m->to);
}

/* Mounts only we hold would cost a wait when closed; the agent keeps them out of reach instead. */
static int park(struct build *b)
{
	struct root *r = b->root;
	int rc = 0;

	if (b->env->stage)
		return 0;
	/* Those there is no room for are closed with the rest: overlays have copies of their own. */
	for (unsigned i = 0; rc == 0 && i < r->nlayers && r->setup.mounts.n + 1 < FRAME_MOUNTS_MAX; i++)
		rc = r->layers[i] < 0 ? 0 : add(b, TAKE_FD(r->layers[i]), FRAME_MOUNT_PARK, "");
	if (rc == 0) {
		int copy = sys_fcntl(r->premount.writable, F_DUPFD_CLOEXEC, 3);

		rc = copy < 0 ? err_sys(b->e, ERR_EXHAUSTED, copy, "copy a descriptor") :
				add(b, copy, FRAME_MOUNT_PARK, "");
	}
	return rc;
}

static int open_premount(struct build *b, unsigned cpus, struct premount *premount)
{
	struct root *r = b->root;
	const struct writable_opts o = {
		.size = r->disk,
		.inodes = r->inodes,
		.uid_base = b->blank->uid_base,
		.disk = b->spec->flags & SPEC_DISK,
		.read_only_root = b->spec->flags & SPEC_READ_ONLY,
		.system_writable = b->spec->flags & SPEC_SYSTEM_WRITABLE,
		.own_homes = b->env->rootless,
		.uid = b->spec->uid,
		.gid = b->spec->gid,
		.kept = b->spec->disk,
		.again = b->spec->flags & SPEC_DISK_AGAIN,
	};

	if (o.disk && b->env->rootless)
		return err_advise(b->e, ERR_UNSUPPORTED, -EPERM,
				  "run as root, or keep written files in memory (--storage memory)",
				  "a layer on disk needs root (loop device)");
	if (premount->writable >= 0 && !o.disk) {
		r->premount = *premount;
		premount_init(premount);
		return writable_fit(r->premount.writable, &o, r->premount.size, r->premount.inodes, b->e);
	}
	/* Made again for another kind of layer: what the agent had is covered. */
	premount_done(premount);
	return premount_make(b->env, b->img, b->blank, &o, cpus, &r->premount, b->e);
}

/* What the agent adds to the files: what they lack, or what no two sandboxes should have the same. */
static uint32_t names(const struct env *v, const struct sandbox_spec *spec)
{
	const bool scratch = !strcmp(spec->image, SPEC_SCRATCH) || v->stored_image;
	uint32_t flags = 0;

	if (spec->flags & SPEC_BARE)
		return FRAME_SETUP_BARE;
	if (spec->layers)
		flags |= FRAME_SETUP_FRESH;
	if (scratch)
		flags |= FRAME_SETUP_HOSTS;
	else if (strcmp(spec->image, "host") && !spec->layers && !(spec->flags & (SPEC_DISK_AGAIN | SPEC_JAIL)))
		flags |= FRAME_SETUP_ETC;
	return flags;
}

int root_build(struct env *v, const struct image_host *img, const struct blank *s, const struct sandbox_spec *spec,
	       const struct device_plan *devices, struct premount *premount, struct root *ret, struct err *e)
{
	unsigned cpus = procfs_cpus(spec->limits.cpu_milli);
	struct root root;
	struct build b = { v, img, s, spec, &root, e };
	int r;

	root_init(&root);
	root.idmapped = !v->rootless;
	root_limits(spec, &root.disk, &root.inodes);
	r = open_premount(&b, cpus, premount);
	if (r == 0)
		r = open_store(&b);
	if (r == 0)
		r = add_image(&b);
	if (r == 0)
		r = add_procfs(&b, cpus);
	if (r == 0)
		r = add_writable(&b);
	for (uint32_t i = 0; r == 0 && i < spec->ntmpfs; i++)
		r = add_tmpfs(&b, &spec->tmpfs[i]);
	for (uint32_t i = 0; r == 0 && i < spec->nmounts; i++)
		r = add_mount(&b, &spec->mount[i]);
	for (uint32_t i = 0; r == 0 && devices && i < devices->nmounts; i++)
		r = add_device_file(&b, &devices->mount[i]);
	if (r == 0)
		r = park(&b);
	if (r == 0) {
		r = premount_show(&root.premount, spec->limits.memory, spec->limits.cpu_milli);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "write the files that show a sandbox its size");
	}
	env_stage_clear(v);
	if (r < 0) {
		premount_done(premount);
		root_done(&root);
		return r;
	}
	root.setup.hostname = spec->hostname[0] ? spec->hostname : "sandbox";
	root.setup.workdir = spec->workdir;
	root.setup.uid = spec->uid;
	root.setup.gid = spec->gid;
	root.setup.flags = (spec->flags & SPEC_READ_ONLY ? FRAME_SETUP_READ_ONLY : 0) |
			   (spec->flags & SPEC_NET || v->resolver ? FRAME_SETUP_NET : 0) | names(v, spec);
	for (uint32_t i = 0; i < spec->nmounts; i++)
		root.setup.flags |= spec->mount[i].read_only ? 0 : FRAME_SETUP_HOST_WRITABLE;
	root.setup.cpu_mask = procfs_cpu_mask(cpus, s->slot);
	*ret = root;
	return 0;
}

int root_send(struct root *r, int sock, struct err *e)
{
	uint8_t out[FRAME_HEAD + 32768];
	long n = frame_setup_encode(&r->setup, out + FRAME_HEAD, sizeof(out) - FRAME_HEAD);
	int rc;

	if (n < 0)
		return err_set(e, ERR_TOO_LARGE, (int)n, "the mounts do not fit into one frame");
	frame_head(out, FRAME_SETUP, (uint8_t)r->setup.mounts.n, 0, (uint32_t)n);
	rc = fd_send(sock, out, FRAME_HEAD + (size_t)n, r->fds, r->setup.mounts.n);
	if (rc < 0 && rc != -EPIPE) /* an agent that has failed has said why: its caller reads that next */
		return err_sys(e, ERR_LOST, rc, "send the mounts to the agent");
	return 0;
}
