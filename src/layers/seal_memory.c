/*
 * Sealing with memory: cloche-dump stops every process of the sandbox while it is frozen, so that it can be thawed
 * (frozen, nothing could be asked of a process) and still nothing runs: the files are copied at the same instant.
 */
#include "layers/seal_impl.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "base/sys.h"
#include "layers/memory.h"
#include "linux/cgroup_parse.h"
#include "proto/table.h"

#include <time.h>
#include <unistd.h>

#define SETTLE_TRIES 100 /* for an agent with a request in progress, and for file workers */
#define SETTLE_NS 5000000
#define SEIZED_MS 10000
#define BUSY_TRIES 20 /* for processes inside of a kernel operation */
#define READY_MS 60000
#define COPIED_MS 10000
#define DONE_MS 300000

/*
 * Opens the layers whose pages its processes may still share: the one it was restored from, and those that this one is
 * based on.
 */
static int open_ancestors(struct seal *x)
{
	struct seal_impl *i = x->impl;
	struct dump_source *d = &i->source;
	AUTO_CLOSE int dir = -1, meta = -1, pages = -1;
	struct mem_head head;
	int r;

	if (!i->from.restored[0])
		return 0;
	r = dir = sys_openat(i->from.dir, i->from.restored, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (r >= 0)
		r = meta = memory_open(dir, "meta");
	if (r >= 0)
		r = pages = memory_open(dir, "pages");
	if (r < 0)
		return err_sys(&x->e, ERR_INTERNAL, r, "open the memory of layer '%s'", i->from.restored);
	r = memory_head(meta, pages, &head, &x->e);
	if (r < 0)
		return err_wrap(&x->e, r, "layer '%s'", i->from.restored);
	memcpy(d->ancestor[0], i->from.restored, ID_SIZE);
	d->pages[0] = TAKE_FD(pages);
	d->base = TAKE_FD(meta);
	for (d->ancestors = 1; d->ancestors < head.page_files; d->ancestors++) {
		AUTO_CLOSE int other = -1;

		memcpy(d->ancestor[d->ancestors], head.ancestor[d->ancestors], ID_SIZE);
		r = other = sys_openat(i->from.dir, d->ancestor[d->ancestors],
				       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
		if (r >= 0)
			r = d->pages[d->ancestors] = memory_open(other, "pages");
		if (r < 0)
			return err_sys(&x->e, ERR_INTERNAL, r, "open the memory of layer '%s'",
				       d->ancestor[d->ancestors]);
	}
	/*
	 * Layers that are joined will not be below the new one: no page may refer to them. With the maximal number of
	 * ancestors cloche-dump treats the list as complete and writes all other pages anew.
	 */
	for (r = 0; r >= 0 && i->from.joins && d->ancestors < MEM_PAGE_FILES; d->ancestors++) {
		memcpy(d->ancestor[d->ancestors], d->ancestor[0], ID_SIZE);
		r = d->pages[d->ancestors] = sys_fcntl(d->pages[0], F_DUPFD_CLOEXEC, 3);
	}
	return r < 0 ? err_sys(&x->e, ERR_EXHAUSTED, r, "open the memory of layer '%s'", d->ancestor[0]) : 0;
}

/* The memory that is left of its limit. Pages of files can be reclaimed, so those do not count. */
static uint64_t room(const struct seal_source *f)
{
	const bool v1 = f->cgroups->version == 1;
	const int dir = f->cgroup->dir[v1 ? CGROUP_MEMORY : 0];
	uint64_t active = 0, inactive = 0, used;
	struct cgroup_stat st = { 0 };
	char text[8192];

	if (!f->limit || !(f->cgroup->mask & CGROUP_BIT(CGROUP_MEMORY)) ||
	    cgroup_stat(f->cgroups, f->cgroup, &st) < 0 || !st.memory)
		return UINT64_MAX;
	if (fd_get(dir, "memory.stat", text, sizeof(text)) > 0) {
		cgroup_parse_kv(text, v1 ? "total_active_file" : "active_file", &active);
		cgroup_parse_kv(text, v1 ? "total_inactive_file" : "inactive_file", &inactive);
	}
	used = st.memory > active + inactive ? st.memory - active - inactive : 0;
	return f->limit > used ? f->limit - used : 0;
}

int seal_memory_prepare(struct seal *x)
{
	struct seal_impl *i = x->impl;

	i->source.program = i->from.program;
	i->source.pidfd = i->from.pidfd;
	i->source.pid = i->from.pid;
	i->source.table = i->table;
	i->source.freezer = i->from.cgroup->dir[i->from.cgroups->version == 1 ? CGROUP_FREEZER : 0];
	i->source.out = i->mem;
	i->source.sums = !i->from.soon;
	i->source.refuses_network = i->from.refuses_network;
	/*
	 * A paused sandbox stays frozen while it is copied. Copies of its processes would be frozen as well, and could
	 * not end.
	 */
	i->source.room = i->from.paused ? 0 : room(&i->from);
	/* A sandbox that is hibernated is paused first, and ended after this. */
	i->source.whole = i->from.paused;
	return open_ancestors(x);
}

/* 0: no operation is half done inside. -EAGAIN: try again in a moment. */
static int look(const struct seal *x, struct err *e)
{
	AUTO_FREE struct table *t = calloc(1, sizeof(*t));
	int r = t ? table_read(x->impl->table, t) : -ENOMEM;
	unsigned execs = 0;

	/* A sandbox that was just made: its agent has not received KEEP yet. */
	if (r == -EAGAIN || (r == -EBADMSG && !t->magic))
		return err_set(e, ERR_CONFLICT, -EAGAIN, "the sandbox's agent is busy");
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read the agent's table");
	for (unsigned i = 0; i < TABLE_WORKERS; i++)
		if (t->worker[i])
			return err_set(e, ERR_CONFLICT, -EAGAIN, "files of the sandbox are being read or written");
	for (unsigned i = 0; i < TABLE_EXECS; i++)
		execs += t->exec[i].flags && t->exec[i].pid;
	if (execs > MEMORY_EXECS_MAX)
		return err_advise(e, ERR_TOO_LARGE, -E2BIG, "end some, or checkpoint only its files",
				  "%u execs are running: memory can be saved with at most %d", execs, MEMORY_EXECS_MAX);
	return 0;
}

/*
 * Freezes it when the agent and all file workers are idle. A paused one is thawed for a moment if necessary: otherwise
 * an operation that is half done could never be finished.
 */
static int stop(struct seal *x, uint64_t *ret_since)
{
	const struct seal_source *f = &x->impl->from;
	int r;

	for (unsigned tries = 0;; tries++) {
		*ret_since = clock_mono_ns();
		r = f->paused && !tries ? 0 : cgroup_freeze(f->cgroups, f->cgroup, &x->e);
		if (r < 0)
			return r;
		r = look(x, &x->e);
		if (r != -EAGAIN || tries == SETTLE_TRIES)
			break;
		if (__atomic_load_n(&x->work.stop, __ATOMIC_RELAXED)) {
			r = seal_given_up(x);
			break;
		}
		seal_thaw(x);
		nanosleep(&(struct timespec){ .tv_nsec = SETTLE_NS }, NULL);
	}
	if (r < 0 && !f->paused)
		seal_thaw(x);
	if (r == -EAGAIN)
		err_remedy(&x->e, "try again when that is done");
	return r;
}

static int wait_for(struct seal *x, const char *word, unsigned ms)
{
	int r = dump_wait(&x->impl->dump, word, ms, &x->work.stop, &x->e);

	/* In a sandbox that is being ended cloche-dump may find a process gone first. */
	return r == -ECANCELED || (r < 0 && __atomic_load_n(&x->work.stop, __ATOMIC_RELAXED)) ? seal_given_up(x) : r;
}

/* Copies while cloche-dump holds every process. */
static int copy_held(struct seal *x, bool *ret_frozen)
{
	const struct seal_source *f = &x->impl->from;
	int r = wait_for(x, "seized", SEIZED_MS);

	if (r < 0)
		return r;
	STEP("seal.seized");
	seal_thaw(x);
	*ret_frozen = false;
	STEP("seal.held");
	r = seal_copy_files(x);
	if (r == 0)
		r = wait_for(x, "ready", READY_MS);
	/* Everything is copied, and the processes are still held. */
	STEP("seal.ready");
	if (r == 0 && f->paused) {
		r = cgroup_freeze(f->cgroups, f->cgroup, &x->e);
		*ret_frozen = r == 0;
	}
	STEP("seal.frozen_again");
	if (r == 0)
		r = dump_say(&x->impl->dump, "go", &x->e);
	return r == 0 ? wait_for(x, "copied", COPIED_MS) : r;
}

/* The sandbox runs, or is paused, as before when this returns. */
static int attempt(struct seal *x)
{
	const struct seal_source *f = &x->impl->from;
	bool frozen = true;
	uint64_t since = 0;
	/* started ahead, since starting it during the pause would make the pause as much longer */
	int r = dump_start(&x->impl->source, &x->impl->dump, &x->e);

	if (r == 0)
		r = stop(x, &since);
	if (r < 0) {
		dump_end(&x->impl->dump);
		return r;
	}
	STEP("seal.frozen");
	r = seal_room(x);
	if (r == 0) {
		/* A cloche-dump that has ended has reported why. */
		(void)dump_say(&x->impl->dump, x->impl->source.sums ? "begin sums" : "begin", &x->e);
		r = copy_held(x, &frozen);
	}
	/*
	 * Restores the earlier state in any case. Frozen first: otherwise the processes that cloche-dump held would
	 * run.
	 */
	if (f->paused && !frozen) {
		struct err e = { 0 };

		if (cgroup_freeze(f->cgroups, f->cgroup, &e) < 0)
			log_error("a paused sandbox that was sealed is running: %s", e.msg);
	}
	if (r < 0)
		dump_end(&x->impl->dump);
	if (!f->paused && frozen)
		seal_thaw(x);
	if (!f->paused)
		x->pause += clock_mono_ns() - since;
	return r;
}

/* Lets the agent finish what it does. A paused sandbox is thawed for that. */
static int give_time(struct seal *x)
{
	const struct seal_source *f = &x->impl->from;

	if (f->paused)
		seal_thaw(x);
	nanosleep(&(struct timespec){ .tv_nsec = SETTLE_NS }, NULL);
	return f->paused ? cgroup_freeze(f->cgroups, f->cgroup, &x->e) : 0;
}

int seal_memory_copy(struct seal *x)
{
	int r;

	for (unsigned tries = 0; (r = attempt(x)) == -EAGAIN && tries < BUSY_TRIES; tries++) {
		if (__atomic_load_n(&x->work.stop, __ATOMIC_RELAXED))
			return seal_given_up(x);
		memset(&x->e, 0, sizeof(x->e));
		r = give_time(x);
		if (r == 0)
			r = seal_begin_anew(x);
		if (r < 0)
			return r;
		x->impl->source.out = x->impl->mem;
	}
	return r;
}

int seal_memory_finish(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r;

	STEP("seal.copied");
	r = dump_wait_done(&i->dump, DONE_MS, &x->work.stop, i->pages_sum, &x->e);
	if (r < 0) {
		dump_end(&i->dump);
		return r == -ECANCELED ? seal_given_up(x) : r;
	}
	dump_leave(&i->dump); /* freeing its memory takes milliseconds */
	return 0;
}

void seal_memory_ancestors(const struct seal *x, struct layer_ask *ask)
{
	const struct dump_source *d = &x->impl->source;

	ask->ancestors = d->ancestors;
	memcpy(ask->ancestor, d->ancestor, sizeof(ask->ancestor));
}
