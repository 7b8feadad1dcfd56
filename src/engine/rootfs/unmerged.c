/* Shows folders of the writable layer without those below. */
#include "engine/rootfs/unmerged.h"
#include "base/base.h"
#include "base/sys.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define DEPTH_MAX 8
#define STAYS 1 /* merged, as it is */

/* The parts of one folder, the topmost first. */
struct parts {
	int fd[UNMERGED_LAYERS];
	int n;
};

/* As the kernel writes it. */
struct dent {
	uint64_t ino;
	int64_t off;
	uint16_t len;
	uint8_t type;
	char name[];
};

struct step {
	char name[NAME_MAX + 1];
	struct stat st; /* as the folder is shown */
};

static void parts_done(struct parts *p)
{
	fd_close_many(p->fd, (size_t)p->n);
	p->n = 0;
}

static bool is_opaque(const struct unmerged *u, int dir)
{
	char v[2];

	return fgetxattr(dir, u->opaque, v, sizeof(v)) == 1 && *v == 'y';
}

/* The folder @name of the folder @from. Anything else that has the name hides what is below. */
static int look(const struct unmerged *u, const int *from, int n, const char *name, struct parts *ret)
{
	/* Not what the host mounts there (/usr). */
	struct open_how how = { .flags = FOLDER, .resolve = RESOLVE_NO_XDEV };

	ret->n = 0;
	for (int i = 0; i < n; i++) {
		int fd = sys_openat2(from[i], name, &how);

		if (fd == -ENOENT)
			continue;
		if (fd == -ENOTDIR || fd == -ELOOP || fd == -EXDEV)
			break;
		if (fd < 0)
			return fd == -EACCES ? STAYS : fd;
		ret->fd[ret->n++] = fd;
		if (is_opaque(u, fd))
			break;
	}
	return ret->n ? 0 : STAYS;
}

/* Lists of rights and attributes of users are not carried over. Overlay's own speak of the layer they are in. */
static bool is_plain(int dir)
{
	char names[1024];
	ssize_t n = flistxattr(dir, names, sizeof(names));

	if (n < 0)
		return errno == EOPNOTSUPP;
	for (const char *p = names; p < names + n; p += strlen(p) + 1)
		if (!strncmp(p, "system.", 7) || (!strncmp(p, "user.", 5) && strncmp(p, "user.overlay.", 13)))
			return false;
	return true;
}

static int is_empty(int dir)
{
	_Alignas(struct dent) char buf[1024];
	ssize_t n;

	while ((n = sys_getdents64(dir, buf, sizeof(buf))) > 0)
		for (ssize_t at = 0; at < n;) {
			const struct dent *d = (const struct dent *)(const void *)(buf + at);

			if (strcmp(d->name, ".") && strcmp(d->name, ".."))
				return 0;
			at += d->len;
		}
	return n < 0 ? (int)n : 1;
}

static int are_empty(const struct parts *p)
{
	int r = 1;

	for (int i = 0; r == 1 && i < p->n; i++)
		r = is_empty(p->fd[i]);
	return r;
}

/* All folders of @path, if what it leads to is empty. How many, 0: it stays as it is. */
static int find(const struct unmerged *u, const char *path, struct step *step)
{
	struct parts at = { .n = 0 }, next;
	const int *from = u->lower;
	int depth = 0, n = u->n, r = 0;

	for (path += strspn(path, "/"); r == 0 && *path; path += strspn(path, "/")) {
		size_t len = strcspn(path, "/");
		struct step *s = &step[depth];

		r = depth == DEPTH_MAX || len > NAME_MAX ||
				    (*path == '.' && (len == 1 || (len == 2 && path[1] == '.'))) ?
			    STAYS :
			    0;
		if (r)
			break;
		snprintf(s->name, sizeof(s->name), "%.*s", (int)len, path);
		r = look(u, from, n, s->name, &next);
		parts_done(&at);
		at = next;
		from = at.fd;
		n = at.n;
		if (r == 0)
			r = fstat(at.fd[0], &s->st) < 0 ? -errno : is_plain(at.fd[0]) ? 0 : STAYS;
		depth++;
		path += len;
	}
	if (r == 0 && depth) {
		r = are_empty(&at);
		r = r < 0 ? r : r ? 0 : STAYS;
	}
	parts_done(&at);
	return r < 0 ? r : r == STAYS ? 0 : depth;
}

/* What the filesystem or a process without rights cannot do. */
static bool is_refused(int r)
{
	return r == -EPERM || r == -EINVAL || r == -EOPNOTSUPP;
}

static int dress(int dir, const struct stat *st)
{
	int r = sys_fchownat(dir, "", st->st_uid, st->st_gid, AT_EMPTY_PATH);

	return r == 0 ? sys_fchmod(dir, st->st_mode & 07777) : r;
}

/* The folder of @s in @dir, with @mark if that is not NULL. STAYS when it cannot be the same. */
static int make(const struct unmerged *u, int dir, const struct step *s, const char *mark, int *ret)
{
	AUTO_CLOSE int fd = -1;
	int r = sys_mkdirat(dir, s->name, 0700), made = r == 0;
	bool fatal = false;

	if (r < 0 && r != -EEXIST)
		return r;
	r = fd = sys_openat(dir, s->name, FOLDER, 0);
	if (r >= 0 && made) {
		r = dress(fd, &s->st);
		fatal = r < 0 && !strncmp(u->opaque, "trusted.", 8); /* root may do all of it */
	}
	if (r >= 0 && mark)
		r = fsetxattr(fd, mark, "y", 1, 0) < 0 ? -errno : 0;
	if (r < 0) {
		if (made)
			(void)sys_unlinkat(dir, s->name, AT_REMOVEDIR);
		return is_refused(r) && !fatal ? STAYS : r;
	}
	*ret = TAKE_FD(fd);
	return 0;
}

static int make_all(const struct unmerged *u, const struct step *step, int n)
{
	int fd[DEPTH_MAX], made = 0, r = 0;

	for (; r == 0 && made < n; made += r == 0)
		r = make(u, made ? fd[made - 1] : u->upper, &step[made], made == n - 1 ? u->opaque : NULL, &fd[made]);
	/* The innermost first: each changed the one that it is in. */
	while (made-- > 0) {
		const struct timespec times[2] = { step[made].st.st_atim, step[made].st.st_mtim };

		if (futimens(fd[made], times) < 0 && r >= 0)
			r = -errno;
		fd_close(fd[made]);
	}
	return r < 0 ? r : 0;
}

int unmerged_make(const struct unmerged *u, const char *path)
{
	struct step step[DEPTH_MAX];
	int n = u->n > UNMERGED_LAYERS ? 0 : find(u, path, step);

	return n <= 0 ? n : make_all(u, step, n);
}
