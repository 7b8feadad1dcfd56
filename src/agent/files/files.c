/*
 * File workers. FILES makes the agent fork itself; the child forgets everything of the agent's but its code, becomes
 * the user, and serves one socket until it closes. It runs no program, so nothing inside the sandbox can take its
 * place, and it is not dumpable, so nothing inside can read or trace it. Its memory is a copy and counted as the
 * sandbox's.
 */
#include "agent/agent.h"
#include "agent/files/worker.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/seccomp.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int confine(const struct agent *a, const struct frame_files *x)
{
	int r = exec_become(a, x->uid, x->gid);

	if (r < 0)
		return r;
	if (a->host_writable) {
		r = seccomp_install_no_setid();
		if (r < 0)
			return r;
	}
	/* After the ids: changing them decides anew whether we may be looked at. */
	r = sys_prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (r < 0)
		return r;
	return sys_prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : -EPERM;
}

static _Noreturn void worker(const struct agent *a, const struct frame_files *x, int sock)
{
	struct worker w = { .root = -1 };
	sigset_t none;
	int r;

	setsid();
	prctl(PR_SET_NAME, "cloche-files");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(022);
	r = sys_dup3(sock, WORKER_SOCK, O_CLOEXEC);
	if (r < 0 || sys_close_range(0, WORKER_SOCK - 1, 0) < 0 || sys_close_range(WORKER_SOCK + 1, ~0U, 0) < 0)
		_exit(1);
	/*
	 * Only the sandbox's own limits bound the size of files here; where one remains, it must be an error and not a
	 * signal.
	 */
	signal(SIGXFSZ, SIG_IGN);
	sys_prlimit(RLIMIT_FSIZE, RLIM_INFINITY, RLIM_INFINITY);
	snprintf(w.cwd, sizeof(w.cwd), "%s", x->cwd);
	w.in = mmap(NULL, (size_t)2 * FILE_FRAME_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w.in == MAP_FAILED)
		_exit(1);
	w.out = w.in + FILE_FRAME_MAX;
	w.step = FILE_STEP_USER;
	r = confine(a, x);
	if (r == 0)
		w.root = r = sys_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (r < 0)
		worker_fail(&w, r);
	else
		worker_serve(&w);
	_exit(0);
}

static int start(struct agent *a, const struct frame_files *x, int sock, enum frame_stage *stage)
{
	pid_t *slot = NULL, pid;

	*stage = FRAME_STAGE_LIMIT;
	for (size_t i = 0; !slot && i < AGENT_WORKERS_MAX; i++)
		if (!a->workers[i])
			slot = &a->workers[i];
	if (!slot)
		return -EAGAIN;
	*stage = FRAME_STAGE_USER;
	if (strlen(x->cwd) >= FILE_PATH_MAX)
		return -ENAMETOOLONG;
	if (a->single_id && (x->uid != a->single_id - 1 || x->gid != a->single_id - 1))
		return -EINVAL;
	*stage = FRAME_STAGE_CLONE;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		worker(a, x, sock);
	*slot = pid;
	table_put_worker(a, (size_t)(slot - a->workers));
	return 0;
}

void files_serve(struct agent *a, const struct frame *f, const int *fds)
{
	enum frame_stage stage = FRAME_STAGE_PROTOCOL;
	struct frame_files x;
	int r = a->up ? frame_files_decode(f, &x) : -EBADMSG;

	if (r == 0)
		r = start(a, &x, fds[0], &stage);
	if (r < 0)
		agent_fail(f->id, stage, r, 0);
}

bool files_ended(struct agent *a, pid_t pid)
{
	for (size_t i = 0; i < AGENT_WORKERS_MAX; i++) {
		if (a->workers[i] != pid)
			continue;
		a->workers[i] = 0;
		table_put_worker(a, i);
		return true;
	}
	return false;
}
