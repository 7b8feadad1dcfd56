/*
 * cloche-dump: records the processes of one sandbox in a memory image.
 *
 * Theory of operation. The warden starts it as root for one image, with descriptors of the agent, of the agent's table,
 * of a folder for the result, and of a socket to talk to it by. It gives up all capabilities but those that reading
 * another process takes, holds every thread of the sandbox by ptrace, reads each, makes each answer a few questions
 * that only it can answer (inject.c), copies the pages, and releases all. What it reads is hostile: no size is taken
 * from it without a limit, and no path of it is followed but inside the sandbox's root.
 *
 * No failure needs a cleanup. The kernel releases every thread when cloche-dump ends, at any moment, by any cause, and
 * the injected code ends by itself. So a signal just ends it; and it dies with the warden.
 *
 *	main.c     arguments, privileges, the protocol with the warden, the order of steps
 *	stop.c     holding and releasing threads         thread.c, ask.c, inject.c   one thread or process
 *	proc.c     /proc: ids, limits, what is refused   file.c   names of files, verified
 *	vma.c      mappings                              copy.c, pages.c, base.c     their content, which writer.c writes
 *	fd.c       descriptors; object_*.c by kind       tree.c   sessions, execs, the records of processes
 *	share.c    tables that processes share
 *	sysv.c     System V objects, as a process of their own reads them (sysv_reader.c)
 *	queue.c    POSIX message queues, which are refused
 *	image.c    records, and the file they end in     guard.c  what is changed on a socket is changed back
 */
#include "memory/dump.h"
#include "base/base.h"
#include "base/score.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "memory/arch.h"
#include "memory/confine.h"
#include "memory/object.h"

#include <linux/capability.h>
#include <linux/prctl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BIG (64ULL << 20) /* more bytes than this are not copied while the sandbox is held */
#define BIG_ONE (16ULL << 20) /* then each process with at least so many bytes gets a fork */
#define SPARE (8ULL << 20) /* bytes that are left for page tables, and for what processes allocate meanwhile */
#define BIT(cap) (1ULL << (cap))
#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif
/* Looking into processes; the files behind mappings; folders below a stranger's root. */
#define KEEP (BIT(CAP_SYS_PTRACE) | BIT(CAP_CHECKPOINT_RESTORE) | BIT(CAP_DAC_READ_SEARCH))
#define CONTROL_MS 600000
#define STUCK_S 120 /* alarm: no fault may hold the sandbox for longer */

static int say(const struct dump *d, const char *text)
{
	return fd_send(d->control, text, strlen(text), NULL, 0);
}

/* Waits for the word @expected, or for @other (NULL: none): then returns 1. */
static int wait_word(const struct dump *d, const char *expected, const char *other, struct err *e)
{
	struct pollfd p = { .fd = d->control, .events = POLLIN };
	char word[16] = "";
	size_t nfds = 0;
	ssize_t n;

	if (poll(&p, 1, CONTROL_MS) != 1)
		return err_set(e, ERR_TIMEOUT, -ETIMEDOUT, "the warden sent no request");
	n = fd_recv(d->control, word, sizeof(word) - 1, NULL, 0, &nfds);
	if (other && n == (ssize_t)strlen(other) && !memcmp(word, other, (size_t)n))
		return 1;
	if (n != (ssize_t)strlen(expected) || memcmp(word, expected, (size_t)n) != 0)
		return err_set(e, ERR_INTERNAL, n < 0 ? (int)n : -ECANCELED, "the warden cancelled the request");
	return 0;
}

/* Enters the sandbox's network namespace, where its sockets can be queried. So this process has no other network. */
static int enter_network(const struct dump *d, struct err *e)
{
	AUTO_CLOSE int ns = -1;
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)d->agent);
	ns = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	r = ns < 0 ? ns : sys_setns(ns, CLONE_NEWNET);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "enter the sandbox's network") : 0;
}

static int drop(struct err *e)
{
	int r = caps_drop_bounding(KEEP);

	/*
	 * The warden may not be allowed to drop them. That is harmless: this program never starts another one, and
	 * no_new_privs is set.
	 */
	if (r == 0 || r == -EPERM)
		r = sys_setgroups(0, NULL);
	if (r == 0)
		r = sys_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (r == 0)
		r = caps_set(KEEP, 0);
	if (r == 0)
		r = sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (r == 0)
		r = sys_prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "drop privileges") : 0;
}

