/* Makes the user namespace of an idmapped mount. */
#include "linux/idmap.h"
#include "base/base.h"
#include "base/sys.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static int write_maps(pid_t pid, const char *uids, const char *gids)
{
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	r = fd_put(AT_FDCWD, path, uids);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
	r = fd_put(AT_FDCWD, path, gids);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	return sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
}

static int idmap_make(const char *uids, const char *gids, struct err *e)
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
	r = write_maps((pid_t)pid, uids, gids);
	kill((pid_t)pid, SIGKILL);
	while (waitpid((pid_t)pid, &status, 0) < 0 && errno == EINTR)
		;
	return r;
}

int idmap_new(uint32_t uid, uint32_t to_uid, uint32_t gid, uint32_t to_gid, struct err *e)
{
	char uids[48], gids[48];
	int r;

	snprintf(uids, sizeof(uids), "%u %u 1", uid, to_uid);
	snprintf(gids, sizeof(gids), "%u %u 1", gid, to_gid);
	r = idmap_make(uids, gids, e);
	return r < 0 ? err_sys(e, ERR_UNSUPPORTED, r, "map owner %u:%u", uid, gid) : r;
}

int idmap_move(uint32_t from, uint32_t to, uint32_t n, struct err *e)
{
	char text[80];
	int r;

	snprintf(text, sizeof(text), "0 0 1\n%u %u %u\n", from, to, n);
	r = idmap_make(text, text, e);
	return r < 0 ? err_sys(e, ERR_UNSUPPORTED, r, "map owners %u to %u", from, to) : r;
}
