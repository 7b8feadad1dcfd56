/* The list of watched sandboxes, and what is done to them when their looker asks for it. */
#include "engine/kernel_memory/watch.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/kernel_memory/enter.h"
#include "engine/kernel_memory/pools.h"
#include "engine/kernel_memory/quick.h"
#include "engine/kernel_memory/table.h"
#include "engine/rootfs/shown.h"
#include "linux/socket_bpf.h"

#include <pthread.h>
#include <signal.h>

#define ONCE_MORE_NS 2000000000ULL /* ended again within this time: then ending execs does not help */

struct kernel_watched {
	struct kernel_subject subject; /* as it must be added again */
	int pidfd; /* the caller's */
	struct cgroup cgroup; /* parked (linux/cgroup.h); owned */
	struct socket_bpf_entry entry; /* with subject.sockets */
	struct kernel_usage usage;
	int writable; /* the caller's; -1: none */
};

struct kernel_watch {
	struct kernel_watch_opts o;
	struct socket_bpf *bpf; /* NULL: not available */
	void *looker;
	pthread_mutex_t lock; /* protects all members below, and the state of each sandbox */
	pthread_cond_t idle; /* signals a change of ->busy */
	struct kernel_table table;
	struct kernel_watched *busy; /* work is done on its group, by name: it must not be removed */
};

/* ---- what is done to sandboxes ---------------------------------------------------------------------------------- */

/* For version 1; on version 2 the limit never changes here. */
static int put_limit(const struct kernel_watch *w, const struct kernel_watched *x)
{
	char path[96], text[24];

	snprintf(path, sizeof(path), "%s/memory.limit_in_bytes", x->cgroup.name);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)x->subject.memory);
	return fd_put(w->o.host->base[CGROUP_MEMORY], path, text);
}

/*
 * Has the kernel drop page cache. On version 1 this lowers the limit, which is then raised again. It can be slow, so it
 * does not run with high priority.
 */
static void make_room(const struct kernel_watch *w, const struct kernel_watched *x, uint64_t have, uint64_t bytes)
{
	const bool v2 = w->o.host->version == 2;
	const int base = w->o.host->base[v2 ? 0 : CGROUP_MEMORY];
	char path[96], text[24];

	if (bytes > KERNEL_ROOM_MOST || bytes >= have)
		return;
	snprintf(path, sizeof(path), "%s/%s", x->cgroup.name, v2 ? "memory.reclaim" : "memory.limit_in_bytes");
	snprintf(text, sizeof(text), "%llu", (unsigned long long)(v2 ? bytes : have - bytes));
	kernel_quick(false);
	fd_put(base, path, text);
	if (!v2 && put_limit(w, x) < 0)
		log_error("sandbox %s: its memory limit remains at %llu bytes", x->cgroup.name,
			  (unsigned long long)(have - bytes));
	kernel_quick(true);
}

/*
 * Ends the execs; false when there are none. The groups are listed before any is ended: the next exec, which may start
 * as soon as one has ended, is not in the list. An empty group is prebuilt for it, and on version 1 it could not fork
 * in a group that is being ended.
 */
static bool end_groups(const struct kernel_watch *w, const struct kernel_watched *x)
{
	uint32_t last = 0, count = 0, filled = 0;
	AUTO_FREE uint32_t *list = NULL;
	bool ended = false;

	if (cgroup_children(w->o.host, &x->cgroup, &last, &count) < 0 || !count)
		return false;
	list = malloc(count * sizeof(*list));
	for (uint32_t n = last; list && n > 0 && count; n--) {
		int r = cgroup_child_empty(w->o.host, &x->cgroup, n);

		count -= r != -ENOENT;
		if (r == 0)
			list[filled++] = n;
	}
	for (uint32_t i = 0; i < filled; i++)
		ended |= cgroup_child_kill_once(w->o.host, &x->cgroup, list[i]) == 0;
	return ended;
}

