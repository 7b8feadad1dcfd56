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
#include "layers/numbers.h"
#include "linux/cgroup_parse.h"
#include "memory/crypt.h"
#include "proto/table.h"

#include <time.h>
#include <unistd.h>

#define SETTLE_TRIES 100 /* for an agent in the middle of something, and file workers at theirs */
#define SETTLE_NS 5000000
#define SEIZED_MS 10000
#define BUSY_TRIES 20 /* for processes the kernel is in the middle of something for */
#define READY_MS 60000
#define COPIED_MS 10000
#define DONE_MS 300000

/*
 * Layers that are joined will not be below the new one: nothing may point into their pages. With as many ancestors as
 * there can be cloche-dump knows them all and writes everything anew.
 */
static int fill_up(struct seal *x)
{
	struct dump_source *d = &x->impl->source;

	for (; d->ancestors < MEM_PAGE_FILES; d->ancestors++) {
		int fd = sys_fcntl(d->pages[0], F_DUPFD_CLOEXEC, 3);

		if (fd < 0)
			return err_sys(&x->e, ERR_EXHAUSTED, fd, "open the memory of layer '%s'", d->ancestor[0]);
		memcpy(d->ancestor[d->ancestors], d->ancestor[0], ID_SIZE);
		d->pages[d->ancestors] = fd;
	}
	return 0;
}

/* The layers whose pages its processes may still have: that which it was restored from, and what that stands on. */
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
			return err_sys(&x->e, ERR_INTERNAL, r, "open the memory of layer '%s'", d->ancestor[d->ancestors]);
	}
	return i->from.joins ? fill_up(x) : 0;
}

/* What is left of its limit. Pages of files can be had again, so those do not count. */
static uint64_t room(const struct seal_source *f)
{
	const bool v1 = f->cgroups->version == 1;
	const int dir = f->cgroup->dir[v1 ? CGROUP_MEMORY : 0];
	uint64_t active = 0, inactive = 0, used;
	struct cgroup_stat st = { 0 };
	char text[8192];

	if (!f->limit || !(f->cgroup->mask & CGROUP_BIT(CGROUP_MEMORY)) || cgroup_stat(f->cgroups, f->cgroup, &st) < 0 || !st.memory)
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
	int r = sys_mkdirat(i->tmp, "mem", 0700);

	if (r == 0)
		r = i->mem = sys_openat(i->tmp, "mem", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (r >= 0)
		r = crypt_folder(i->from.crypt, i->mem);
	if (r < 0)
		return err_sys(&x->e, ERR_EXHAUSTED, r, "make a folder for layer '%s'", x->m.id);
	i->source.program = i->from.program;
	i->source.pidfd = i->from.pidfd;
	i->source.pid = i->from.pid;
	i->source.table = i->table;
	i->source.freezer = i->from.cgroup->dir[i->from.cgroups->version == 1 ? CGROUP_FREEZER : 0];
	i->source.out = i->mem;
	i->source.sums = !i->from.soon;
	i->source.refuses_network = i->from.refuses_network;
	/* A paused one stands still while it is copied. A copy of its processes would be frozen with them, and could not end. */
	i->source.room = i->from.paused ? 0 : room(&i->from);
	/* One that is put to sleep is paused first, and ended behind this. */
	i->source.whole = i->from.paused;
	return open_ancestors(x);
}

/* 0: nothing is half done in there. -EAGAIN: look again in a moment. */
static int look(const struct seal *x, struct err *e)
{
	AUTO_FREE struct table *t = calloc(1, sizeof(*t));
	int r = t ? table_read(x->impl->table, t) : -ENOMEM;
	unsigned execs = 0;

	/* A sandbox that was made a moment ago: its agent has not heard KEEP yet. */
	if (r == -EAGAIN || (r == -EBADMSG && !t->magic))
		return err_set(e, ERR_CONFLICT, -EAGAIN, "the sandbox's agent is busy");
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read the agent's table");
	for (unsigned i = 0; i < TABLE_WORKERS; i++)
		if (t->worker[i])
			return err_set(e, ERR_CONFLICT, -EAGAIN, "files of the sandbox are being read or written");
	for (unsigned i = 0; i < TABLE_EXECS; i++)
		execs += t->exec[i].flags && t->exec[i].pid;
	if (execs > MEMORY_EXECS_MAX) {
		err_set(e, ERR_TOO_LARGE, -E2BIG, "%u execs are running: memory can be saved with at most %d", execs,
			MEMORY_EXECS_MAX);
		err_remedy(e, "end some, or checkpoint only its files");
		return -E2BIG;
	}
	return 0;
}

/*
 * Freezes it when the agent does nothing and no file worker is there. A paused one is woken up for that if need be, for
 * a moment: what is half done in it could never be finished otherwise.
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

	/* Of a sandbox that is being ended cloche-dump may find a process gone first. */
	return r == -ECANCELED || (r < 0 && __atomic_load_n(&x->work.stop, __ATOMIC_RELAXED)) ? seal_given_up(x) : r;
}