static int number(const char *text, int max, int *ret)
{
	char *end;
	long v = strtol(text, &end, 10);

	if (end == text || *end || v < 0 || v > max)
		return -EINVAL;
	*ret = (int)v;
	return 0;
}

static int add_ancestor(struct dump *d, const char *arg)
{
	const char *colon = strchr(arg, ':');
	struct stat st;
	int fd;

	if (d->ancestors == MEM_PAGE_FILES || !colon || colon == arg ||
	    (size_t)(colon - arg) >= sizeof(d->ancestor[0].id) || number(colon + 1, 1 << 20, &fd) < 0 ||
	    fstat(fd, &st) < 0)
		return -EINVAL;
	memcpy(d->ancestor[d->ancestors].id, arg, (size_t)(colon - arg));
	d->ancestor[d->ancestors].dev = st.st_dev;
	d->ancestor[d->ancestors].ino = st.st_ino;
	d->ancestor[d->ancestors++].fd = fd;
	d->flat = d->ancestors == MEM_PAGE_FILES;
	return 0;
}

static int arguments(struct dump *d, int argc, char **argv, int *ret_base)
{
	int *const to[] = { &d->agent_pidfd, &d->agent, &d->table_fd, &d->freezer, &d->out, &d->control };

	if (argc < 7)
		return -EINVAL;
	for (int i = 0; i < 6; i++)
		if (number(argv[i + 1], 1 << 22, to[i]) < 0)
			return -EINVAL;
	d->room = UINT64_MAX;
	for (int i = 7; i < argc; i++)
		if (!strncmp(argv[i], "base=", 5)) {
			if (number(argv[i] + 5, 1 << 20, ret_base) < 0)
				return -EINVAL;
		} else if (!strcmp(argv[i], "network=refuse")) {
			d->refuses_network = true;
		} else if (!strcmp(argv[i], "whole")) {
			d->whole = true;
		} else if (!strchr(argv[i], ':'))
			d->room = strtoull(argv[i], NULL, 10);
		else if (add_ancestor(d, argv[i]) < 0)
			return -EINVAL;
	return 0;
}