/* Ends all processes in it. */
static void end_all(const struct kernel_watch *w, const struct kernel_watched *x)
{
	cgroup_kill_now(w->o.host, x->cgroup.name);
	sys_pidfd_send_signal(x->pidfd, SIGKILL);
}

/* Ends the execs of a sandbox that survives that, else all processes. */
static void end_execs(const struct kernel_watch *w, struct kernel_watched *x, uint64_t before_ns)
{
	const bool again = before_ns && x->subject.ended_ns - before_ns < ONCE_MORE_NS;

	if (!w->o.persist || again || !end_groups(w, x))
		end_all(w, x);
}

/* ---- what a looker calls ---------------------------------------------------------------------------------------- */

static void figures(void *arg, uint64_t id, const struct kernel_figures *f)
{
	struct kernel_watch *w = arg;
	struct kernel_watched *x;

	pthread_mutex_lock(&w->lock);
	x = kernel_table_find(&w->table, id);
	if (x) {
		memcpy(x->usage.bytes, f->bytes, sizeof(x->usage.bytes));
		memcpy(x->subject.bytes, f->bytes, sizeof(x->subject.bytes));
		x->subject.base = f->base;
		x->subject.flags |= KERNEL_SUBJECT_SEEN;
	}
	pthread_mutex_unlock(&w->lock);
}

/* Keeps the sandbox until busy_leave(); ->lock is released meanwhile. NULL: it is gone. */
static struct kernel_watched *busy_enter(struct kernel_watch *w, uint64_t id)
{
	pthread_mutex_lock(&w->lock);
	while (w->busy) /* a looker has several threads */
		pthread_cond_wait(&w->idle, &w->lock);
	w->busy = kernel_table_find(&w->table, id);
	pthread_mutex_unlock(&w->lock);
	return w->busy;
}

static void busy_leave(struct kernel_watch *w)
{
	pthread_mutex_lock(&w->lock);
	w->busy = NULL;
	pthread_cond_broadcast(&w->idle);
	pthread_mutex_unlock(&w->lock);
}

static bool is_cause(uint64_t by)
{
	return by >= KERNEL_POOLS_FIRST ? by - KERNEL_POOLS_FIRST < KERNEL_POOLS_COUNT : by - 1 < KERNEL_KINDS_COUNT;
}

static bool act(void *arg, uint64_t id, const struct kernel_act *a)
{
	struct kernel_watch *w = arg;
	struct kernel_watched *x = busy_enter(w, id);
	bool done = x && x->subject.memory == a->memory;
	uint64_t before;

	if (done && a->kind == KERNEL_ACT_ROOM) {
		make_room(w, x, a->have, a->room);
	} else if (done && is_cause(a->by)) {
		pthread_mutex_lock(&w->lock); /* before anyone can see the kill that results */
		memcpy(x->usage.bytes, a->bytes, sizeof(x->usage.bytes));
		x->usage.kills++;
		x->usage.killed_by = a->by;
		before = x->subject.ended_ns;
		x->subject.ended_ns = clock_mono_ns();
		x->subject.ended_sum = a->have;
		for (unsigned i = 0; i < KERNEL_KINDS_COUNT; i++)
			x->subject.ended_sum += a->bytes[i];
		pthread_mutex_unlock(&w->lock);
		end_execs(w, x, before);
	}
	busy_leave(w);
	return done;
}

/* Their memory is unknown now, so all sandboxes must be ended. */
static void blind(void *arg)
{
	struct kernel_watch *w = arg;

	for (uint64_t i = 0;; i++) {
		struct kernel_watched *x;
		uint64_t id = 0;

		pthread_mutex_lock(&w->lock);
		while (i < w->table.max && !w->table.id[i])
			i++;
		id = i < w->table.max ? w->table.id[i] : 0;
		pthread_mutex_unlock(&w->lock);
		if (!id)
			return;
		x = busy_enter(w, id);
		if (x) {
			log_error("sandbox %s: its kernel memory is not watched: it is ended", x->cgroup.name);
			end_all(w, x);
		}
		busy_leave(w);
	}
}

