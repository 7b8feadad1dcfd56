/* Writes a sandbox's oom_score_adj. */
#include "engine/blank/score.h"
#include "base/base.h"
#include "base/pidfd.h"
#include "base/score.h"
#include "base/sys.h"

int score_set(const struct blank *s, struct err *e)
{
	AUTO_CLOSE int fd = -1;
	char path[48];
	int r;

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)s->pid);
	fd = sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	/* The open file belongs to the process that had the number then. If the agent lives now, that was the agent. */
	r = fd < 0 ? fd : pidfd_ended(s->pidfd) ? -ESRCH : score_sandbox(fd);
	return r < 0 ? err_sys(e, r == -ESRCH || r == -ENOENT ? ERR_LOST : ERR_INTERNAL, r,
			       "write the agent's oom_score_adj") :
		       0;
}