static uint64_t now(clockid_t clock)
{
	struct timespec ts = { 0 };

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

/* Reads of the agent what every process is compared with. */
static int look_at_agent(struct dump *d, struct err *e)
{
	const struct proc *a = &d->proc[0];
	int r;

	d->root = sys_openat(a->dir, "root", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (d->root < 0)
		return err_sys(e, ERR_INTERNAL, d->root, "open the sandbox's root");
	d->filters = proc_number(a->status, "Seccomp_filters", 10, 0);
	r = file_root(d, e);
	if (r < 0)
		return r;
	r = proc_map_read(a->dir, "uid_map", &d->uids, e);
	return r < 0 ? r : proc_map_read(a->dir, "gid_map", &d->gids, e);
}

static int read_table(struct dump *d, struct err *e)
{
	int r = table_read(d->table_fd, &d->table);

	if (r < 0)
		return err_sys(e, r == -EAGAIN ? ERR_CONFLICT : ERR_INTERNAL, r, "read the agent's table");
	for (size_t i = 1; i < d->n_procs; i++)
		for (unsigned w = 0; w < TABLE_WORKERS; w++)
			if (d->table.worker[w] && d->table.worker[w] == d->proc[i].pid)
				return err_set(e, ERR_CONFLICT, -EBUSY, "files are being transferred");
	return external_read(d, e);
}

static uint64_t dirty(const struct dump *d)
{
	uint64_t all = 0;

	for (size_t i = 1; i < d->n_procs; i++)
		all += d->proc[i].dirty;
	return all;
}

static int read_processes(struct dump *d, struct err *e)
{
	size_t alive = 0;
	int r = 0;

	for (size_t i = 1; i < d->n_procs; i++)
		alive += !d->proc[i].zombie;
	if (!alive)
		return err_set(e, ERR_NOT_FOUND, -ESRCH, "no process runs in the sandbox");
	r = inotify_early(d, e);
	if (r == 0)
		r = node_room(d, e); /* before the files that may be below it */
	for (size_t i = 1; r == 0 && i < d->n_procs; i++) {
		struct proc *p = &d->proc[i];

		r = proc_read(d, p, e);
		if (r == 0 && !p->zombie)
			r = stop_memory(p, e);
		if (r == 0 && !p->zombie)
			r = vdso_find(d, p, e);
		for (size_t t = 0; r == 0 && t < p->n_threads; t++)
			r = vdso_settle(p, &p->thread[t], e);
		for (size_t t = 0; r == 0 && t < p->n_threads; t++)
			r = thread_read(d, p, &p->thread[t], e);
	}
	if (r == 0)
		r = fd_read_all(d, e);
	if (r == 0)
		r = queue_refuse(d, e);
	if (r == 0)
		r = sysv_read(d, e);
	for (size_t i = 1; r == 0 && i < d->n_procs; i++)
		if (!d->proc[i].zombie)
			r = vma_read(d, &d->proc[i], e);
	if (r == 0 && !d->base) /* with a base, most pages are in the ancestors' files already */
		writer_expect(d->pages.writer, dirty(d));
	if (r == 0)
		r = tree_terminals(d, e);
	if (r == 0)
		r = object_link(d, e);
	sysv_reader_stop(&d->sysv_reader); /* the reader ends, with its own attachments */
	socket_guard_end(&d->guard); /* it ends while memory is copied, so no process waits for that */
	return r;
}

/*
 * With so much to copy, each large process gets a fork, which is read while the process runs on. Pages that are written
 * meanwhile exist twice, and count for the sandbox. If its limit has no room for all of them, the kernel might kill
 * another process of it, so the sandbox is held for the whole copying instead.
 */
static int fork_big(struct dump *d, struct err *e)
{
	uint64_t all = dirty(d), room = d->room > SPARE ? d->room - SPARE : 0;
	int r = 0;

	for (size_t i = 1; r == 0 && all > BIG && i < d->n_procs; i++) {
		struct proc *p = &d->proc[i];

		if (p->zombie || p->parent || p->dirty < BIG_ONE || p->dirty > room)
			continue;
		room -= p->dirty;
		r = inject_fork(p, e);
		if (r == 0)
			r = vma_dump_early(d, p, e);
		else if (r == -EAGAIN)
			r = 0; /* the sandbox is held a little longer then */
	}
	return r;
}

static int copy_all(struct dump *d, struct err *e)
{
	int r = 0;

	for (size_t i = 1; r == 0 && i < d->n_procs; i++)
		if (!d->proc[i].zombie)
			r = inject_proc(d, &d->proc[i], e);
	if (r == 0)
		r = sysv_undo(d, e);
	if (r == 0)
		r = fork_big(d, e);
	for (size_t i = 1; r == 0 && i < d->n_procs; i++)
		if (!d->proc[i].zombie && !d->proc[i].copy)
			r = vma_dump(d, &d->proc[i], e);
	return r;
}

/* Copies what was left for the time after the processes were released. */
static int copy_rest(struct dump *d, struct err *e)
{
	int r = 0;

	for (size_t i = 1; r == 0 && i < d->n_procs; i++)
		if (d->proc[i].copy) {
			r = vma_dump(d, &d->proc[i], e);
			inject_forget(&d->proc[i]);
		}
	return r;
}

/*
 * An exec that has ended is not in an image. If the sandbox were ended after the image, the exec's end would never be
 * reported; so that is a conflict.
 */
static int no_exec_has_ended(const struct dump *d, struct err *e)
{
	for (unsigned i = 0; i < TABLE_EXECS; i++) {
		const struct table_exec *t = &d->table.exec[i];

		if (t->flags & TABLE_KEEP && !(t->flags & TABLE_ENDED) && !tree_lives(d, t->pid))
			return err_set(e, ERR_CONFLICT, -EBUSY, "an exec has just ended (process %u)", t->pid);
	}
	return 0;
}

static int hold_and_read(struct dump *d, struct err *e)
{
	int r = stop_all(d, e);

	if (r == 0)
		r = look_at_agent(d, e);
	if (r == 0)
		r = read_table(d, e);
	if (r == 0)
		r = say(d, "seized");
	d->thawed = true; /* when the agent is stopped: stop_wait() waits for that first */
	if (r == 0)
		r = stop_wait(d, e);
	if (r == 0 && d->whole)
		r = no_exec_has_ended(d, e);
	d->realtime = now(CLOCK_REALTIME);
	d->monotonic = now(CLOCK_MONOTONIC);
	d->boottime = now(CLOCK_BOOTTIME);
	if (r == 0)
		r = read_processes(d, e);
	if (r == 0)
		r = copy_all(d, e);
	if (r == 0)
		r = tree_read(d, e);
	inotify_forget(d);
	return r;
}

static int run(struct dump *d, struct err *e)
{
	char done[4 + SHA256_SIZE] = "done";
	int r = d->pages.fd = sys_openat(d->out, "pages", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "create pages");
	r = hold_and_read(d, e);
	pages_flush(&d->pages); /* while the warden copies files */
	if (r == 0)
		r = say(d, "ready");
	if (r == 0)
		r = wait_word(d, "go", NULL, e);
	sysv_reader_stop(&d->sysv_reader);
	socket_guard_stop(&d->guard); /* before the processes can see the changes */
	object_close(d);
	stop_release(d);
	if (r == 0)
		r = say(d, "copied");
	if (r == 0)
		r = copy_rest(d, e);
	if (r == 0)
		r = tree_records(d, e);
	pages_flush(&d->pages);
	if (r == 0)
		r = image_write(d, e);
	if (r == 0)
		r = pages_finish(&d->pages, (uint8_t *)done + 4, e);
	return r == 0 ? fd_send(d->control, done, d->sums ? sizeof(done) : 4, NULL, 0) : r;
}

static void tell(const struct dump *d, const struct err *e)
{
	char text[512];

	if (e->kind == ERR_INTERNAL)
		snprintf(text, sizeof(text), "failed %s", e->msg[0] ? e->msg : "unknown");
	else
		snprintf(text, sizeof(text), "refused %s %s", err_kind_name(e->kind), e->msg);
	say(d, text);
}

int main(int argc, char **argv)
{
	static struct dump d;
	struct err e = { 0 };
	int r, base = -1;

	d.root = d.pages.fd = d.guard.fd = d.sysv_reader.fd = -1;
	if (arguments(&d, argc, argv, &base) < 0) {
		fputs("cloche-dump: started by cloche-warden only\n", stderr);
		return 2;
	}
#ifdef CLOCHE_FAULTS
	sys_test_parse(getenv("CLOCHE_FAULT_DUMP"));
#endif
	alarm(STUCK_S);
	/* it may be killed at any moment without harm, so it goes first */
	score_sandbox_self("/proc/self/oom_score_adj");
	sys_prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	image_init(&d.image);
	r = vdso_self(&d, &e);
	if (r == 0)
		r = writer_new(&d.pages.writer, &e);
	if (r == 0)
		r = enter_network(&d, &e);
	/*
	 * This program is started ahead, and waits here, so that its start takes no time of the sandbox. What follows
	 * is visible inside, unless the sandbox is frozen.
	 */
	if (r == 0)
		r = wait_word(&d, "begin", "begin sums", &e);
	if (r == 1) {
		d.sums = true;
		r = writer_sum(d.pages.writer, &e);
	}
	if (r == 0)
		r = sysv_enter(&d, &e);
	if (r == 0)
		r = socket_guard_start(&d.guard, d.agent_pidfd, &e);
	if (r == 0)
		r = sysv_start(&d, &e);
	if (r == 0)
		r = drop(&e);
	if (r == 0)
		r = confine(&e);
	sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (r == 0 && base >= 0 && d.ancestors && !d.flat)
		r = base_open(&d, base, &e);
	if (r == 0)
		r = run(&d, &e);
	sysv_reader_stop(&d.sysv_reader);
	socket_guard_stop(&d.guard);
	if (r < 0)
		tell(&d, &e);
	return r < 0 ? 1 : 0; /* the kernel frees descriptors and memory, and releases the processes */
}
