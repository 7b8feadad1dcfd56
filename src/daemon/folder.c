/* Opens the data folder, takes its lock, and finds the folder of root. */
#include "daemon/folder.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/sys.h"

/* The plain functions of 1.1: those of 3.0 set up the whole library, which this process has no other use for. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK "lock"
#define FIRST "first-start" /* there until the API was ready once */
#define STATE_DB "state.db"
#define RECORDS "boxes" /* the warden's: zeros where no sandbox is */

static int is_empty(int fd, struct err *e)
{
	AUTO_CLOSE int again = sys_openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	char buf[1024];
	ssize_t n;

	if (again < 0)
		return err_sys(e, ERR_INVALID, again, "open it");
	n = sys_getdents64(again, buf, sizeof(buf));
	if (n < 0)
		return err_sys(e, ERR_INVALID, (int)n, "open it");
	/* "." and ".." take 24 bytes each; any other name comes on top. */
	return n <= 48;
}

/* Gives an open folder to @who, if that is allowed. */
static int claim(int fd, const struct identity *who, struct err *e)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_sys(e, ERR_INVALID, -errno, "stat");
	if (st.st_uid == 0) {
		r = is_empty(fd, e);
		if (r < 0)
			return r;
		if (r && fchown(fd, who->uid, who->gid) < 0)
			return err_sys(e, ERR_DENIED, -errno, "change its owner to uid %u", who->uid);
		if (r)
			st.st_uid = who->uid;
	}
	if (st.st_uid != who->uid) {
		err_set(e, ERR_CONFLICT, -EPERM, "belongs to uid %u, but the API runs as uid %u", st.st_uid, who->uid);
		err_remedy(e, "use another folder with --data, or change its owner: chown -R %u:%u", who->uid,
			   who->gid);
		return -EPERM;
	}
	if ((st.st_mode & 07777) != 0700) {
		r = sys_fchmod(fd, 0700);
		if (r < 0)
			return err_sys(e, ERR_DENIED, r, "make it private");
	}
	return 0;
}

/* Whether @who can open the folder by its path: it must be able to enter every folder above. */
static int reaches(const char *real, const struct identity *who, bool *ret, struct err *e)
{
	AUTO_CLOSE int fd = -1;
	int r = identity_files_as(who, e);

	if (r < 0)
		return r;
	fd = sys_openat(AT_FDCWD, real, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	identity_files_back();
	*ret = fd >= 0;
	return 0;
}

static int open_last(const char *path, struct err *e)
{
	char above[1024], name[256];
	const char *slash;
	size_t len = strlen(path);
	AUTO_CLOSE int parent = -1;
	int r;

	while (len > 1 && path[len - 1] == '/')
		len--;
	for (slash = path + len; slash > path && slash[-1] != '/';)
		slash--;
	if (path[0] != '/' || len >= sizeof(above) || slash == path + len ||
	    (size_t)(path + len - slash) >= sizeof(name))
		return err_set(e, ERR_INVALID, -EINVAL, "must be the absolute path of a folder");
	snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
	snprintf(name, sizeof(name), "%.*s", (int)(path + len - slash), slash);
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return err_set(e, ERR_INVALID, -EINVAL, "must end in a name");
	parent = sys_openat(AT_FDCWD, above, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (parent < 0) {
		err_sys(e, ERR_NOT_FOUND, parent, "open its parent folder");
		err_remedy(e, "mkdir -p '%.120s'", above);
		return parent;
	}
	r = sys_mkdirat(parent, name, 0700);
	if (r < 0 && r != -EEXIST)
		return err_sys(e, ERR_DENIED, r, "make it");
	r = sys_openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (r == -ELOOP || r == -ENOTDIR)
		return err_set(e, ERR_INVALID, r, "must be a folder, not a link or file");
	return r < 0 ? err_sys(e, ERR_DENIED, r, "open it") : r;
}

int folder_open(const char *path, const struct identity *who, char *real, size_t size, bool *ret_reached, struct err *e)
{
	AUTO_CLOSE int fd = open_last(path, e);
	char link[64];
	ssize_t n;
	int r = fd;

	if (r >= 0)
		r = claim(fd, who, e);
	if (r < 0)
		return err_wrap(e, r, "data folder '%.100s'", path);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, real, size);
	if (n < 0 || (size_t)n >= size)
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "data folder '%.100s': cannot resolve its real path",
			       path);
	real[n] = '\0';
	r = reaches(real, who, ret_reached, e);
	return r < 0 ? err_wrap(e, r, "data folder '%.100s'", path) : TAKE_FD(fd);
}

