/*
 * Names of what a process has open or mapped. The text behind a magic link is only a guess: what it leads to, from the
 * sandbox's root and inside of it, must be the very same file.
 */
#include "memory/dump.h"
#include "base/base.h"
#include "base/sys.h"
#include "memory/search.h"
#include "proto/frame.h"

#include <ctype.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif
#define PROC_MAGIC 0x9fa0UL
#define SYSFS_MAGIC 0x62656572UL
#define DEVPTS_MAGIC 0x1cd1UL

/* The fields of struct statx that are needed here: C libraries differ in what they define. */
struct statx_mount {
	uint32_t mask, blksize;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, spare0;
	uint64_t ino, size, blocks, attributes_mask, times[8];
	uint32_t rdev[2], dev[2];
	uint64_t mnt_id, spare[13];
};
static_assert(sizeof(struct statx_mount) == 256, "the kernel's size");

#define OVERLAY_MAGIC 0x794c7630UL
#define DEPTH_MAX 2048U /* nested folders: a path has at most 4,095 bytes */

int mount_of(int dir, const char *name, int flags, uint64_t *ret)
{
	struct statx_mount x;

	if (syscall(SYS_statx, dir, name, flags, STATX_MNT_ID, &x) < 0)
		return -errno;
	*ret = x.mnt_id;
	return x.mask & STATX_MNT_ID ? 0 : -EOPNOTSUPP;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/*
 * A file that was opened before a writable /usr was mounted over it (engine/sandbox/system.c) is still the file that is
 * seen there, unless it was changed: overlay shows number, size and times of the file below. A folder has the overlay's
 * own number, but one that was changed or replaced has other times.
 */
static bool lies_below(const struct stat *had, const struct stat *seen, const struct statfs *fs)
{
	return (unsigned long)fs->f_type == OVERLAY_MAGIC && had->st_mode == seen->st_mode &&
	       had->st_size == seen->st_size &&
	       (S_ISDIR(had->st_mode) || (S_ISREG(had->st_mode) && had->st_ino == seen->st_ino)) &&
	       same_time(&had->st_mtim, &seen->st_mtim) && same_time(&had->st_ctim, &seen->st_ctim);
}

/*
 * /dev/shm, and /tmp and the work folder where the root is read-only, are folders of the writable layer
 * (engine/rootfs/writable.h), mounted there. Whether @path, on the layer's filesystem, is below one of them. All
 * processes are held, so nothing moves meanwhile.
 */
static bool in_writable(const struct dump *d, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	AUTO_CLOSE int at = sys_openat2(d->root, path, &how);
	struct stat st;

	if (at >= 0 && fstat(at, &st) == 0 && !S_ISDIR(st.st_mode)) {
		AUTO_FREE char *folder = strndup(path, (size_t)(strrchr(path, '/') - path) + 1);

		fd_close(at);
		at = folder ? sys_openat2(d->root, folder, &how) : -ENOMEM;
	}
	for (unsigned depth = 0; at >= 0 && depth < DEPTH_MAX && fstat(at, &st) == 0 && st.st_dev == d->writable_dev;
	     depth++) {
		int up;

		for (unsigned i = 0; i < ARRAY_LEN(d->writable_ino); i++)
			if (st.st_ino == d->writable_ino[i])
				return true;
		up = sys_openat2(at, "..", &(struct open_how){ .flags = O_PATH | O_DIRECTORY | O_CLOEXEC });
		fd_close(at);
		at = up;
	}
	return false;
}

static void look(const struct dump *d, struct found *f)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC | (S_ISLNK(f->st.st_mode) ? O_NOFOLLOW : 0),
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	AUTO_CLOSE int at = sys_openat2(d->root, f->path, &how);
	struct statfs fs;
	struct stat st;

	if (at < 0 || fstat(at, &st) < 0 || fstatfs(at, &fs) < 0)
		return;
	if (st.st_dev == f->st.st_dev ? st.st_ino != f->st.st_ino : !lies_below(&f->st, &st, &fs))
		return;
	if (mount_of(at, "", AT_EMPTY_PATH, &f->mount) < 0)
		return;
	f->named = true;
	f->fs = (unsigned long)fs.f_type;
	/* A writable /usr is an overlay of its own. No process inside can mount an overlay. */
	f->own = f->mount == d->root_mount || f->fs == OVERLAY_MAGIC ||
		 (d->writable_dev && st.st_dev == d->writable_dev && in_writable(d, f->path));
	f->carried = f->own || fs.f_flags & ST_RDONLY || f->fs == PROC_MAGIC || f->fs == SYSFS_MAGIC ||
		     f->fs == DEVPTS_MAGIC;
}

