/*
 * RESTORE: the processes of a memory image, as they were. The order: check the image against itself and this machine;
 * open its files as their users, make its pipes, terminals and other objects; start the processes, each with its old
 * id, by the process that has to be its creator; let them join their groups and sessions; each replaces its memory,
 * makes its threads, and waits. When all wait, they get their registers and are released together. A failure before
 * that ends all of them: a sandbox never has only a part of its processes.
 *
 * No code of the image runs before the end, so what exists in between (copies of the agent, a capability more than an
 * exec has, the filter's secret) is never in the same process as hostile code.
 */
#include "agent/restore/help.h"
#include "agent/restore/stash.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "linux/seccomp.h"
#include "proto/memory_fds.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 30000
#define LOOK_MS 100
#define HELD_PROCS 8U /* made ahead of a request, at most */
#define HELD_THREADS 32U
#define HELD_BYTES (128U * MIB) /* private memory of processes made ahead of a request; no quota counts it */
#define MAPPING 256U /* bytes the kernel has for one, about */

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t = { 0 };

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* What calls that have returned have left of it. */
static __attribute__((noinline)) void wipe_stack(void)
{
	char below[16384];

	explicit_bzero(below, sizeof(below));
}

void agent_forget(struct agent *a)
{
	restore_drop(a);
	if (!a->cookie || !a->up)
		return;
	a->cookie = 0;
	fd_close(TAKE_FD(a->sysctl));
	wipe_stack();
	if (caps_set(CAPS_AGENT, CAPS_ROOT) < 0)
		_exit(1);
}

