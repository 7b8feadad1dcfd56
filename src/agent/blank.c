/*
 * The anonymous part of a sandbox: everything that does not depend on the image, done before one is known. Ends with
 * the agent locked down; what follows passes the filter only with the cookie.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "linux/landlock.h"
#include "linux/mount.h"
#include "linux/seccomp.h"

#include <linux/prctl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* Of mount(2): libc's header for them clashes with the kernel's for the new calls. */
#define OLD_RDONLY 1UL
#define OLD_NOSUID 2UL
#define OLD_NODEV 4UL
#define OLD_NOEXEC 8UL
#define OLD_REMOUNT 32UL
#define OLD_BIND 4096UL

#define QUEUE_BYTES 819200U /* the kernel's MQ_BYTES_MAX */

/* An existing folder that the base is mounted on until pivot_root() leaves it behind. */
#define STEPPING_STONE "/usr"

/* The host has made all namespaces; on older kernels the agent still has to enter the time namespace. */
static int enter_namespaces(void)
{
	unsigned major = 0, minor = 0;
	AUTO_CLOSE int ns = -1;
	struct utsname u;

	/* From 6.6 on at the latest, execve moves a process into the time namespace that was made for its children. */
	if (uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	    (major > 6 || (major == 6 && minor >= 6)))
		return 0;
	ns = sys_openat(AT_FDCWD, "/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC, 0);
	return ns < 0 ? ns : sys_setns(ns, CLONE_NEWTIME);
}

/*
 * The host's mount of an empty read-only folder with seven places: n for the image, p for /proc, e for /dev, s for /sys,
 * c for /sys/fs/cgroup, f for files that show processors, k for what is only kept; and z, an empty file to mask others with. Some may
 * be mounted already (engine/image/group_tree.h). Not the null device: that could be opened for
 * writing on a read-only mount.
 */
static int mount_base(void)
{
	return mount_attach(AGENT_BASE, STEPPING_STONE, 0);
}

/*
 * What is mounted here goes where it belongs in one old-fashioned call. A mount that is made first and attached then
 * costs a mount namespace of its own, which the kernel makes and takes apart again: for the dozen of these that was a
 * tenth of what a sandbox costs.
 */
static int mount_proc(void)
{
	return sys_mount("proc", STEPPING_STONE "/p", "proc", OLD_NOSUID | OLD_NODEV | OLD_NOEXEC, NULL);
}

/*
 * POSIX message queues, which belong to the IPC namespace. Their messages count as memory of the sandbox. A kernel without them
 * refuses mq_open, too.
 */
static int mount_queues(void)
{
	int r = sys_mount("mqueue", STEPPING_STONE "/e/mqueue", "mqueue", OLD_NOSUID | OLD_NODEV | OLD_NOEXEC, NULL);

	return r == -ENODEV ? 0 : r;
}

static int mount_dev(void)
{
	struct stat st;
	int r;

	if (fstat(AGENT_DEV, &st) < 0)
		return -errno;
	r = S_ISDIR(st.st_mode) ? mount_attach(AGENT_DEV, STEPPING_STONE "/e", 0) : 0; /* else it is there */
	if (r < 0)
		return r;
	/* The folder was made by another process: what it calls null must be the null device. */
	if (stat(STEPPING_STONE "/e/null", &st) < 0)
		return -errno;
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
		return -ENODEV;
	r = sys_mount("devpts", STEPPING_STONE "/e/pts", "devpts", OLD_NOSUID | OLD_NOEXEC,
		      "newinstance,ptmxmode=0666,mode=0620,max=64");
	return r == 0 ? mount_queues() : r;
}

/*
 * What is missing needs no mask, but it must be the file that is missing and not the mask: a copy of the base, so
 * private and read-only as that is.
 */
static int cover(const char *with, const char *path)
{
	int r = sys_mount(with, path, NULL, OLD_BIND, NULL), at;

	if (r != -ENOENT)
		return r;
	at = sys_openat(AT_FDCWD, path, O_PATH | O_CLOEXEC | O_NOFOLLOW, 0);
	fd_close(at);
	return at == -ENOENT ? 0 : r;
}

/* The second call repeats all flags: flags that it does not name would be removed. */
static int cover_read_only(const char *path)
{
	int r = cover(path, path);

	if (r == 0)
		r = sys_mount(NULL, path, NULL,
			      OLD_REMOUNT | OLD_BIND | OLD_RDONLY | OLD_NOSUID | OLD_NODEV | OLD_NOEXEC, NULL);
	return r == -ENOENT ? 0 : r;
}

/*
 * Files of /proc that belong to the host's root are out of reach already: the sandbox does not have that user, whatever
 * it is root of. Masked is what every user may read and what reveals keys, hardware, the host's boot options
 * (addresses, ids, sometimes secrets) or the number of sandboxes (each holds a lock, and locks are shown to all pid
 * namespaces). As a second barrier, the two interfaces that change the kernel are masked, too. /proc/sys is read-only,
 * since some of its settings belong to the sandbox's own namespaces. Each mask costs a mount, so there are no more.
 * Masks are copies of the base, so they are read-only already.
 */
static int mask_proc(void)
{
#define P STEPPING_STONE "/p/"
	static const char *const files[] = { P "kcore", P "keys", P "sysrq-trigger", P "cmdline", P "locks" };
	static const char *const folders[] = { P "acpi", P "scsi", P "pressure" };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(files); i++)
		r = cover(STEPPING_STONE "/z", files[i]);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(folders); i++)
		r = cover(STEPPING_STONE "/k", folders[i]);
	/* The sandbox's own processors, where they are known already: also a read-only mount. */
	if (r == 0 && access(STEPPING_STONE "/f/cpuinfo", F_OK) == 0) {
		r = cover(STEPPING_STONE "/f/cpuinfo", P "cpuinfo");
		r = r == 0 ? cover(STEPPING_STONE "/f/stat", P "stat") : r;
	}
	return r == 0 ? cover_read_only(P "sys") : r;