/* ---- sandboxes -------------------------------------------------------------------------------------------------- */

static void go_in(struct kernel_watch *w, const struct kernel_watched *x, struct socket_bpf *bpf, uint64_t most,
		  struct kernel_entered *ret)
{
	kernel_enter(&(struct kernel_enter){ .pidfd = x->pidfd,
					     .net = w->o.net,
					     .rootless = w->o.rootless,
					     .bpf = bpf,
					     .most = most,
					     .diag = w->o.looker->apart },
		     ret);
}

/* Takes over @diag. */
static int look_at(struct kernel_watch *w, const struct kernel_watched *x, int diag)
{
	int fd[KERNEL_FDS] = { [KERNEL_PIDFD] = x->pidfd, [KERNEL_DIAG] = diag }, r = 0;

	shown_live(x->writable, fd + KERNEL_MEMINFO);
	if (w->o.looker->apart && diag < 0 && diag != -ESRCH)
		r = diag;
	if (r == 0)
		r = w->o.looker->add(w->looker, &x->subject, fd);
	for (unsigned i = KERNEL_DIAG; i < KERNEL_FDS; i++)
		fd_close(fd[i]);
	return r;
}

static void again(void *arg)
{
	struct kernel_watch *w = arg;

	pthread_mutex_lock(&w->lock);
	for (uint64_t i = 0; i < w->table.max; i++) {
		const struct kernel_watched *x = w->table.id[i] ? w->table.at[i] : NULL;
		struct kernel_entered n;
		int r;

		if (!x)
			continue;
		go_in(w, x, NULL, 0, &n);
		r = look_at(w, x, n.diag);
		if (r < 0) {
			log_error("sandbox %s: its kernel memory cannot be watched: errno %d; it is ended",
				  x->cgroup.name, -r);
			end_all(w, x);
		}
	}
	pthread_mutex_unlock(&w->lock);
}

/* Bounds its sockets. Returns kernel_entered.diag. */
static int bound(struct kernel_watch *w, struct kernel_watched *x)
{
	const uint32_t most = w->o.sockets ? w->o.sockets : (uint32_t)kernel_sockets_most(x->subject.memory);
	struct kernel_entered n;

	go_in(w, x, w->bpf, most, &n);
	x->entry = n.entry;
	if (n.bound == 0)
		x->subject.sockets = most;
	else if (w->bpf && n.bound != -ESRCH)
		log_warn("sandbox %s: its sockets are not limited by BPF: errno %d; they are still watched",
			 x->cgroup.name, -n.bound);
	return n.diag;
}

static void drop(struct kernel_watch *w, struct kernel_watched *x)
{
	if (x->subject.sockets)
		socket_bpf_leave(w->bpf, &x->entry);
	free(x);
}

struct kernel_watched *kernel_watch_add(struct kernel_watch *w, const struct kernel_watch_add *o)
{
	struct kernel_watched *x = calloc(1, sizeof(*x));
	int diag, r;

	if (!x)
		return NULL;
	x->pidfd = o->pidfd;
	cgroup_init(&x->cgroup);
	memcpy(x->cgroup.name, o->cgroup->name, sizeof(x->cgroup.name));
	x->cgroup.mask = o->cgroup->mask;
	x->cgroup.parked = true;
	x->writable = o->writable;
	x->subject = (struct kernel_subject){
		.tenant = o->tenant, .memory = o->memory, .pid = (uint64_t)o->pid, .mask = o->cgroup->mask
	};
	x->subject.flags = o->restores ? KERNEL_SUBJECT_RESTORES : 0;
	memcpy(x->subject.group, x->cgroup.name, sizeof(x->subject.group));
	diag = bound(w, x);
	pthread_mutex_lock(&w->lock);
	x->subject.id = kernel_table_add(&w->table, x);
	r = x->subject.id ? 0 : -ENOMEM;
	if (r == 0)
		r = look_at(w, x, TAKE_FD(diag));
	x->subject.flags &= ~(uint64_t)KERNEL_SUBJECT_RESTORES; /* when it is added again, the restore is over */
	if (r < 0)
		kernel_table_remove(&w->table, x->subject.id);
	pthread_mutex_unlock(&w->lock);
	if (r == 0)
		return x;
	fd_close(diag);
	log_error("sandbox %s: its kernel memory cannot be watched: errno %d", x->cgroup.name, -r);
	drop(w, x);
	return NULL;
}