static int read_image(struct restore *r, int meta, struct err *e)
{
	struct stat st;
	uint8_t host[32];
	void *at;
	int x;

	if (fstat(meta, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read the image's status");
	if (st.st_size < (off_t)sizeof(struct mem_head) || st.st_size > (off_t)MEM_META_MAX)
		return err_set(e, ERR_INVALID, -EBADMSG, "memory image: invalid size");
	at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, meta, 0);
	if (at == MAP_FAILED)
		return err_sys(e, ERR_INTERNAL, -errno, "map the image");
	r->meta = at;
	r->meta_len = (size_t)st.st_size;
	x = mem_check(at, r->meta_len, &r->m, e);
	if (x == 0)
		x = mem_host(host, e);
	if (x < 0)
		return x;
	if (memcmp(host, r->m.head->host, sizeof(host)) != 0)
		return err_set(e, ERR_CONFLICT, -ESTALE,
			       "the image was taken on another kernel or CPU: its processes cannot continue here");
	if (r->m.head->page_size != (uint32_t)sysconf(_SC_PAGESIZE))
		return err_set(e, ERR_CONFLICT, -ESTALE, "the image was taken with another page size");
	r->meta_was = st;
	return 0;
}

/* What came with it, against the image. */
static int check_frame(struct restore *r, const int *pages, struct err *e)
{
	uint64_t most[MEM_PAGE_FILES] = { 0 };
	struct stat *st = r->pages_was;

	if (r->m.head->page_files != r->frame->pages)
		return err_set(e, ERR_INVALID, -EBADMSG, "the image has %u pages files, but %u were passed",
			       r->m.head->page_files, r->frame->pages);
	if (r->frame->groups && r->frame->groups != r->m.n[MEM_S_EXEC])
		return err_set(e, ERR_INVALID, -EBADMSG, "the image has %u execs, but %u groups were passed",
			       r->m.n[MEM_S_EXEC], r->frame->groups);
	for (uint32_t i = 0; i < r->m.n[MEM_S_RUN]; i++) {
		const struct mem_run *run = &r->m.run[i];

		if (run->file < r->frame->pages && run->off + run->len > most[run->file])
			most[run->file] = run->off + run->len;
	}
	/* A mapping past the end of its file would be possible, and reading it would kill the process. */
	for (uint32_t i = 0; i < r->frame->pages; i++)
		if (fstat(pages[i], &st[i]) < 0 || !S_ISREG(st[i].st_mode) || (uint64_t)st[i].st_size < most[i])
			return err_set(e, ERR_INVALID, -EBADMSG, "pages file %u of the image is too short", i);
	return 0;
}

/* Above every number that a process has, or has registered something with. */
static int choose_base(struct restore *r, struct err *e)
{
	const uint64_t need = mem_fds_needed(&r->m);
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read the limit of open files");
	if (lim.rlim_max < need)
		return err_set(e, ERR_EXHAUSTED, -EMFILE, "the image needs %llu open files, but the limit here is %llu",
			       (unsigned long long)need, (unsigned long long)lim.rlim_max);
	if (sys_prlimit(RLIMIT_NOFILE, lim.rlim_max, lim.rlim_max) < 0)
		return err_set(e, ERR_INTERNAL, -EMFILE, "raise the limit of open files");
	r->base = (int)mem_fds_base(&r->m);
	return 0;
}

/*
 * The table of descriptors grows now, to what it will hold: later a child shares it (restore_open()), and the kernel
 * would let that one wait until no processor can be looking at the old table any more, which is milliseconds each time.
 */
static void grow_table(const struct restore *r, int fd)
{
	long last = (long)mem_fds_needed(&r->m) - 1;

	fd_close(sys_fcntl(fd, F_DUPFD_CLOEXEC, last)); /* without it all just takes longer */
}

/* What came with the frame, to where the processes' own numbers are not in the way. */
static int take_fds(struct restore *r, const int *fds, struct err *e)
{
	struct frame_restore_fds at = frame_restore_fds(r->frame);
	int x = 0;

	r->groups = r->frame->groups ? calloc(r->frame->groups, sizeof(int)) : NULL;
	if (r->frame->groups && !r->groups)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to restore with");
	for (uint32_t i = 0; x >= 0 && i < r->frame->pages; i++)
		x = r->pages[i] = sys_fcntl(fds[at.pages + (int)i], F_DUPFD_CLOEXEC, r->base);
	for (uint32_t i = 0; x >= 0 && i < r->frame->groups; i++)
		x = r->groups[i] = sys_fcntl(fds[at.groups + (int)i], F_DUPFD_CLOEXEC, r->base);
	if (x >= 0 && at.filter >= 0) {
		size_t size = SECCOMP_PROFILE_MAX * sizeof(struct sock_filter);
		ssize_t n;

		r->filter = malloc(size);
		n = r->filter ? pread(fds[at.filter], r->filter, size, 0) : -1;
		if (n <= 0 || n % (ssize_t)sizeof(struct sock_filter))
			x = -EINVAL;
		else
			r->filter_len = (size_t)n / sizeof(struct sock_filter);
	}
	return x < 0 ? err_sys(e, ERR_INTERNAL, x, "read the image's files") : 0;
}

static int allocate(struct restore *r, struct err *e)
{
	size_t shared = sizeof(*r->shared) + r->m.n[MEM_S_PROC] * 16UL;
	void *at = mmap(NULL, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	r->file = malloc((r->m.n[MEM_S_FILE] + 1) * sizeof(int));
	r->object = malloc((r->m.n[MEM_S_OBJECT] + 1) * sizeof(int));
	r->file_need = calloc(r->m.n[MEM_S_FILE] + 1, 1);
	r->proc = calloc(r->m.n[MEM_S_PROC], sizeof(*r->proc));
	r->plan = calloc(r->m.n[MEM_S_PROC], sizeof(*r->plan));
	r->exec = calloc(r->m.n[MEM_S_EXEC] + 1, sizeof(*r->exec));
	if (at != MAP_FAILED) {
		r->shared = at;
		r->places = (uint64_t *)(uintptr_t)(r->shared + 1);
		r->shared->child_signal = 1ULL << (SIGCHLD - 1);
		r->shared_len = (shared + (uint64_t)sysconf(_SC_PAGESIZE) - 1) & -(uint64_t)sysconf(_SC_PAGESIZE);
	}
	if (at == MAP_FAILED || !r->file || !r->object || !r->file_need || !r->proc || !r->plan || !r->exec)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to restore with");
	memset(r->file, 0xff, r->m.n[MEM_S_FILE] * sizeof(int));
	memset(r->object, 0xff, r->m.n[MEM_S_OBJECT] * sizeof(int));
	for (uint32_t i = 0; i < r->m.n[MEM_S_EXEC]; i++) {
		memset(r->exec[i].fds, 0xff, sizeof(r->exec[i].fds));
		r->exec[i].warm = -1;
	}
	return 0;
}

int restore_find_vdso(struct restore *r, struct err *e)
{
	char text[16384];
	ssize_t n = fd_get(AT_FDCWD, "/proc/self/maps", text, sizeof(text));
	char *line = text;

	if (n < 0)
		return err_sys(e, ERR_INTERNAL, (int)n, "read our own mappings");
	while (*line && r->n_vdso < RESTORE_VDSO_MAX) {
		char *end = strchr(line, '\n'), *dash;

		if (end)
			*end = '\0';
		if (strstr(line, "[vdso]") || strstr(line, "[vvar")) {
			r->vdso[r->n_vdso].start = strtoull(line, &dash, 16);
			r->vdso[r->n_vdso].len = strtoull(dash + 1, NULL, 16) - r->vdso[r->n_vdso].start;
			r->n_vdso++;
		}
		if (!end)
			break;
		line = end + 1;
	}
	return r->n_vdso ? 0 : err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "this kernel provides no vdso");
}

/* A child of ours that should live and does not was killed: by its memory limit, most likely. */
static int anybody_dead(const struct restore *r)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++) {
		siginfo_t si = { 0 };

		if (r->m.proc[i].parent == MEM_NONE && r->m.proc[i].state == MEM_ALIVE &&
		    waitid(P_PID, r->m.proc[i].pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid)
			return (int)i;
	}
	return -1;
}

