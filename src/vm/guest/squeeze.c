/*
 * Ends a process of a sandbox that has nearly filled its memory, in place of the kernel. The kernel finds pages of
 * files to reclaim, of programs and libraries that run, and reads them again at once, and again. To the kernel that is
 * progress, so for minutes it ends no process. On a host there is other memory to reclaim; a machine is only as large
 * as its sandbox. So this watcher decides as the kernel would have: the process that uses most ends, and counts as
 * killed by the memory limit.
 */
#include "base/base.h"
#include "base/sys.h"
#include "linux/cgroup_parse.h"
#include "vm/guest/guest.h"

#include <signal.h>
#include <unistd.h>

#define FULL(limit) ((limit) - (limit) / 20)
/* file pages in memory, in bytes, below which the sandbox cannot work (or a 64th of its memory) */
#define FILES_MIN (2 * MIB)
#define AGAIN 64U /* file pages read again in a second, from which the pages in use are being reclaimed */
#define SECONDS 3U /* seconds in a row after which a process is ended */

/* Reads two figures of the sandbox's memory.stat. */
static bool look(const struct guest *g, uint64_t *ret_files, uint64_t *ret_again)
{
	uint64_t files = 0, shared = 0;
	char text[4096];

	if (warden_memory_stat(g->sandbox, text, sizeof(text)) < 0 || cgroup_parse_kv(text, "file", &files) < 0 ||
	    cgroup_parse_kv(text, "shmem", &shared) < 0 ||
	    cgroup_parse_kv(text, "workingset_refault_file", ret_again) < 0)
		return false;
	*ret_files = files > shared ? files - shared : 0;
	return true;
}

static unsigned long score(pid_t pid)
{
	char path[48], text[32];

	snprintf(path, sizeof(path), "/proc/%d/oom_score", (int)pid);
	return fd_get(AT_FDCWD, path, text, sizeof(text)) < 0 ? 0 : strtoul(text, NULL, 10);
}

struct worst {
	pid_t pid;
	unsigned long score;
};

static void compare(void *arg, pid_t pid)
{
	struct worst *w = arg;
	const unsigned long s = score(pid);

	if (!w->pid || s > w->score)
		*w = (struct worst){ pid, s };
}

void squeeze_look(struct guest *g, uint64_t used)
{
	struct guest_squeeze *s = &g->squeeze;
	uint64_t files, again, before = s->again;
	const uint64_t least = g->limit / 64 > FILES_MIN ? g->limit / 64 : FILES_MIN;
	struct worst w = { 0 };

	if (used < FULL(g->limit) || !look(g, &files, &again)) {
		s->seconds = 0;
		s->again = 0;
		return;
	}
	s->again = again;
	s->seconds = before && again >= before + AGAIN && files < least ? s->seconds + 1 : 0;
	if (s->seconds < SECONDS)
		return;
	s->seconds = 0;
	if (resume_each(g, compare, &w) == 0 && w.pid && kill(w.pid, SIGKILL) == 0)
		s->kills++;
}
