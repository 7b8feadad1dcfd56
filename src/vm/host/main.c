/*
 * cloche-vm-files: makes the files of virtual machines for the warden.
 *
 * Theory of operation. The warden starts it for one task (task.h): an image as erofs, what a template boots with or is
 * kept as, or the memory of a machine that is put together of layers. It gets the folders and files of the task as
 * descriptors, and answers with descriptors of what it made. Images are hostile trees, layers hold pages that a hostile
 * guest has written; mkfs.erofs and mke2fs, which are not part of this project, read and write them.
 *
 * It stays user 0, since what it makes is root's, but has no capability except DAC_READ_SEARCH (for memory of layers:
 * none), and Landlock, where the kernel has it, lets it write below the folders of its task alone. Of system calls it
 * has those of a program that works on files: no sockets, mounts, namespaces, signals, tracing. What it starts inherits
 * all that.
 *
 * A thread waits for the warden to give the task up, which may also end it by a signal at any moment. Then the folder
 * that it was making something in is no longer locked, and whoever needs it next removes it, at the latest the warden.
 * It dies with the warden's thread.
 */
#include "base/base.h"
#include "base/score.h"
#include "base/sys.h"
#include "linux/confine.h"
#include "linux/landlock.h"
#include "linux/mount.h"
#include "linux/spawn.h"
#include "vm/host/task.h"

#include <linux/capability.h>
#include <linux/prctl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define CONTROL SPAWN_FIRST
#define PLACE "/sys"

/*
 * Layers that are merged come as a mount without a place, and mkfs.erofs takes a path only. So it is mounted in a
 * namespace of this process, over a folder that exists everywhere and that nothing here needs.
 */
static int place(struct vm_work *x)
{
	int r;

	if (x->task != VM_PICTURE || !x->given.name[0])
		return 0;
	r = sys_unshare(CLONE_NEWNS);
	if (r == 0)
		r = mount_tree_private();
	if (r == 0)
		r = mount_attach(x->fd[VM_FILE_ROOT], PLACE, 0);
	if (r < 0)
		return r;
	fd_close(TAKE_FD(x->fd[VM_FILE_ROOT]));
	r = x->fd[VM_FILE_ROOT] = sys_openat(AT_FDCWD, PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	return r < 0 ? r : 0;
}

static int drop(const struct vm_work *x)
{
	const bool files = x->task != VM_FLATTEN;
	const int dirs[] = { files ? x->fd[VM_FILE_DIR] : -1,
			     x->task == VM_PICTURE || x->task == VM_REMEMBER ? x->fd[VM_FILE_FOLDER] : -1 };
	struct confine c = {
		.keep = files ? 1ULL << CAP_DAC_READ_SEARCH : 0,
	};
	int r = sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);

	confine_file_programs(&c);
	if (r == 0)
		r = landlock_write_below(dirs, ARRAY_LEN(dirs), 0);
	return r == 0 || r == -EOPNOTSUPP ? confine_self(&c) : r;
}

static int receive(struct vm_work *x)
{
	struct vm_task_msg m;
	int fds[VM_TASK_FDS];
	size_t nfds = 0;
	ssize_t n = fd_recv(CONTROL, &m, sizeof(m), fds, ARRAY_LEN(fds), &nfds);

	return n == (ssize_t)sizeof(m) ? vm_task_take(x, VM_TASK_DO, &m, fds, nfds) : n < 0 ? (int)n : -EBADMSG;
}

/* The warden sends nothing more: the end of the socket is the request to give up. */
static void *wait_stop(void *arg)
{
	struct vm_work *x = arg;
	char none;

	while (fd_recv(CONTROL, &none, 1, NULL, 0, &(size_t){ 0 }) == -EINTR)
		;
	__atomic_store_n(&x->work.stop, 1, __ATOMIC_RELAXED);
	return NULL;
}

int main(int argc, char **argv)
{
	static struct vm_work x = { .fd = { -1, -1, -1, -1, -1, -1, -1, -1 } };
	struct vm_task_msg m;
	int fds[VM_TASK_FDS], r;
	pthread_t t;

	(void)argv;
	if (argc != 1 || sys_fcntl(CONTROL, F_GETFD, 0) < 0) {
		fputs("cloche-vm-files: started by cloche-warden only\n", stderr);
		return 2;
	}
	score_sandbox_self("/proc/self/oom_score_adj"); /* killing it at any moment harms no other process */
	signal(SIGPIPE, SIG_IGN);
	sys_fcntl(CONTROL, F_SETFD, FD_CLOEXEC);
	x.pace = (struct vm_pace){ .stop = &x.work.stop, .report = CONTROL };
	r = receive(&x);
	if (r < 0)
		return 1;
	r = place(&x);
	if (r == 0)
		r = drop(&x);
	if (r == 0)
		r = -pthread_create(&t, NULL, wait_stop, &x);
	if (r == 0)
		vm_task_run(&x);
	else
		x.made.result = err_sys(&x.made.e, ERR_INTERNAL, r, "cloche-vm-files cannot give up its privileges");
	return fd_send(CONTROL, &m, sizeof(m), fds, vm_task_put(&x, VM_TASK_DONE, &m, fds)) < 0;
}
