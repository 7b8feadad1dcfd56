/*
 * The identity of a machine that continues from another's memory. All of it is set before any process of the sandbox
 * runs: until then the machine has the other's random numbers, clock and names.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"
#include "vm/guest/guest.h"

#include <dirent.h>
#include <grp.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILED_STATUS 100

int resume_each(const struct guest *g, void (*fn)(void *arg, pid_t pid), void *arg)
{
	const pid_t agent = warden_pid(g->sandbox);
	char path[64], want[64] = "", have[64];
	DIR *dir = opendir("/proc");
	struct dirent *d;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)agent);
	if (!dir || readlink(path, want, sizeof(want) - 1) <= 0) {
		if (dir)
			closedir(dir);
		return -ESRCH;
	}
	while ((d = readdir(dir))) {
		unsigned long pid = strtoul(d->d_name, NULL, 10);
		ssize_t n;

		if (!pid || pid == (unsigned long)agent)
			continue;
		snprintf(path, sizeof(path), "/proc/%lu/ns/pid", pid);
		n = readlink(path, have, sizeof(have) - 1);
		if (n <= 0)
			continue;
		have[n] = '\0';
		if (!strcmp(have, want))
			fn(arg, (pid_t)pid);
	}
	closedir(dir);
	return 0;
}

static void kill_one(void *arg, pid_t pid)
{
	(void)arg;
	kill(pid, SIGKILL);
}

/* In a child: enters the sandbox as its root. */
static int enter(int pidfd, int root)
{
	int r = sys_setns(pidfd, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS);

	if (r == 0 && (fchdir(root) < 0 || sys_chroot(".", 0) < 0))
		r = -EPERM;
	if (r == 0 && (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
		r = -EPERM;
	return r;
}

/* Opens the folder of secrets. A descriptor, or -errno. */
static int open_secrets(int *ret_run)
{
	int r = *ret_run = sys_openat(AT_FDCWD, "/run", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

	return r < 0 ? r : sys_openat(r, "secrets", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
}

static int make_secrets(void)
{
	AUTO_CLOSE int run = -1, dir = -1;
	int r;

	(void)sys_mkdirat(AT_FDCWD, "/run", 0755);
	(void)sys_mkdirat(AT_FDCWD, SPEC_SECRETS, 0755);
	r = dir = open_secrets(&run);
	if (r >= 0)
		r = fchdir(dir) < 0 ? -errno :
				      sys_mount("none", ".", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=4m");
	return r;
}

/*
 * The files of secrets, which are in memory and so came along. A container that is restored has none until it is given those it is
 * to have now; that may be others, or none. A folder that is no file system of its own is none of ours. With MUX_RESUME_SECRETS
 * there is one afterwards, also where there was none: what is given then must not get on the disk.
 */
static int forget_secrets(const struct mux_resume *who)
{
	AUTO_CLOSE int run = -1;
	int fd = open_secrets(&run), r = 0;
	struct stat above, st;
	struct statfs fs;
	struct dirent *d;
	bool ours;
	DIR *dir;

	if (fd < 0)
		return who->flags & MUX_RESUME_SECRETS ? make_secrets() : fd == -ENOMEM ? fd : 0;
	dir = fdopendir(fd);
	if (!dir || fstat(run, &above) < 0 || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0) {
		r = -errno;
		if (dir)
			closedir(dir);
		else
			fd_close(fd);
		return r;
	}
	ours = st.st_dev != above.st_dev && fs.f_type == TMPFS_MAGIC;
	while (ours && r == 0 && (d = readdir(dir)))
		if (d->d_type != DT_DIR) /* a folder is not one of the secrets */
			r = sys_unlinkat(dirfd(dir), d->d_name, 0);
	closedir(dir);
	return r == 0 && !ours && who->flags & MUX_RESUME_SECRETS ? make_secrets() : r;
}

static _Noreturn void be_inside(int pidfd, int root, const struct mux_resume *who)
{
	uint32_t done = 0;
	int r = enter(pidfd, root);

	if (r == 0 && who->hostname[0] && sethostname(who->hostname, strlen(who->hostname)) < 0)
		r = -errno;
	if (r == 0)
		r = forget_secrets(who);
	if (r == 0 && who->flags & MUX_RESUME_FRESH)
		done = fresh_make();
	_exit(r < 0 ? FAILED_STATUS : (int)done);
}

static int open_root(const struct guest *g)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/root", (int)warden_pid(g->sandbox));
	return sys_openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
}

int resume_resolver(const struct guest *g)
{
	AUTO_CLOSE int root = open_root(g);
	int status = 0;
	pid_t pid = root < 0 ? root : fork();

	if (pid == 0)
		_exit(enter(warden_pidfd(g->sandbox), root) < 0 || resolver_make() < 0 ? FAILED_STATUS : 0);
	if (root < 0 || pid < 0)
		return root < 0 ? root : -errno;
	return waitpid(pid, &status, 0) == pid && !status ? 0 : -EIO;
}

static int name_it(const struct guest *g, const struct mux_resume *who, struct err *e)
{
	AUTO_CLOSE int root = open_root(g);
	int status = 0;
	pid_t pid;

	if (root < 0)
		return err_sys(e, ERR_INTERNAL, root, "guest: open the sandbox's root");
	pid = fork();
	if (pid == 0)
		be_inside(warden_pidfd(g->sandbox), root, who);
	if (pid < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "guest: start a process");
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) == FAILED_STATUS)
		return err_set(e, ERR_INTERNAL, -EIO,
			       "guest: the sandbox's name or its folder for secrets cannot be set");
	return WEXITSTATUS(status);
}

int resume_as(struct guest *g, const struct mux_resume *who, struct err *e)
{
	int r = boot_fresh(who->real_ns, who->seed, e);

	if (r == 0 && who->flags & MUX_RESUME_DROP) {
		r = resume_each(g, kill_one, NULL);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "guest: end the sandbox's processes");
	}
	return r < 0 ? r : name_it(g, who, e);
}
