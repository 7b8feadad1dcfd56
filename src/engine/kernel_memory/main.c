/*
 * cloche-watch: looks at the kernel memory of sandboxes for the warden.
 *
 * Theory of operation. The warden starts it once, with a socket and the folders of control groups, and then sends it
 * each sandbox: a pidfd, a socket that answers for the sandbox's network namespace, the name of its groups, its limit.
 * It reads /proc/PID of what runs in them, and everything in there may be hostile. It answers with figures, and asks
 * for what is to be done: to end what runs, to drop page cache, to write what a sandbox is shown. It does none of that
 * itself.
 *
 * One thread reads the socket, one looks at sandboxes (looks.c), and some more live for one question that may take long
 * (locks.c, pipes.c, files.c). All have three capabilities: SYS_PTRACE and DAC_READ_SEARCH, without which the kernel
 * does not show what another user's process has open, and SYS_NICE, since what fills memory has all processors busy. A
 * list of system calls leaves nothing to do with them but to look: files are opened for reading only, and there is no
 * call that makes a socket, sends a signal, traces, or starts a program. Landlock cannot be had: it forbids to look at
 * processes outside of its own domain.
 *
 * When it dies the warden starts another. It dies with the warden.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/kernel_memory/looks.h"
#include "engine/kernel_memory/quick.h"
#include "engine/kernel_memory/watch_msg.h"
#include "linux/confine.h"
#include "linux/spawn.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(cap) (1ULL << (cap))
#define MEMORY (1ULL << 30) /* bytes of addresses: some 6 KiB a sandbox, and 128 KiB a thread */

/* ---- what it may do --------------------------------------------------------------------------------------------- */

/* Older system calls that aarch64 does not have. */
#ifdef SYS_stat
#define OLD SYS_stat, SYS_lstat, SYS_readlink, SYS_poll,
#else
#define OLD
#endif

static const int allowed[] = {
	OLD SYS_close,	    SYS_read,	      SYS_readv,
	SYS_pread64,	    SYS_lseek,	      SYS_fstat,
	SYS_newfstatat,	    SYS_statx,	      SYS_statfs,
	SYS_fstatfs,	    SYS_getdents64,   SYS_readlinkat,
	SYS_kcmp,	    SYS_sendmsg,      SYS_recvmsg,
	SYS_ppoll,	    SYS_write,	      SYS_writev,
	SYS_pwrite64,	    SYS_ftruncate,    SYS_sysinfo,
	SYS_fcntl,	    SYS_mmap,	      SYS_munmap,
	SYS_mremap,	    SYS_madvise,      SYS_brk,
	SYS_mprotect,	    SYS_futex,	      SYS_clock_gettime,
	SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_restart_syscall,
	SYS_exit,	    SYS_exit_group,
};

#define WRITES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)

static const struct confine_call checked[] = {
#ifdef SYS_open
	{ SYS_open, 1, WRITES, O_RDONLY, CONFINE_ANY },
#endif
	{ SYS_openat, 2, WRITES, O_RDONLY, CONFINE_ANY },
	{ SYS_ioctl, 1, ~0U, FIONREAD, CONFINE_ANY },
	{ SYS_clone, 0, CLONE_THREAD, CLONE_THREAD, CONFINE_ANY },
	{ SYS_sched_setscheduler, 0, ~0U, 0, CONFINE_ANY }, /* of the calling thread */
	{ SYS_setpriority, 0, ~0U, PRIO_PROCESS, 1 }, /* likewise */
};

static const struct confine confined = {
	.keep = BIT(CAP_SYS_PTRACE) | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_SYS_NICE),
	.user = CONFINE_NOBODY,
	.memory = MEMORY,
	.calls = allowed,
	.ncalls = ARRAY_LEN(allowed),
	.checked = checked,
	.nchecked = ARRAY_LEN(checked),
};

/* ---- what it says ----------------------------------------------------------------------------------------------- */

struct watch {
	int sock;
	struct cgroup_host host;
	struct kernel_looks *looks;
	pthread_mutex_t lock;
	pthread_cond_t answered;
	bool waits, done; /* the sink waits for DONE; its value */
	uint64_t adds; /* ADD messages so far */
	uint64_t said_ns, rounds; /* when ALIVE was last sent, and the number of rounds then */
	bool said_idle;
};

/* If the warden is gone, there is nothing to look at. */
static void say(const struct watch *w, const struct watch_msg *m)
{
	if (fd_send(w->sock, m, sizeof(*m), NULL, 0) < 0)
		_exit(0);
}

static void say_figures(void *arg, uint64_t id, const struct kernel_figures *f)
{
	const struct watch_msg m = { .kind = WATCH_FIGURES, .id = id, .figures = *f };

	say(arg, &m);
}

static bool say_act(void *arg, uint64_t id, const struct kernel_act *a)
{
	const struct watch_msg m = { .kind = WATCH_ACT, .id = id, .act = *a };
	struct watch *w = arg;
	bool done;

	pthread_mutex_lock(&w->lock);
	w->waits = true;
	say(w, &m);
	while (w->waits)
		pthread_cond_wait(&w->answered, &w->lock);
	done = w->done;
	pthread_mutex_unlock(&w->lock);
	return done;
}

/*
 * Reports that the thread makes rounds; or, once, that it has no sandbox. Returns how long that is valid, in ms, or -1.
 */
