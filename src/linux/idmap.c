#include "linux/idmap.h"
#include "base/base.h"
#include "base/sys.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static int write_maps(pid_t pid, uint32_t uid, uint32_t to_uid, uint32_t gid, uint32_t to_gid)
{
	char path[64], text[48];
	int r;

	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	snprintf(text, sizeof(text), "%u %u 1", uid, to_uid);
	r = fd_put(AT_FDCWD, path, text);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
	snprintf(text, sizeof(text), "%u %u 1", gid, to_gid);
	r = fd_put(AT_FDCWD, path, text);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	return sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
}

int idmap_new(uint32_t uid, uint32_t to_uid, uint32_t gid, uint32_t to_gid, struct err *e)
{
	struct clone_args a = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	long pid = sys_clone3(&a, sizeof(a));
	int r, status;

	if (pid == 0) {
		/* Only has to exist until its namespace is open. */
		pause();
		_exit(0);
	}
	if (pid < 0)
		return err_sys(e, ERR_UNSUPPORTED, (int)pid, "make a user namespace for an id map");
	r = write_maps((pid_t)pid, uid, to_uid, gid, to_gid);
	kill((pid_t)pid, SIGKILL);
	while (waitpid((pid_t)pid, &status, 0) < 0 && errno == EINTR)
		;
	return r < 0 ? err_sys(e, ERR_UNSUPPORTED, r, "map owner %u:%u", uid, gid) : r;
}