/* If these folders are not found, files in them cannot be carried. */
static void find_writable(struct dump *d)
{
	static const char *const trees[] = { "t", "k", "shm" };
	const int writable = d->writable = sys_pidfd_getfd(d->agent_pidfd, FRAME_KEEP_UPPER);
	struct stat st, in;

	if (writable < 0 || fstat(writable, &st) < 0 || !S_ISDIR(st.st_mode))
		return;
	d->writable_dev = st.st_dev;
	for (unsigned i = 0; i < ARRAY_LEN(trees); i++)
		if (fstatat(writable, trees[i], &in, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(in.st_mode))
			d->writable_ino[i] = in.st_ino;
}

int file_root(struct dump *d, struct err *e)
{
	AUTO_CLOSE int memfd = -1;
	int r = mount_of(d->root, "", AT_EMPTY_PATH, &d->root_mount);
	struct stat st;

	if (r == 0 && fstat(d->root, &st) < 0)
		r = -errno;
	if (r)
		return err_sys(e, r == -EOPNOTSUPP ? ERR_UNSUPPORTED : ERR_INTERNAL, r, "the sandbox's root");
	d->root_dev = st.st_dev;
	d->root_ino = st.st_ino;
	find_writable(d);
	memfd = sys_memfd_create("", MFD_CLOEXEC);
	if (memfd < 0 || fstat(memfd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, memfd < 0 ? memfd : -errno, "read its own memory");
	d->shm_dev = st.st_dev;
	return 0;
}

/*
 * Finds another name of a file whose name is gone. Only below the folders whose files the image carries itself, as
 * sem_open() creates them. Elsewhere a copy's files have other inode numbers, and a program that renames files may
 * compare those.
 */
static void other_name(const struct dump *d, struct found *f)
{
	struct wanted w = { .dev = f->st.st_dev, .ino = f->st.st_ino };
	const size_t len = strlen(f->path), gone = strlen(" (deleted)");

	if (strncmp(f->path, MEM_NODE_ROOM, strlen(MEM_NODE_ROOM)) != 0 || len <= gone ||
	    strcmp(f->path + len - gone, " (deleted)") != 0)
		return;
	search_names(d, &w, 1, f->path);
	if (!w.path)
		return;
	snprintf(f->path, sizeof(f->path), "%s", w.path);
	free(w.path);
	look(d, f);
}

int file_find(const struct dump *d, int dir, const char *link, struct found *ret, struct err *e)
{
	ssize_t n = readlinkat(dir, link, ret->path, sizeof(ret->path) - 1);

	ret->named = ret->carried = ret->own = false;
	ret->mount = ret->fs = 0;
	if (n < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read the link %s", link);
	ret->path[n] = '\0';
	if (fstatat(dir, link, &ret->st, 0) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "stat %s", link);
	if (ret->path[0] != '/')
		return 0;
	look(d, ret);
	if (!ret->named && ret->st.st_nlink && S_ISREG(ret->st.st_mode))
		other_name(d, ret);
	return 0;
}

/*
 * The number of a file that a process has open, which it may compare with what its name leads to. The number of a file in a layer
 * stays; one in the writable layer is copied into a new layer, where it has another.
 */
void file_number(const struct dump *d, const struct found *f, struct mem_file *rec)
{
	struct open_how how = { .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	char path[MEM_PATH_MAX + 8];
	AUTO_CLOSE int at = -1;

	if (!S_ISREG(f->st.st_mode) || !f->own || rec->node != MEM_NONE)
		return;
	rec->ino = f->st.st_ino;
	/* The number of a file with several names cannot be kept: it would have to be found under each of them. */
	if (f->mount != d->root_mount || f->st.st_nlink != 1 || d->writable < 0)
		return;
	snprintf(path, sizeof(path), "u%s", f->path);
	at = sys_openat2(d->writable, path, &how);
	if (at >= 0)
		rec->flags |= MEM_FILE_UPPER;
}

static bool in_group(const struct dump *d, const struct proc *p, gid_t gid)
{
	const char *at;
	uint32_t inside;
	char *end;

	if (proc_map(&d->gids, gid, &inside) && inside == p->rec.gid[3])
		return true;
	if (!proc_field(p->status, "Groups", &at))
		return false;
	for (;; at = end) {
		at += strspn(at, " \t");
		if (!isdigit((unsigned char)*at))
			return false;
		if (strtoull(at, &end, 10) == gid)
			return true;
	}
}

bool file_may_open(const struct dump *d, const struct proc *p, const struct stat *st, unsigned need)
{
	uint32_t owner;
	bool own = proc_map(&d->uids, st->st_uid, &owner) && owner == p->rec.uid[3];
	unsigned bits = own ? st->st_mode >> 6 : in_group(d, p, st->st_gid) ? st->st_mode >> 3 : st->st_mode;

	/*
	 * Root may open it. The owner of a file can change its mode, and the agent does that while it opens the file.
	 */
	return !p->rec.uid[3] || (own && S_ISREG(st->st_mode)) || (bits & need) == need;
}

bool file_may_reach(const struct dump *d, const struct proc *p, const char *path, unsigned need)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	char at[MEM_PATH_MAX + 1];
	struct stat st;

	if (!p->rec.uid[3])
		return true;
	for (const char *end = path; (end = strchr(end + 1, '/')) && (size_t)(end - path) < sizeof(at);) {
		AUTO_CLOSE int fd = -1;
		const bool last = !strchr(end + 1, '/');

		memcpy(at, path, (size_t)(end - path));
		at[end - path] = '\0';
		fd = sys_openat2(d->root, at, &how);
		if (fd < 0 || fstat(fd, &st) < 0 || !file_may_open(d, p, &st, 1U | (last ? need : 0)))
			return false;
	}
	return true;
}