/* While it holds every process. */
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
	/* Before they are let go. */
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
	int r = dump_start(&x->impl->source, &x->impl->dump, &x->e); /* ahead: it takes as long as much of the pause */

	if (r == 0)
		r = stop(x, &since);
	if (r < 0) {
		dump_end(&x->impl->dump);
		return r;
	}
	STEP("seal.frozen");
	r = seal_room(x);
	if (r == 0) {
		/* One that has ended has said why. */
		(void)dump_say(&x->impl->dump, x->impl->source.sums ? "begin sums" : "begin", &x->e);
		r = copy_held(x, &frozen);
	}
	/* As it was before, whatever went wrong. Frozen first: what it held would run otherwise. */
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

/* For the agent to notice what has happened. A paused one is woken up for that. */
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

static bool listed(const struct dump_source *d, const char *id)
{
	for (unsigned i = 0; i < d->ancestors; i++)
		if (!strcmp(d->ancestor[i], id))
			return true;
	return false;
}

int seal_memory_finish(struct seal *x)
{
	struct seal_impl *i = x->impl;
	AUTO_CLOSE int meta = -1, pages = -1;
	int numbers[NUMBERS_SETS], r;
	struct mem_head head;

	STEP("seal.copied");
	r = dump_wait_done(&i->dump, DONE_MS, &x->work.stop, i->pages_sum, &x->e);
	if (r < 0) {
		dump_end(&i->dump);
		return r == -ECANCELED ? seal_given_up(x) : r;
	}
	dump_leave(&i->dump); /* taking its memory apart takes milliseconds */
	r = meta = memory_open(i->tmp, "meta");
	if (r >= 0)
		r = pages = memory_open(i->tmp, "pages");
	if (r < 0)
		return err_sys(&x->e, ERR_INTERNAL, r, "open the saved memory");
	r = memory_head(meta, pages, &head, &x->e);
	if (r == 0)
		r = memory_cuts(meta, &head, &x->cuts, &x->e);
	/* Restored, each process has all of its pages for itself: what would not fit there must not be promised. */
	if (r == 0)
		r = memory_fits(&head, i->from.limit, &x->e);
	/* It may point only to what stays as long as this layer does. */
	for (uint32_t n = 1; r == 0 && n < head.page_files; n++)
		if (!listed(&i->source, head.ancestor[n]))
			r = err_set(&x->e, ERR_INTERNAL, -EBADMSG, "memory image: based on '%s'", head.ancestor[n]);
	if (r == 0)
		r = numbers_write(i->mem, meta, &head, i->from.joins, numbers, &x->e);
	if (r == 0) {
		flush_enter(i->flush);
		flush_more(i->flush, pages);
		flush_file_add(i->flush, meta);
		flush_file_add(i->flush, pages);
		for (unsigned n = 0; n < NUMBERS_SETS && numbers[n] >= 0; n++)
			flush_file_add(i->flush, numbers[n]);
		fd_close_many(numbers, NUMBERS_SETS);
		flush_leave(i->flush, i->mem);
	}
	return r;
}
