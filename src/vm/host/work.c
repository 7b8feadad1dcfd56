/* Slow tasks for virtual machines: a worker starts cloche-vm-files (main.c) for each, and waits. */
#include "base/base.h"
#include "base/clock.h"
#include "base/dir.h"
#include "base/sys.h"
#include "engine/program.h"
#include "layers/tree.h"
#include "linux/spawn.h"
#include "vm/host/files.h"
#include "vm/host/task.h"
#include "vm/host/tier.h"

#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LOOK_MS 20 /* how often a worker checks whether to give up */
#define STOP_MS 10000 /* how long cloche-vm-files may take to give up */
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

bool vm_work_is_part(const struct vm_work *x)
{
	struct stat a, b;

	return fstat(x->fd[VM_FILE_FOLDER], &a) == 0 &&
	       fstatat(x->fd[VM_FILE_DIR], x->given.part, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* ---- its process ------------------------------------------------------------------------------------------------ */

static int launch(struct vm_work *x, int *ret_sock)
{
	char name[] = "cloche-vm-files", path[512];
	char *argv[] = { name, NULL };
	AUTO_CLOSE int program = -1;
	int fd[1], r;
	struct spawn s = { .fd = fd, .fds = 1, .argv = argv };

	r = program_path(name, path, sizeof(path), &x->made.e);
	if (r < 0)
		return r;
	s.program = program = sys_openat(AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
	r = program < 0 ? program : spawn_talking(&s, ret_sock);
	return r < 0 ? err_sys(&x->made.e, ERR_EXHAUSTED, r, "start cloche-vm-files") : r;
}

static bool is_file(int fd, mode_t type)
{
	struct stat st;

	return fd < 0 || (fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type);
}

/* Checks what it claims to have made: the warden only uses files, and sealed memory. */
static bool is_made(const struct vm_work *x)
{
	const bool sealed = x->task != VM_NEW && x->task != VM_PICTURE;

	for (unsigned i = 0; i < VM_FILE_DIR; i++)
		if (!is_file(x->fd[i], i == VM_FILE_FOLDER ? S_IFDIR : S_IFREG))
			return false;
	return !sealed || x->fd[VM_FILE_RAM] < 0 || (sys_fcntl(x->fd[VM_FILE_RAM], F_GET_SEALS, 0) & SEALS) == SEALS;
}

static int lost(struct vm_work *x, int r)
{
	return err_set(&x->made.e, ERR_INTERNAL, r, "cloche-vm-files ended without an answer");
}

/* 1: it continues. 0: it is done. */
static int hear(struct vm_work *x, int sock)
{
	struct vm_task_msg m;
	int fds[VM_TASK_FDS];
	size_t nfds = 0;
	ssize_t n = fd_recv(sock, &m, sizeof(m), fds, ARRAY_LEN(fds), &nfds);
	int r;

	if (n == (ssize_t)sizeof(m) && m.kind == VM_TASK_PACE && !nfds) {
		__atomic_store_n(&x->pace.step, m.step <= VM_STEP_DISK ? (int)m.step : VM_STEP_NONE, __ATOMIC_RELAXED);
		__atomic_store_n(&x->pace.bytes, m.bytes, __ATOMIC_RELAXED);
		return 1;
	}
	r = n == (ssize_t)sizeof(m) ? vm_task_take(x, VM_TASK_DONE, &m, fds, nfds) : -EIO;
	if (r < 0)
		fd_close_many(fds, nfds);
	else if (x->made.result == 0 && !is_made(x))
		r = -EBADMSG;
	return r < 0 ? lost(x, r) : 0;
}

static int wait_for(struct vm_work *x, int sock, pid_t pid)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	uint64_t told = 0;
	int r = 1;

	while (r == 1) {
		if (!told && __atomic_load_n(&x->work.stop, __ATOMIC_RELAXED)) {
			shutdown(sock, SHUT_WR);
			told = clock_mono_ns();
		}
		if (told && clock_mono_ns() - told > STOP_MS * 1000000ULL)
			kill(pid, SIGKILL); /* our child, and not reaped */
		if (poll(&p, 1, LOOK_MS) == 1)
			r = hear(x, sock);
	}
	return r;
}

/* Removes images that are not being made any more: making one locks the cache. */
static void clean_cache(int cache)
{
	DIR *dir = dir_list(cache);
	struct dirent *d;

	while (dir && flock(dirfd(dir), LOCK_EX | LOCK_NB) == 0 && (d = readdir(dir)))
		if (strstr(d->d_name, VM_IMAGE_PART))
			sys_unlinkat(cache, d->d_name, 0);
	if (dir)
		closedir(dir);
}

/* Removes all that it had begun, however it ended. */
static void clean(const struct vm_work *x)
{
	AUTO_CLOSE int part = x->given.template_wanted ?
				      sys_openat(x->fd[VM_FILE_DIR], x->given.part,
						 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0) :
				      -1;

	if (x->task == VM_PICTURE)
		clean_cache(x->fd[VM_FILE_FOLDER]);
	if (part >= 0 && (vm_work_is_part(x) || flock(part, LOCK_EX | LOCK_NB) == 0))
		tree_remove(x->fd[VM_FILE_DIR], x->given.part);
}

static int do_task(struct vm_work *x)
{
	AUTO_CLOSE int sock = -1;
	struct vm_task_msg m;
	int fds[VM_TASK_FDS], r;
	pid_t pid;

	if (__atomic_load_n(&x->work.stop, __ATOMIC_RELAXED))
		return err_set(&x->made.e, ERR_CONFLICT, -ECANCELED, "the warden is stopping");
	if ((x->task == VM_PICTURE || x->task >= VM_KNOWN) && x->fd[VM_FILE_FOLDER] < 0) {
		r = x->fd[VM_FILE_FOLDER] = vm_cache_open(x->given.cache, sizeof(x->given.cache), &x->made.e);
		if (r < 0)
			return r;
	}
	r = pid = launch(x, &sock);
	if (r < 0)
		return r;
	r = fd_send_now(sock, &m, sizeof(m), fds, vm_task_put(x, VM_TASK_DO, &m, fds));
	r = r < 0 ? err_sys(&x->made.e, ERR_EXHAUSTED, r, "start cloche-vm-files") : wait_for(x, sock, pid);
	spawn_end(pid);
	if (r < 0)
		clean(x);
	return r;
}

/* ---- as work ---------------------------------------------------------------------------------------------------- */

int vm_work_do(struct vm_work *x)
{
	int r = do_task(x);

	if (r < 0)
		x->made.result = r;
	return x->made.result;
}

static void run(struct work *w)
{
	vm_work_do((struct vm_work *)(void *)w);
}

static void end(struct work *w)
{
	struct vm_work *x = (struct vm_work *)(void *)w;

	/* The files that a template was to boot with. */
	if (x->task == VM_NEW && x->made.result == 0 && x->fd[VM_FILE_FOLDER] >= 0 && !x->made.found &&
	    vm_work_is_part(x))
		tree_remove(x->fd[VM_FILE_DIR], x->given.part);
	vm_work_free(x);
}

struct vm_work *vm_work_new(enum vm_task task, struct err *e)
{
	struct vm_work *x = calloc(1, sizeof(*x));

	if (!x) {
		err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a machine");
		return NULL;
	}
	x->work.run = run;
	x->work.end = end;
	x->work.tier = &vm_tier;
	/* They copy the disk of a large image, and may wait for another process. */
	x->work.slow = task == VM_PICTURE || task == VM_NEW;
	x->task = task;
	x->pace.stop = &x->work.stop;
	x->pace.report = -1;
	memset(x->fd, 0xff, sizeof(x->fd)); /* -1 */
	return x;
}

void vm_work_free(struct vm_work *x)
{
	if (!x)
		return;
	fd_close_many(x->fd, VM_FILE_DIR);
	fd_close_many(x->pages, x->npages);
	free(x);
}