int restore_wait(const struct restore *r, uint32_t *word, uint32_t want)
{
	struct timespec t = { .tv_nsec = LOOK_MS * 1000000L };
	unsigned waited = 0;
	uint32_t is;

	while ((is = __atomic_load_n(word, __ATOMIC_SEQ_CST)) != want) {
		if (__atomic_load_n(&r->shared->failed, __ATOMIC_SEQ_CST) == 2)
			return -ECANCELED;
		if (syscall(SYS_futex, word, FUTEX_WAIT, is, &t, NULL, 0) == 0 || errno != ETIMEDOUT)
			continue;
		waited += LOOK_MS;
		if (anybody_dead(r) >= 0 || waited >= TIMEOUT_MS) {
			int dead = anybody_dead(r);

			if (__atomic_load_n(&r->shared->failed, __ATOMIC_SEQ_CST))
				return -ECANCELED;
			r->shared->what = dead >= 0 ? RESTORE_DIED : RESTORE_WAIT;
			r->shared->proc = dead >= 0 ? (uint32_t)dead : 0;
			r->shared->error = dead >= 0 ? -ECHILD : -ETIMEDOUT;
			return -ECANCELED;
		}
	}
	return __atomic_load_n(&r->shared->failed, __ATOMIC_SEQ_CST) ? -ECANCELED : 0;
}

static const char *const whats[] = {
#define X(name, text) [RESTORE_##name] = text,
	RESTORE_WHATS(X)
#undef X
};

static int say(const struct restore *r, uint32_t proc, uint32_t what, int error, struct err *e)
{
	const struct mem_proc *p = &r->m.proc[proc < r->m.n[MEM_S_PROC] ? proc : 0];

	if (error >= 0 || error < -4095)
		error = -EIO;
	return err_sys(e, ERR_UNSUPPORTED, error, "process %u (%.15s): cannot %s", p->pid, p->comm,
		       what < RESTORE_WHAT_COUNT ? whats[what] : "?");
}

