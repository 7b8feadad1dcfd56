/*
 * Images for virtual machines, made in cloche-vm-files (main.c). A folder becomes one erofs file in the cache, named by
 * the folder's path and by a digest of all that lstat shows of all files in it: a change makes another file,and the old
 * one is removed. Machines share it and only read it.
 */
#include "base/base.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "layers/walk.h"
#include "vm/host/files.h"

#include <dirent.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAME_HEX 16
#define NAP_NS 10000000L
#define KEEP_SECONDS (30 * 24 * 3600)

int vm_pace_lock(struct vm_pace *p, int fd)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (vm_pace_stopped(p))
			return -ECANCELED;
		vm_pace_set(p, VM_STEP_OTHER, 0);
		nanosleep(&nap, NULL);
	}
	return 0;
}

static void add_stat(struct sha256 *s, const char *name, const struct stat *st)
{
	const uint64_t facts[] = { st->st_mode,
				   st->st_uid,
				   st->st_gid,
				   (uint64_t)st->st_size,
				   st->st_ino,
				   st->st_rdev,
				   (uint64_t)st->st_mtim.tv_sec,
				   (uint64_t)st->st_mtim.tv_nsec,
				   (uint64_t)st->st_ctim.tv_sec,
				   (uint64_t)st->st_ctim.tv_nsec };

	sha256_add(s, name, strlen(name) + 1);
	sha256_add(s, facts, sizeof(facts));
}