void kernel_watch_remove(struct kernel_watch *w, struct kernel_watched *x)
{
	if (!x)
		return;
	pthread_mutex_lock(&w->lock);
	while (w->busy == x)
		pthread_cond_wait(&w->idle, &w->lock);
	kernel_table_remove(&w->table, x->subject.id);
	pthread_mutex_unlock(&w->lock);
	w->o.looker->remove(w->looker, x->subject.id);
	drop(w, x);
}

void kernel_watch_limit(struct kernel_watch *w, struct kernel_watched *x, uint64_t memory)
{
	pthread_mutex_lock(&w->lock);
	while (w->busy == x)
		pthread_cond_wait(&w->idle, &w->lock);
	x->subject.memory = memory;
	pthread_mutex_unlock(&w->lock);
	w->o.looker->limit(w->looker, x->subject.id, memory);
}

bool kernel_watch_owner(struct kernel_watch *w, pid_t first, uint64_t inode, struct socket_owner *ret)
{
	return w->o.looker->owner(w->looker, first, inode, ret);
}

uint32_t kernel_watch_bound(const struct kernel_watched *x)
{
	return x ? (uint32_t)x->subject.sockets : 0;
}

unsigned kernel_watch_share(const struct kernel_watch *w)
{
	return w->o.persist ? w->o.percent : 0;
}

int kernel_watch_mend(const struct kernel_watch *w, const struct kernel_watched *x)
{
	return x && w->o.host->version != 2 ? put_limit(w, x) : 0;
}

void kernel_watch_usage(struct kernel_watch *w, const struct kernel_watched *x, struct kernel_usage *ret)
{
	*ret = (struct kernel_usage){ 0 };
	if (!x)
		return;
	pthread_mutex_lock(&w->lock);
	*ret = x->usage;
	pthread_mutex_unlock(&w->lock);
}

int kernel_watch_new(const struct kernel_watch_opts *o, struct kernel_watch **ret, struct err *e)
{
	struct kernel_watch *w = calloc(1, sizeof(*w));
	struct err why = { 0 };
	int r;

	if (!w)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to watch sandboxes");
	w->o = *o;
	w->o.percent = o->percent ? o->percent : KERNEL_POOLS_PERCENT;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->idle, NULL);
	r = o->looker->new (&(struct kernel_looker_opts){ .host = o->host,
							  .net = o->net,
							  .rootless = o->rootless,
							  .percent = w->o.percent,
							  .program = o->program,
							  .sink = { w, figures, act, again, blind } },
			    &w->looker, e);
	if (r < 0) {
		kernel_watch_free(w);
		return r;
	}
	/* Attaching takes milliseconds, which is too long for a single sandbox. */
	if (o->persist && !o->rootless && socket_bpf_new(o->host, &w->bpf, &why) < 0)
		log_info("%s: the number of sockets is not limited; their memory is still watched", why.msg);
	*ret = w;
	return 0;
}

void kernel_watch_free(struct kernel_watch *w)
{
	if (!w)
		return;
	if (w->looker)
		w->o.looker->free(w->looker);
	for (uint64_t i = 0; i < w->table.max; i++)
		if (w->table.id[i])
			free(w->table.at[i]);
	kernel_table_done(&w->table);
	socket_bpf_free(w->bpf);
	pthread_cond_destroy(&w->idle);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