static void next_phase(struct restore *r, uint32_t phase)
{
	__atomic_store_n(&r->shared->phase, phase, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &r->shared->phase, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/*
 * Waits for the placeholders' ends. If one was the last link of a process group to its session, the kernel signals the
 * group when it ends, so no process may be stopped in that group by then.
 */
static void end_placeholders(const struct restore *r)
{
	int status;

	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++)
		while (r->m.proc[i].state == MEM_PLACEHOLDER && waitpid((pid_t)r->m.proc[i].pid, &status, __WALL) < 0 &&
		       errno == EINTR)
			;
}

static int run(struct restore *r, struct err *e)
{
	uint32_t n = r->m.n[MEM_S_PROC], which = 0;
	enum restore_what what = RESTORE_CLONE;
	int x;

	restore_help_offer(r);
	x = restore_spawn(r, MEM_NONE, false, &which);
	if (x < 0)
		return say(r, which, what, x, e);
	for (uint32_t phase = 1; x == 0 && phase <= r->phases; phase++) {
		x = restore_wait(r, &r->shared->arrived, phase * n);
		if (x == 0)
			next_phase(r, phase);
	}
	if (x == 0)
		x = restore_help(r);
	if (x == 0)
		x = restore_wait(r, &r->shared->ready, r->m.n[MEM_S_THREAD]);
	if (x < 0)
		return say(r, r->shared->proc, r->shared->what, r->shared->error, e);
	x = restore_sysv_settle(r, e);
	if (x < 0)
		return x;
	restore_number_next(r);
	next_phase(r, 3);
	end_placeholders(r);
	x = restore_finish(r, &which, &what);
	return x < 0 ? say(r, which, what, x, e) : 0;
}

/* The execs of the image are ours again, before they can end. */
static int adopt(struct restore *r, struct err *e)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_EXEC]; i++) {
		struct agent_exec *x = held_free(r->agent);

		if (!x)
			return err_set(e, ERR_EXHAUSTED, -EAGAIN, "the image has more execs than the agent can hold");
		*x = r->exec[i];
		r->agent->warm_hosts += x->warm >= 0;
		r->exec[i].warm = -1;
		memset(r->exec[i].fds, 0xff, sizeof(r->exec[i].fds));
		table_put(r->agent, x);
	}
	return 0;
}

static void end_all(struct restore *r)
{
	int status;

	kill(-1, SIGKILL);
	while (waitpid(-1, &status, __WALL) > 0 || errno == EINTR)
		;
	for (uint32_t i = 0; i < r->m.n[MEM_S_EXEC] && r->exec; i++) {
		struct agent_exec *x = held_find(r->agent, r->m.exec[i].id);

		fd_close_many(r->exec[i].fds, ARRAY_LEN(r->exec[i].fds));
		fd_close(TAKE_FD(r->exec[i].warm));
		if (!x)
			continue;
		fd_close_many(x->fds, ARRAY_LEN(x->fds));
		warm_close(r->agent, x);
		x->used = false;
		table_put(r->agent, x);
	}
}

static void clean(struct restore *r)
{
	if (!r)
		return;
	if (r->base)
		sys_close_range((unsigned)r->base, ~0U, 0);
	if (r->shared)
		munmap(r->shared, sizeof(*r->shared) + r->m.n[MEM_S_PROC] * 16UL);
	free(r->file);
	free(r->object);
	free(r->file_need);
	free(r->proc);
	free(r->plan);
	free(r->exec);
	free(r->groups);
	free(r->filter);
	free(r->node);
	if (r->meta)
		munmap((void *)(uintptr_t)r->meta, r->meta_len);
	sys_prlimit(RLIMIT_NOFILE, r->lim.rlim_cur, r->lim.rlim_max);
	free(r);
}

static struct restore *new (struct agent *a)
{
	struct restore *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->agent = a;
	r->help = MEM_NONE;
	getrlimit(RLIMIT_NOFILE, &r->lim);
	return r;
}

static int open_files(struct restore *r, struct err *e)
{
	int x;

	restore_numbers(r);
	x = restore_nodes(r, e);

	if (x == 0)
		x = restore_open(r, e);
	r->opened = x == 0;
	return x == 0 ? restore_settle(r, e) : x;
}

/* The holder's is ours, and what it holds is a long list of mappings to read. */
static int vdso(struct restore *r, struct err *e)
{
	const struct stash *s = r->agent->stash;

	if (!s)
		return restore_find_vdso(r, e);
	memcpy(r->vdso, s->vdso, sizeof(r->vdso));
	r->n_vdso = s->n_vdso;
	return 0;
}

/* Does all that is possible before a request asks for it: nothing of the image runs, or can read the time. */
static int prepare(struct restore *r, int meta, struct err *e)
{
	int x = read_image(r, meta, e);

	if (x == 0)
		x = allocate(r, e);
	if (x == 0)
		x = restore_plan(r, e);
	if (x == 0)
		x = choose_base(r, e);
	if (x == 0) {
		grow_table(r, meta);
		x = vdso(r, e);
	}
	/* What is in the image's pages cannot be opened before they have come. */
	return x == 0 && !r->m.n[MEM_S_NODE] ? open_files(r, e) : x;
}