#undef P
}

static int pivot(void)
{
	int r = sys_chdir(STEPPING_STONE);

	if (r == 0)
		r = sys_pivot_root(".", ".");
	if (r == 0)
		r = sys_umount2(".", 2 /* MNT_DETACH: the host's whole tree */);
	if (r == 0)
		r = sys_chdir("/");
	return r;
}

/* Sets the usual limit for the message queues of a user, whatever the host's own limit is. */
static int bound_queues(void)
{
	struct rlimit now;

	if (getrlimit(RLIMIT_MSGQUEUE, &now) < 0)
		return -errno;
	return now.rlim_max <= QUEUE_BYTES ? 0 : sys_prlimit(RLIMIT_MSGQUEUE, QUEUE_BYTES, QUEUE_BYTES);
}

static int lock_privileges(struct agent *a)
{
	/*
	 * The bounding set is emptied once, here, for every exec to come. What root's execs keep is inheritable
	 * instead, which has to be said before; nothing can be added to either later.
	 */
	int r = caps_inherit(CAPS_ROOT);

	if (r == 0 && a->single_id)
		r = sys_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (r == 0)
		r = caps_drop_bounding(0);
	if (r == 0)
		r = sys_prctl(PR_SET_SECUREBITS, SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED, 0, 0,
			      0);
	if (r == 0)
		r = sys_prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (r == 0)
		r = sys_prlimit(4 /* RLIMIT_CORE */, 0, 0);
	if (r == 0)
		r = bound_queues();
	if (r < 0)
		return r;
	if (getrandom(&a->cookie, sizeof(a->cookie), 0) != sizeof(a->cookie))
		return -EIO;
	a->cookie |= 1; /* never 0 */
	return 0;
}

/*
 * Opens /proc/sys/kernel before it is covered: the agent chooses ids of System V objects there until it has restored
 * processes. If it is missing, such a restore is refused.
 */
static int open_sysctl(void)
{
	int fd = sys_openat(AT_FDCWD, STEPPING_STONE "/p/sys/kernel", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	int high = fd < 0 ? fd : sys_fcntl(fd, F_DUPFD_CLOEXEC, AGENT_PLACES_END);

	fd_close(fd);
	return high;
}

int blank_enter(struct agent *a, enum frame_stage *stage)
{
	static const struct {
		enum frame_stage stage;
		int (*fn)(void);
	} steps[] = {
		{ FRAME_STAGE_NAMESPACE, enter_namespaces },
		{ FRAME_STAGE_BASE, mount_base },
		{ FRAME_STAGE_PROC, mount_proc },
		{ FRAME_STAGE_DEV, mount_dev },
		{ FRAME_STAGE_MASK, mask_proc },
		{ FRAME_STAGE_PIVOT, pivot },
	};
	int r;

	umask(022);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		*stage = steps[i].stage;
		if (*stage == FRAME_STAGE_MASK)
			a->sysctl = open_sysctl();
		r = steps[i].fn();
		if (r == 0 && *stage == FRAME_STAGE_MASK)
			r = group_view_mount(a, STEPPING_STONE);
		if (r < 0)
			return r;
	}
	fd_close(AGENT_DEV);
	fd_close(AGENT_BASE);
	*stage = FRAME_STAGE_LANDLOCK;
	r = a->landlock = landlock_abi();
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_CAPS;
	r = lock_privileges(a);
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_NNP;
	r = sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_SECCOMP;
	return seccomp_install(a->cookie);
}
