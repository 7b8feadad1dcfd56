/*
 * Files that the image itself contains: those of /dev/shm, and those that were open and removed. They are made before
 * anything is opened, with a mode that lets every user open them. When all are open they get their modes and times, and
 * those that had no name lose it.
 */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define IN_PLACE (RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS)

static struct timespec from_ns(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / 1000000000ULL), (long)(ns % 1000000000ULL) };
}

static int high(const struct restore *r, int fd)
{
	return fd < 0 ? fd : restore_high(r, fd);
}

/*
 * Opens the folder that the file is made in: its own one. For a file that is removed again: the next folder above that
 * exists and is writable.
 */
static int open_folder(struct restore *r, const struct mem_node *x, char path[static MEM_PATH_MAX + 1])
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = IN_PLACE };
	int fd;

	for (;;) {
		char *end = strrchr(path, '/');

		*end = '\0';
		fd = sys_openat2(AT_FDCWD, *path ? path : "/", &how);
		if (fd >= 0 || !*path || S_ISDIR(x->mode) || !(x->flags & MEM_NODE_REMOVED))
			return high(r, fd);
	}
}

static int make_file(struct restore *r, uint32_t i, struct restore_node *n)
{
	const struct mem_node *x = &r->m.node[i];
	int fd, s;

	if (x->link != MEM_NONE) {
		const struct restore_node *to = &r->node[x->link];

		return linkat(to->folder, to->name, n->folder, n->name, 0) < 0 ? -errno : 0;
	}
	if (x->flags & MEM_NODE_LINKABLE)
		fd = sys_openat(n->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
	else
		fd = sys_openat(n->folder, n->name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0666);
	n->fd = fd = high(r, fd);
	s = fd < 0 ? fd : restore_runs(r, x->run, fd);
	/* Runs are whole pages; its last one may be more than there is of it. */
	return s < 0 ? s : sys_ftruncate(fd, (off_t)x->size);
}

static int make_other(struct restore *r, uint32_t i, struct restore_node *n)
{
	const struct mem_node *x = &r->m.node[i];
	char target[MEM_PATH_MAX + 1];

	if (S_ISDIR(x->mode)) {
		int s = sys_mkdirat(n->folder, n->name, 0777);

		n->fd = s < 0 ? s :
				high(r, sys_openat(n->folder, n->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
						   0));
		return n->fd < 0 ? n->fd : 0;
	}
	if (S_ISLNK(x->mode)) {
		memcpy(target, restore_bytes(r, x->target), x->target.len);
		target[x->target.len] = '\0';
		if (symlinkat(target, n->folder, n->name) < 0)
			return -errno;
	} else if (mknodat(n->folder, n->name, (x->mode & S_IFMT) | 0666, 0) < 0)
		return -errno;
	n->fd = high(r, sys_openat(n->folder, n->name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0));
	return n->fd < 0 ? n->fd : 0;
}

static int make(struct restore *r, uint32_t i)
{
	const struct mem_node *x = &r->m.node[i];
	const struct mem_span at = r->m.file[x->file].path;
	struct restore_node *n = &r->node[i];
	char path[MEM_PATH_MAX + 1];
	struct stat st;
	int s;

	memcpy(path, restore_bytes(r, at), at.len);
	path[at.len] = '\0';
	snprintf(n->name, sizeof(n->name), "%s", strrchr(path, '/') + 1);
	n->folder = open_folder(r, x, path);
	if (n->folder < 0)
		return n->folder;
	if (fstat(n->folder, &n->was) < 0)
		return -errno;
	/* A file that was made later may have this name by now. */
	if (x->flags & MEM_NODE_REMOVED && fstatat(n->folder, n->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		snprintf(n->name, sizeof(n->name), ".cloche-%u", i);
	s = S_ISREG(x->mode) ? make_file(r, i, n) : make_other(r, i, n);
	n->made = s == 0 && !(x->flags & MEM_NODE_LINKABLE);
	if (s < 0 || x->link != MEM_NONE)
		return s;
	if (!r->agent->single_id)
		s = n->made ? sys_fchownat(n->folder, n->name, x->uid, x->gid, AT_SYMLINK_NOFOLLOW) :
			      sys_fchownat(n->fd, "", x->uid, x->gid, AT_EMPTY_PATH);
	/* Whatever the umask is. */
	if (s == 0 && !S_ISLNK(x->mode))
		s = n->made ? fchmodat(n->folder, n->name, S_ISDIR(x->mode) ? 0777 : 0666, 0) : fchmod(n->fd, 0666);
	return s < 0 ? (s == -1 ? -errno : s) : 0;
}

static int set_xattrs(struct restore *r, const struct mem_node *x, int fd)
{
	const uint8_t *at = restore_bytes(r, x->xattrs), *end = at + x->xattrs.len;

	while (at < end) {
		char name[256];
		uint32_t n[2];

		memcpy(n, at, sizeof(n));
		at += sizeof(n);
		memcpy(name, at, n[0]);
		name[n[0]] = '\0';
		if (fsetxattr(fd, name, at + n[0], n[1], 0) < 0)
			return -errno;
		at += (size_t)n[0] + n[1];
	}
	return 0;
}

/* Gives the file its mode and times, or removes its name, and restores the times of its folder. */
static int settle(struct restore *r, uint32_t i)
{
	const struct mem_node *x = &r->m.node[i];
	const struct timespec times[2] = { from_ns(x->atime_ns), from_ns(x->mtime_ns) };
	struct restore_node *n = &r->node[i];
	const struct timespec folder[2] = { n->was.st_atim, n->was.st_mtim };
	int s = 0;

	if (x->link == MEM_NONE && x->xattrs.len)
		s = set_xattrs(r, x, n->fd);
	if (s == 0 && x->link == MEM_NONE && !S_ISLNK(x->mode)) {
		s = n->made ? fchmodat(n->folder, n->name, x->mode & 07777, 0) : fchmod(n->fd, x->mode & 07777);
		s = s < 0 ? -errno : 0;
	}
	if (s == 0 && x->link == MEM_NONE) {
		s = n->made ? utimensat(n->folder, n->name, times, AT_SYMLINK_NOFOLLOW) : futimens(n->fd, times);
		s = s < 0 ? -errno : 0;
	}
	if (s == 0 && n->made && x->flags & MEM_NODE_REMOVED) {
		s = unlinkat(n->folder, n->name, S_ISDIR(x->mode) ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
		n->made = false;
	}
	if (s == 0 && x->flags & MEM_NODE_REMOVED)
		utimensat(n->folder, ".", folder, 0);
	fd_close(TAKE_FD(n->fd));
	fd_close(TAKE_FD(n->folder));
	return s;
}

int restore_nodes(struct restore *r, struct err *e)
{
	int s;

	r->node = r->m.n[MEM_S_NODE] ? calloc(r->m.n[MEM_S_NODE], sizeof(*r->node)) : NULL;
	if (r->m.n[MEM_S_NODE] && !r->node)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to restore with");
	for (uint32_t i = 0; i < r->m.n[MEM_S_NODE]; i++)
		r->node[i].fd = r->node[i].folder = -1;
	for (uint32_t i = 0; i < r->m.n[MEM_S_NODE]; i++) {
		s = r->m.node[i].file == MEM_NONE ? 0 : make(r, i);
		if (s < 0)
			return err_sys(e, ERR_UNSUPPORTED, s, "recreate '%.160s'", r->node[i].name);
	}
	return 0;
}

int restore_settle(struct restore *r, struct err *e)
{
	for (uint32_t i = r->m.n[MEM_S_NODE]; i-- > 0;) {
		int s = r->m.node[i].file == MEM_NONE ? 0 : settle(r, i);

		if (s < 0)
			return err_sys(e, ERR_UNSUPPORTED, s, "restore the attributes of '%.160s'", r->node[i].name);
	}
	return 0;
}

int restore_dress(struct restore *r, uint32_t node, int fd)
{
	const struct mem_node *x = &r->m.node[node];
	const struct timespec times[2] = { from_ns(x->atime_ns), from_ns(x->mtime_ns) };
	int s = 0;

	if (!r->agent->single_id)
		s = sys_fchownat(fd, "", x->uid, x->gid, AT_EMPTY_PATH);
	if (s == 0)
		s = fchmod(fd, x->mode & 07777) < 0 || futimens(fd, times) < 0 ? -errno : 0;
	return s;
}