/* Every process, with its registers: they only have to be let go. */
static int make_all(struct restore *r, const int *fds, struct err *e)
{
	struct agent *a = r->agent;
	int x = check_frame(r, fds + 1, e);

	if (x == 0)
		x = take_fds(r, fds, e);
	if (x == 0 && !r->opened)
		x = open_files(r, e);
	/* Which needs their files. */
	if (x == 0 && a->stash && stash_fits(a->stash, r, fds[0], fds + 1))
		r->stash = a->stash;
	else
		stash_drop(a);
	if (x == 0)
		x = restore_objects(r, e);
	if (x == 0)
		x = restore_sysv(r, e);
	if (x == 0)
		x = run(r, e);
	return x;
}

static int go_on(struct restore *r, const int *fds, struct err *e)
{
	int x = restore_renew(r, e);

	if (x == 0 && !r->held)
		x = make_all(r, fds, e);
	if (x == 0)
		x = adopt(r, e);
	return x;
}

/* ---- ahead of it ------------------------------------------------------------------------------------------------ */

void restore_drop(struct agent *a)
{
	if (a->ahead && a->ahead->held)
		end_all(a->ahead);
	clean(a->ahead);
	a->ahead = NULL;
}

static bool set(const void *data, size_t n)
{
	const uint8_t *at = data;

	while (n--)
		if (*at++)
			return true;
	return false;
}

/* What they would take that is not the page cache's: their pages, what waits in pipes, mappings. */
static uint64_t own_bytes(const struct restore *r)
{
	uint64_t n = (uint64_t)MAPPING * r->m.n[MEM_S_VMA];

	for (uint32_t i = 0; i < r->m.n[MEM_S_RUN]; i++)
		n += r->m.run[i].len;
	for (uint32_t i = 0; i < r->m.n[MEM_S_VMA]; i++)
		n += r->m.vma[i].flags & MEM_VMA_LOCKED ? r->m.vma[i].end - r->m.vma[i].start : 0;
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++)
		n += r->m.object[i].data.len;
	return n;
}

/*
 * Whether the processes may be made ahead of a request. Not if they could notice the time in between, or must be set up
 * before others run.
 */
static bool can_wait(const struct restore *r)
{
	if (r->m.n[MEM_S_PROC] > HELD_PROCS || r->m.n[MEM_S_THREAD] > HELD_THREADS || r->m.n[MEM_S_TIMER] ||
	    r->m.n[MEM_S_NODE] || own_bytes(r) > HELD_BYTES)
		return false;
	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++) {
		const struct mem_proc *p = &r->m.proc[i];

		if (p->state != MEM_ALIVE || p->flags & MEM_PROC_STOPPED || set(p->itimer, sizeof(p->itimer)))
			return false;
	}
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		const struct mem_object *o = &r->m.object[i];

		/* System V objects would stay when those that are held are dropped. */
		if ((o->kind == MEM_OBJ_INOTIFY && o->data.len) || o->kind == MEM_OBJ_SYSV)
			return false;
		if (o->kind == MEM_OBJ_TIMERFD && set(restore_bytes(r, o->data), o->data.len))
			return false;
	}
	return true;
}

/*
 * RESTORE ahead of a request. With only the image, it is read and its files are opened. With the whole frame, the
 * processes are made, too, and held before their first instruction. Failures are not reported: RESTORE then starts anew
 * and reports its own.
 */
void restore_ahead(struct agent *a, const struct frame *f, const int *fds)
{
	struct frame_restore frame = { 0 };
	bool hold = frame_restore_decode(f, &frame) == 0;
	struct err e = { 0 };
	struct restore *r;

	if ((!hold && (f->nfds != 1 || f->len)) || a->ahead || !a->up || !a->cookie || !a->table)
		return;
	r = a->ahead = new (a);
	if (!r)
		return;
	if (prepare(r, fds[0], &e) < 0) {
		restore_drop(a);
	} else if (hold && can_wait(r)) {
		r->told = frame;
		r->frame = &r->told;
		r->held = true; /* half of them, too, have to be ended */
		if (make_all(r, fds, &e) < 0)
			restore_drop(a);
		stash_drop(a);
	}
}

