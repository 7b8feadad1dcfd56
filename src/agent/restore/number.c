/*
 * Inode numbers of open files. A file that was in the writable layer now comes from a layer, under another number. The
 * warden has put an empty file with the old number into a folder of the root (layers/numbers.h). It gets the content
 * and attributes, and then the name. This is done before anything is opened, so every process that had the file open
 * gets the new one. Opening for writing would have copied the file to the writable layer in any case. A file that
 * cannot be replaced is left as it is, and reported.
 */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <dirent.h>
#include <inttypes.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define IN_PLACE (RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS)
/* bytes of files that are only read, and are copied for their numbers: memory they did not take before */
#define READ_ONLY_MAX (8U << 20)
#define NAMES_MAX 65536U
#define VALUE_MAX 65536U
#define NAME_SIZE 32U /* size of a file's name in the folder of numbers */

struct numbering {
	struct restore *r;
	int folder;
	uint64_t copied; /* bytes of files that are open for reading only */
	char *buf; /* NAMES_MAX and VALUE_MAX bytes */
};

static int copy_data(int from, int to, off_t size)
{
	for (off_t at = 0; at < size;) {
		off_t data = lseek(from, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			break; /* the rest of the file is a hole */
		hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
		if (hole < 0 || lseek(to, data, SEEK_SET) < 0)
			return -errno;
		for (at = data; at < hole;) {
			ssize_t n = sendfile(to, from, &at, (size_t)(hole - at));

			if (n < 0 && errno != EINTR)
				return -errno;
			if (n == 0)
				return -EIO;
		}
	}
	return sys_ftruncate(to, size);
}

static int copy_xattrs(const struct numbering *x, int from, int to)
{
	char *value = x->buf + NAMES_MAX;
	ssize_t n = flistxattr(from, x->buf, NAMES_MAX);

	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (const char *p = x->buf; p < x->buf + n; p += strlen(p) + 1) {
		ssize_t len = fgetxattr(from, p, value, VALUE_MAX);

		if (len < 0 || fsetxattr(to, p, value, (size_t)len, 0) < 0)
			return -errno;
	}
	return 0;
}

/* Owner first: changing it takes set-id bits and capabilities away. Times last. */
static int fill(const struct numbering *x, int from, int to, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	int s = copy_data(from, to, st->st_size);

	if (s == 0)
		s = sys_fchownat(to, "", st->st_uid, st->st_gid, AT_EMPTY_PATH);
	if (s == 0)
		s = sys_fchmod(to, st->st_mode & 07777);
	if (s == 0)
		s = copy_xattrs(x, from, to);
	if (s == 0 && futimens(to, times) < 0)
		s = -errno;
	return s;
}

static bool is_written(const struct restore *r, uint32_t file)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++)
		if (r->m.object[i].file == file && r->m.object[i].kind == MEM_OBJ_FILE &&
		    (r->m.object[i].flags & O_ACCMODE) != O_RDONLY)
			return true;
	return false;
}

/* Whether it may be copied for its number. */
static bool is_affordable(struct numbering *x, uint32_t file, const struct stat *st)
{
	if (is_written(x->r, file))
		return true;
	if (x->copied + (uint64_t)st->st_size > READ_ONLY_MAX)
		return false;
	x->copied += (uint64_t)st->st_size;
	return true;
}

static bool is_number(int fd, uint64_t number)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_ino == number && !st.st_size && st.st_nlink == 1;
}

/* Renames the new file over the old one, and restores the times of the folder. */
static int move_over(const struct numbering *x, const char *number, char *path)
{
	const struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = IN_PLACE };
	char *name = strrchr(path, '/') + 1;
	AUTO_CLOSE int folder = -1;
	struct timespec times[2];
	struct stat st;

	name[-1] = '\0';
	folder = sys_openat2(AT_FDCWD, *path ? path : "/", &how);
	if (folder < 0)
		return folder;
	if (fstat(folder, &st) < 0 || renameat(x->folder, number, folder, name) < 0)
		return -errno;
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	return futimens(folder, times) < 0 ? -errno : 0;
}

/* Opens the empty file that has the inode number, and returns its name. */
static int take(const struct numbering *x, uint64_t number, char name[static NAME_SIZE])
{
	for (unsigned set = 0; set < FRAME_NUMBERS_SETS; set++) {
		int fd;

		snprintf(name, NAME_SIZE, "%" PRIu64 ".%u", number, set);
		fd = sys_openat(x->folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
		if (fd >= 0 && is_number(fd, number))
			return fd;
		fd_close(fd);
	}
	return -ENOENT;
}

static int keep_one(struct numbering *x, uint32_t i)
{
	const struct open_how how = { .flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC, .resolve = IN_PLACE };
	const struct mem_file *f = &x->r->m.file[i];
	char path[MEM_PATH_MAX + 1], number[NAME_SIZE];
	AUTO_CLOSE int from = -1, to = -1;
	struct stat st;
	int s;

	memcpy(path, restore_bytes(x->r, f->path), f->path.len);
	path[f->path.len] = '\0';
	if (lstat(path, &st) < 0)
		return -errno;
	if (st.st_ino == f->ino || !S_ISREG(st.st_mode) || st.st_nlink != 1 || !is_affordable(x, i, &st))
		return 0;
	to = take(x, f->ino, number);
	if (to < 0)
		return to;
	from = sys_openat2(AT_FDCWD, path, &how);
	if (from < 0)
		return from;
	s = fill(x, from, to, &st);
	if (s < 0) {
		(void)sys_ftruncate(to, 0); /* an unused number, removed with the others that are left */
		return s;
	}
	return move_over(x, number, path);
}

/* Removes the files that are left, if the warden has made them. */
static void remove_rest(int folder)
{
	DIR *dir = fdopendir(folder);
	const struct dirent *d;

	while (dir && (d = readdir(dir))) {
		AUTO_CLOSE int fd =
			d->d_name[0] == '.' ? -1 : sys_openat(folder, d->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);

		if (fd >= 0 && is_number(fd, strtoull(d->d_name, NULL, 10)))
			sys_unlinkat(folder, d->d_name, 0);
	}
	if (dir)
		closedir(dir);
	else
		fd_close(folder);
	sys_unlinkat(AT_FDCWD, "/" FRAME_NUMBERS, AT_REMOVEDIR);
}

void restore_numbers(struct restore *r)
{
	struct numbering x = { .r = r };

	x.folder = sys_openat(AT_FDCWD, "/" FRAME_NUMBERS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (x.folder < 0)
		return;
	x.folder = restore_high(r, x.folder);
	x.buf = malloc(NAMES_MAX + VALUE_MAX);
	/* What fails is seen when the files are opened: open.c compares their numbers. */
	for (uint32_t i = 0; x.folder >= 0 && x.buf && i < r->m.n[MEM_S_FILE]; i++)
		if (r->m.file[i].ino)
			(void)keep_one(&x, i);
	free(x.buf);
	if (x.folder >= 0)
		remove_rest(x.folder);
}