/* File content is not read: changing a file changes its times. */
static int digest(int dir, struct sha256 *s, const struct vm_pace *p)
{
	struct walk w;
	struct stat st;
	const char *name;
	int r;

	if (fstat(dir, &st) < 0)
		return -errno;
	add_stat(s, "/", &st);
	dir = sys_openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	r = dir < 0 ? dir : walk_begin(&w, dir, true);
	if (r < 0)
		return r;
	while (r == 0 && w.depth) {
		name = walk_next(&w);
		if (!name) {
			sha256_add(s, "", 1);
			if (w.depth == 1)
				break;
			r = walk_up(&w);
			continue;
		}
		if (fstatat(w.fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			r = -errno;
			break;
		}
		add_stat(s, name, &st);
		if (S_ISDIR(st.st_mode))
			r = vm_pace_stopped(p) ? -ECANCELED : walk_down(&w, name);
	}
	walk_done(&w);
	return r;
}

static void put_hex(char *out, const uint8_t *sum)
{
	for (size_t i = 0; i < NAME_HEX / 2; i++)
		snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

static int make_name(const char *path, int dir, char *name, size_t size, const struct vm_pace *p,
		     uint8_t id[SHA256_SIZE], struct err *e)
{
	uint8_t sum[SHA256_SIZE];
	char which[NAME_HEX + 1], what[NAME_HEX + 1];
	struct sha256 s;
	int r;

	sha256_init(&s);
	sha256_add(&s, path, strlen(path));
	sha256_end(&s, sum);
	put_hex(which, sum);
	sha256_init(&s);
	r = digest(dir, &s, p);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "image '%s': check it for changes", path);
	sha256_end(&s, sum);
	put_hex(what, sum);
	memcpy(id, sum, SHA256_SIZE);
	snprintf(name, size, "%s-%s.erofs", which, what);
	return 0;
}

/* Removes earlier images of the same folder, and unused ones. Processes that have one open keep it. */
static void sweep(int cache, const char *name)
{
	const time_t old = time(NULL) - KEEP_SECONDS;
	int fd = sys_openat(cache, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir) {
		fd_close(fd);
		return;
	}
	while ((d = readdir(dir))) {
		struct stat st;

		if (d->d_name[0] == '.' || !strcmp(d->d_name, name) || !strstr(d->d_name, ".erofs"))
			continue;
		if (!strncmp(d->d_name, name, NAME_HEX + 1) ||
		    (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtime < old))
			sys_unlinkat(fd, d->d_name, 0);
	}
	closedir(dir);
}

/*
 * Waits for its end, or kills it: it also dies with this process. Unwritten gigabytes take seconds to drop: the file
 * has no name any more, and is freed with the process that has it open, which is not waited for.
 */
static int wait_mkfs(pid_t pid, const char *out, struct vm_pace *p)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	struct stat st;
	int status = -1, r;

	while ((r = sys_wait4(pid, &status, WNOHANG)) == 0 || r == -EINTR) {
		if (vm_pace_stopped(p)) {
			sys_unlinkat(AT_FDCWD, out, 0);
			break;
		}
		vm_pace_set(p, VM_STEP_MKFS, stat(out, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512);
		nanosleep(&nap, NULL);
	}
	return status;
}

static int run_mkfs(const char *out, int dir, struct vm_pace *p, struct err *e)
{
	char path[40];
	char *argv[] = { (char *)(uintptr_t) "mkfs.erofs",
			 (char *)(uintptr_t) "--quiet",
			 (char *)(uintptr_t) "--preserve-mtime",
			 (char *)(uintptr_t) "-Enoinline_data",
			 (char *)(uintptr_t)out,
			 path,
			 NULL };
	char *envp[] = { (char *)(uintptr_t) "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/.", dir);
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a killed warden leaves no process behind */
		fcntl(dir, F_SETFD, 0);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		execve("/usr/bin/mkfs.erofs", argv, envp);
		execve("/usr/sbin/mkfs.erofs", argv, envp);
		_exit(127);
	}
	if (pid < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "start mkfs.erofs");
	status = wait_mkfs(pid, out, p);
	if (vm_pace_stopped(p))
		return err_set(e, ERR_CONFLICT, -ECANCELED, "the warden is stopping");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	err_set(e, ERR_UNSUPPORTED, -EIO, "mkfs.erofs failed (status %d)",
		WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	err_remedy(e, "install erofs-utils, or use --isolation container");
	return -EIO;
}

static int make(int cache, const char *folder, const char *name, int dir, struct vm_pace *p, struct err *e)
{
	char part[128], whole[600];
	int r;

	snprintf(part, sizeof(part), "%.*s" VM_IMAGE_PART, (int)strcspn(name, "."), name);
	snprintf(whole, sizeof(whole), "%s/%s", folder, part);
	sys_unlinkat(cache, part, 0);
	r = run_mkfs(whole, dir, p, e);
	if (r == 0 && renameat(cache, part, cache, name) < 0)
		r = err_sys(e, ERR_INTERNAL, -errno, "store the image");
	if (r < 0)
		sys_unlinkat(cache, part, 0);
	return r;
}

int vm_image_fixed(const struct vm_cache *c, const char *key, const char *name, int dir, struct vm_pace *p, int *ret,
		   struct err *e)
{
	AUTO_CLOSE int cache = sys_openat(c->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), fd = -1;
	const char *folder = c->path;
	int r;

	if (cache < 0)
		return err_sys(e, ERR_INTERNAL, cache, "open %s", folder);
	fd = sys_openat(cache, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (fd == -ENOENT) {
		/* One process makes it, others wait for the lock. */
		r = vm_pace_lock(p, cache);
		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r, "lock %s", folder);
		fd = sys_openat(cache, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
		if (fd == -ENOENT) {
			log_info("image '%s': making a disk image of it for virtual machines", key);
			r = make(cache, folder, name, dir, p, e);
			fd = r < 0 ? -1 : sys_openat(cache, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
		}
		if (r < 0)
			return err_wrap(e, r, "image '%s'", key);
	}
	if (fd < 0)
		return err_sys(e, ERR_INTERNAL, fd, "open %s/%s", folder, name);
	futimens(fd, NULL); /* marks it as used: see sweep() */
	*ret = TAKE_FD(fd);
	return 0;
}

int vm_image(const struct vm_cache *c, const char *key, int dir, struct vm_pace *p, int *ret,
	     uint8_t ret_id[SHA256_SIZE], struct err *e)
{
	char name[2 * NAME_HEX + 16];
	bool there;
	int r;

	vm_pace_set(p, VM_STEP_WALK, 0);
	r = make_name(key, dir, name, sizeof(name), p, ret_id, e);
	if (r < 0)
		return r;
	there = faccessat(c->dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	r = vm_image_fixed(c, key, name, dir, p, ret, e);
	if (r == 0 && !there)
		sweep(c->dir, name);
	return r;
}