static bool same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* By the time of its last change of any kind: what was copied of it may have been other bytes than those that were checked. */
static bool still(int fd, const struct stat *was)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == was->st_dev && st.st_ino == was->st_ino &&
	       st.st_size == was->st_size && st.st_ctim.tv_sec == was->st_ctim.tv_sec &&
	       st.st_ctim.tv_nsec == was->st_ctim.tv_nsec;
}

/* Whether those that are held are what is asked for now: made of the same files, in the same groups, and all there. */
static bool held_fit(const struct restore *r, const struct frame_restore *f, const int *fds)
{
	struct frame_restore_fds at = frame_restore_fds(f);
	const struct frame_restore *t = &r->told;
	bool fit = !f->flags && !t->flags && f->pages == t->pages && f->groups == t->groups && f->nofile == t->nofile &&
		   f->cpu_seconds == t->cpu_seconds;

	for (uint32_t i = 0; fit && i < f->pages; i++)
		fit = still(fds[at.pages + (int)i], &r->pages_was[i]);
	for (uint32_t i = 0; fit && i < f->groups; i++)
		fit = same_file(r->groups[i], fds[at.groups + (int)i]);
	return fit && restore_all_held(r);
}

/* What was made ready, if it is of this image, and its files are still what they were. */
static struct restore *take_ahead(struct agent *a, const struct frame_restore *f, const int *fds)
{
	struct restore *r = a->ahead;

	if (r && still(fds[0], &r->meta_was) && restore_unchanged(r) && (!r->held || held_fit(r, f, fds))) {
		a->ahead = NULL;
		return r;
	}
	restore_drop(a);
	return NULL;
}

/* Whatever it holds of the image's words: plain letters. */
static void fail(const struct err *e, int x)
{
	struct frame_failed f = { .stage = FRAME_STAGE_RESTORE, .errnum = (uint32_t)-x };
	char text[FRAME_FAILED_TEXT_MAX + 1];
	uint8_t out[FRAME_FAILED_TEXT_MAX + 32];
	long n;

	snprintf(text, sizeof(text), "%s", e->msg);
	for (char *p = text; *p; p++)
		if (*p < 0x20 || *p > 0x7e)
			*p = '?';
	f.text = text;
	n = frame_failed_encode(&f, out, sizeof(out));
	agent_send(FRAME_FAILED, 0, out, (size_t)n, NULL, 0);
}

void restore_serve(struct agent *a, const struct frame *f, const int *fds)
{
	struct frame_restored done = { 0 };
	struct frame_restore frame = { 0 };
	struct restore *r;
	uint64_t began = now_ns(CLOCK_MONOTONIC);
	struct err e = { 0 };
	uint8_t out[32];
	int x = frame_restore_decode(f, &frame);

	if (x < 0)
		x = err_set(&e, ERR_INVALID, x, "invalid RESTORE frame");
	else if (!a->up || !a->cookie || !a->table)
		x = err_set(&e, ERR_CONFLICT, -EALREADY,
			    "processes can only be restored before anything else has run in the sandbox");
	if (x < 0) {
		fail(&e, x);
		return;
	}
	r = take_ahead(a, &frame, fds);
	if (!r) {
		r = new (a);
		x = r ? prepare(r, fds[0], &e) : err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory to restore with");
	}
	if (x == 0) {
		r->frame = &frame;
		x = go_on(r, fds, &e);
	}
	/* A socket, a lock or a pipe's end that a process closes as its first step is closed then: nothing of theirs is open here. */
	if (x == 0) {
		sys_close_range((unsigned)r->base, ~0U, 0);
		restore_let_go(r);
	} else if (r)
		end_all(r);
	agent_forget(a);
	if (x < 0) {
		clean(r);
		stash_drop(a);
		fail(&e, x);
		return;
	}
	done.procs = r->m.n[MEM_S_PROC];
	done.threads = r->m.n[MEM_S_THREAD];
	done.done = r->done | (r->m.head->monotonic > began ? FRAME_RESTORED_CLOCK_BACK : 0);
	done.usec = (uint32_t)((now_ns(CLOCK_MONOTONIC) - began) / 1000);
	x = (int)frame_restored_encode(&done, out, sizeof(out));
	agent_send(FRAME_RESTORED, 0, out, (size_t)x, NULL, 0);
	stash_drop(a);
	clean(r); /* after the answer: closing a hundred descriptors and the image takes a while */
}