static int say_alive(struct watch *w)
{
	const uint64_t rounds = kernel_looks_rounds(w->looks), now = clock_mono_ns();
	const bool idle = rounds == UINT64_MAX;
	const struct watch_msg m = { .kind = WATCH_ALIVE, .alive = { .adds = w->adds, .idle = idle } };

	if (now - w->said_ns >= WATCH_ALIVE_MS * 1000000ULL && (idle ? !w->said_idle : rounds != w->rounds)) {
		say(w, &m);
		w->said_ns = now;
		w->rounds = rounds;
		w->said_idle = idle;
	}
	return idle && w->said_idle ? -1 : WATCH_ALIVE_MS;
}

/* ---- who owns a socket ------------------------------------------------------------------------------------------ */

struct question {
	const struct watch *w;
	uint64_t id, inode;
	pid_t first;
};

/* A thread of its own: it takes milliseconds, for which no answer to ACT may wait. */
static void *find_owner(void *arg)
{
	const struct question *q = arg;
	struct watch_msg m = { .kind = WATCH_OWNER, .id = q->id };

	m.owner.found = socket_owner_find(q->first, q->inode, &m.owner.is);
	say(q->w, &m);
	free(arg);
	return NULL;
}

/* Without an answer the warden waits for a while, and no longer. */
static void begin_search(const struct watch *w, const struct watch_msg *m)
{
	struct question *q = malloc(sizeof(*q));
	pthread_t t;

	if (!q)
		return;
	*q = (struct question){ w, m->id, m->ask.inode, (pid_t)m->ask.first };
	if (pthread_create(&t, NULL, find_owner, q) == 0)
		pthread_detach(t);
	else
		free(q);
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static int add(struct watch *w, const struct kernel_subject *s, const int *fds, size_t nfds)
{
	int fd[KERNEL_FDS];
	size_t n = 0;

	for (unsigned i = 0; i < KERNEL_FDS; i++)
		fd[i] = s->fds & 1U << i && n < nfds ? fds[n++] : -1;
	w->adds++;
	w->said_idle = false;
	return fd[KERNEL_PIDFD] < 0 ? -EBADMSG : kernel_looks_add(w->looks, s, fd);
}

static int take(struct watch *w, const struct watch_msg *m, const int *fds, size_t nfds)
{
	int r = 0;

	if (m->kind == WATCH_ADD) {
		r = add(w, &m->add, fds, nfds);
	} else if (m->kind == WATCH_ASK) {
		begin_search(w, m);
	} else if (m->kind == WATCH_REMOVE) {
		kernel_looks_remove(w->looks, m->id);
	} else if (m->kind == WATCH_LIMIT) {
		kernel_looks_limit(w->looks, m->id, m->memory);
	} else if (m->kind == WATCH_DONE) {
		pthread_mutex_lock(&w->lock);
		w->waits = false;
		w->done = m->done;
		pthread_cond_signal(&w->answered);
		pthread_mutex_unlock(&w->lock);
	} else {
		r = -EBADMSG;
	}
	return r;
}

/* Serves until the warden is gone, or a sandbox cannot be looked at: then another process tries. */
static int serve(struct watch *w)
{
	struct pollfd p = { .fd = w->sock, .events = POLLIN };
	int r = 0;

	while (r == 0) {
		struct watch_msg m;
		int fds[KERNEL_FDS];
		size_t nfds = 0;
		ssize_t n;

		if (poll(&p, 1, say_alive(w)) <= 0)
			continue;
		n = fd_recv(w->sock, &m, sizeof(m), fds, ARRAY_LEN(fds), &nfds);
		if (n == 0)
			return 0;
		r = n == (ssize_t)sizeof(m) ? take(w, &m, fds, nfds) : n < 0 ? (int)n : -EBADMSG;
		fd_close_many(fds, nfds);
	}
	return r;
}

static int start(struct watch *w, struct watch_msg *m)
{
	struct kernel_looker_opts o = { .host = &w->host,
					.net = -1,
					.sink = { .arg = w, .figures = say_figures, .act = say_act } };
	size_t nfds = 0;
	ssize_t n = fd_recv(w->sock, m, sizeof(*m), NULL, 0, &nfds);

	if (n != (ssize_t)sizeof(*m) || m->kind != WATCH_START)
		return n < 0 ? (int)n : -EBADMSG;
	w->host.version = (int)m->start.version;
	w->host.have = (unsigned)m->start.have;
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		w->host.base[i] = m->start.places & 1U << i ? SPAWN_FIRST + WATCH_BASE + i : -1;
	o.percent = (unsigned)m->start.percent;
	return kernel_looks_new(&o, &w->looks, NULL);
}

int main(int argc, char **argv)
{
	struct watch w = { .sock = SPAWN_FIRST + WATCH_CONTROL,
			   .lock = PTHREAD_MUTEX_INITIALIZER,
			   .answered = PTHREAD_COND_INITIALIZER };
	struct watch_msg m = { 0 };
	int r;

	(void)argv;
	if (argc != 1 || sys_fcntl(w.sock, F_GETFD, 0) < 0) {
		fputs("cloche-watch: started by cloche-warden only\n", stderr);
		return 2;
	}
	log_set_level(LOG_LEVEL_INFO);
	signal(SIGPIPE, SIG_IGN);
	kernel_quick(true);
	r = start(&w, &m);
	if (r == 0)
		r = confine_self(&confined);
	if (r == 0) {
		m = (struct watch_msg){ .kind = WATCH_READY };
		say(&w, &m);
		r = serve(&w);
	}
	if (r < 0)
		log_error("cloche-watch ends: errno %d", -r);
	return r < 0;
}