static int busy(int fd, struct err *e)
{
	char text[32] = "";
	uint64_t pid;
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (parse_u64(text, &pid, NULL) < 0)
		pid = 0;
	err_set(e, ERR_CONFLICT, -EBUSY, "another daemon uses this data folder (pid %llu)", (unsigned long long)pid);
	err_remedy(e, "stop that daemon, or use another folder with --data");
	return -EBUSY;
}

static int lock_wait(int fd, unsigned wait_ms, struct err *e)
{
	const struct timespec nap = { 0, 20 * 1000 * 1000 };
	uint64_t end = clock_mono_ns() + wait_ms * 1000000ULL;
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	while (fcntl(fd, F_OFD_SETLK, &l) < 0) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return err_sys(e, ERR_INTERNAL, -errno, "lock the data folder");
		if (clock_mono_ns() >= end)
			return busy(fd, e);
		nanosleep(&nap, NULL);
	}
	return 0;
}

/* Opens as @who, so that the file belongs to @who, and links cannot lead to files of root. */
static int open_as(int dirfd, const char *name, int flags, const struct identity *who, struct err *e)
{
	int r = identity_files_as(who, e);

	if (r < 0)
		return r;
	r = sys_openat(dirfd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	identity_files_back();
	return r < 0 ? err_sys(e, ERR_DENIED, r, "open '%s' in the data folder", name) : r;
}

int folder_lock(int dirfd, const struct identity *who, unsigned wait_ms, struct err *e)
{
	AUTO_CLOSE int fd = open_as(dirfd, LOCK, O_RDWR | O_CREAT, who, e);
	char text[32];
	int n, r;

	if (fd < 0)
		return fd;
	r = lock_wait(fd, wait_ms, e);
	if (r < 0)
		return r;
	n = snprintf(text, sizeof(text), "%d\n", getpid());
	/* For the message of a second daemon; the lock does not depend on it. */
	if (sys_ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
		return err_set(e, ERR_EXHAUSTED, -ENOSPC, "the data folder is not writable");
	return TAKE_FD(fd);
}

static bool is_there(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

bool folder_is_new(int dirfd)
{
	return is_there(dirfd, FIRST) || !is_there(dirfd, STATE_DB);
}

int folder_begin(int dirfd, const struct identity *who, struct err *e)
{
	AUTO_CLOSE int fd = open_as(dirfd, FIRST, O_WRONLY | O_CREAT, who, e);

	return fd < 0 ? fd : 0;
}

void folder_used(int dirfd, const struct identity *who)
{
	if (identity_files_as(who, NULL) < 0)
		return;
	sys_unlinkat(dirfd, FIRST, 0);
	identity_files_back();
}

static int make_root_folder(const char *path, mode_t mode, struct err *e)
{
	struct stat st;
	int r = sys_mkdirat(AT_FDCWD, path, mode);

	if (r < 0 && r != -EEXIST)
		return err_sys(e, ERR_INTERNAL, r, "make %s", path);
	if (lstat(path, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "%s", path);
	if (!S_ISDIR(st.st_mode) || st.st_uid != 0 || (st.st_mode & 022))
		return err_set(e, ERR_CONFLICT, -EPERM, "%s: must be a folder that only root may write to", path);
	return 0;
}

int folder_run(struct err *e)
{
	return make_root_folder(FOLDER_RUN, 0755, e);
}

int folder_state(const char *real, char *path, size_t size, struct err *e)
{
	unsigned char hash[SHA256_DIGEST_LENGTH];
	SHA256_CTX c;
	size_t n;
	int r;

	SHA256_Init(&c);
	SHA256_Update(&c, real, strlen(real));
	SHA256_Final(hash, &c);
	n = (size_t)snprintf(path, size, "%s/w-", FOLDER_RUN);
	for (size_t i = 0; i < 8 && n < size; i++)
		n += (size_t)snprintf(path + n, size - n, "%02x", hash[i]);
	if (n >= size)
		return err_set(e, ERR_INTERNAL, -ENAMETOOLONG, "the path of the state folder is too long");
	r = folder_run(e);
	return r < 0 ? r : make_root_folder(path, 0700, e);
}

static bool is_zeros(int fd)
{
	char buf[4096];
	ssize_t n;

	while ((n = sys_read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < n; i++)
			if (buf[i])
				return false;
	return n == 0;
}

void folder_state_done(const char *path)
{
	AUTO_CLOSE int dir = sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	AUTO_CLOSE int fd = dir < 0 ? -1 : sys_openat(dir, RECORDS, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);

	if (fd >= 0 && !is_zeros(fd))
		return;
	if (fd >= 0)
		sys_unlinkat(dir, RECORDS, 0);
	/* A warden that was ended early has written none. A folder with anything in it stays. */
	sys_unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
