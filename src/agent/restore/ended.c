/*
 * Descriptors of processes that ended and were reaped (pidfd_open): each is made of a child that ends in the same
 * manner.
 */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void end_as(uint64_t status)
{
	const int sig = (int)(status & 0x7f);
	sigset_t all;

	if (sig) {
		sys_prlimit(RLIMIT_CORE, 0, 0);
		signal(sig, SIG_DFL);
		sigfillset(&all);
		sigprocmask(SIG_UNBLOCK, &all, NULL);
		kill(getpid(), sig);
	}
	_exit((int)(status >> 8 & 0xff));
}

int restore_ended(struct restore *r, uint32_t i)
{
	const struct mem_object *all = r->m.object;
	int status, x = 0;
	pid_t pid;

	if (all[i].a || r->object[i] >= 0)
		return 0;
	pid = fork();
	if (pid == 0)
		end_as(all[i].b);
	if (pid < 0)
		return -errno;
	/* Whether it has ended by then or not: it has its number until we have waited. */
	for (uint32_t k = i; x >= 0 && k < r->m.n[MEM_S_OBJECT]; k++) {
		if (all[k].kind != MEM_OBJ_PIDFD || all[k].a || all[k].pair != all[i].pair)
			continue;
		x = sys_pidfd_open(pid, (unsigned)(all[k].flags & (O_NONBLOCK | O_EXCL)));
		if (x >= 0)
			x = r->object[k] = restore_high(r, x);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return x < 0 ? x : 0;
}
