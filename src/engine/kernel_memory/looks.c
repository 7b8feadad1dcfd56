/* The looker's thread: decides which sandbox is looked at when, and which must be ended. */
#include "engine/kernel_memory/looks.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/kernel_memory/files.h"
#include "engine/kernel_memory/pools.h"
#include "engine/kernel_memory/quick.h"
#include "engine/kernel_memory/show.h"
#include "engine/kernel_memory/sockets.h"
#include "engine/kernel_memory/table.h"
#include "linux/cgroup_parse.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define LOOK_CPU_USEC 2000 /* a core fills about 2 MiB in a millisecond */
#define QUIET 100 /* rounds: after a second without running */
#define IDLE_NS 500000000ULL /* interval in which idle sandboxes are checked, however little the machine has lost */
#define SMALL (4U << 20) /* less is never too much: no other kind is measured then */
/* for a sandbox that is being restored: a small one takes 3000 for that, and its own processes run after it */
#define FIRST_CPU_USEC 6000
#define FIRST_NS 100000000ULL /* time of its first look, however little it has run */
#define LEAST_UNEXPLAINED (-(int64_t)LOOK_CPU_USEC)
#define AGAIN_NS 300000000ULL /* ended processes take a moment to free their memory */

struct kernel_looked {
	struct kernel_looked *next, **prev;
	uint64_t id;
	bool idle; /* the list that it is in */
	struct kernel_look look;
	struct cgroup cgroup; /* parked (linux/cgroup.h); owned */
	uint64_t memory; /* limit for the next look */
	uint64_t tenant, taken; /* of the pool that is divided; 0 = it is being ended because of that */
	bool summed; /* counted with another one of its tenant */
	uint64_t cpu; /* last value of its CPU counter */
	uint64_t unseen; /* CPU time since the last look */
	unsigned quiet; /* checks since it last ran */
	uint64_t first_ns; /* until when the first look may wait for FIRST_CPU_USEC; 0 = over */
	uint64_t all, looked_ns; /* sum of all kinds at the last look, and its time; 0 = never */
	unsigned failed; /* a bit for each kind whose measuring failed, and was logged */
	uint64_t ended_ns; /* when the watch ended its processes */
	uint64_t ended_sum, risen; /* its memory then; its memory at the last look, if that was more */
	bool leaving; /* is in no list, and will be freed by the thread */
	struct kernel_usage usage; /* only ->bytes is used */
	struct kernel_figures said; /* reported to the sink */
	struct kernel_base base; /* for files.seen */
	struct kernel_files files;
	uint64_t unsure;
	struct show show;
};

struct kernel_looks {
	struct kernel_looker_opts o;
	struct kernel_files_host *files;
	pthread_t thread;
	pthread_mutex_t lock; /* protects all members below */
	pthread_cond_t wake; /* ->stop or ->first has changed */
	struct kernel_table table;
	uint64_t rounds;
	struct kernel_looked *first[2]; /* sandboxes that run, and idle ones: walking through the latter takes time */
	struct kernel_looked *busy;
	struct kernel_looked *cursor; /* the next to look at */
	bool both; /* it is followed by those of the other list */
	int total; /* file with the CPU time of all; -1: none */
	uint64_t cpu; /* last value of that */
	int64_t unexplained; /* the part of it that running sandboxes have not used */
	uint64_t idle_ns; /* when idle sandboxes were last checked */
	struct kernel_pools pools;
	uint64_t filters; /* bytes of filters, of all sandboxes */
	uint64_t pools_ns, pools_cost_ns; /* when they were last asked one by one, and how long it took */
	bool started, stop;
};

static const struct kernel_kind kinds[KERNEL_KINDS_COUNT] = {
	[KERNEL_SOCKETS] = { kernel_sockets_bytes, 0 },
	[KERNEL_LOCKS] = { kernel_locks_bytes, KERNEL_LOCKS_MOST },
	[KERNEL_LISTINGS] = { kernel_listings_bytes, 0 },
	[KERNEL_DESCRIPTORS] = { kernel_descriptors_bytes, 0 },
	[KERNEL_FILTERS] = { kernel_filters_bytes, KERNEL_FILTERS_MOST },
};

/* Opens the file with the CPU time of a group, or of all groups (@name ""). -1: it is not counted. */
static int cpu_open(const struct cgroup_host *h, unsigned mask, const char *name)
{
	const bool v2 = h->version == 2;
	const int base = v2 ? h->base[0] : mask & CGROUP_BIT(CGROUP_CPUACCT) ? h->base[CGROUP_CPUACCT] : -1;
	char path[96];

	snprintf(path, sizeof(path), "%s%s%s", name, name[0] ? "/" : "", v2 ? "cpu.stat" : "cpuacct.usage");
	return base < 0 ? -1 : openat(base, path, O_RDONLY | O_CLOEXEC);
}

/*
 * The CPU time used since the last call, in microseconds; updates *last. A recycled group starts at 0. -errno: unknown.
 */
static int cpu_since(const struct cgroup_host *h, int fd, uint64_t *last, uint64_t *ret)
{
	char text[1024];
	const ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
	const char *at = text;
	uint64_t now;

	if (n <= 0)
		return -ENOENT;
	text[n] = 0;
	if (h->version == 2) {
		at = strstr(text, "usage_usec ");
		if (!at)
			return -ENOENT;
		at += strlen("usage_usec ");
	}
	now = strtoull(at, NULL, 10) / (h->version == 2 ? 1 : 1000);
	*ret = now >= *last ? now - *last : now;
	*last = now;
	return 0;
}

static uint64_t charged(const struct kernel_look *l)
{
	const bool v2 = l->host->version == 2;
	unsigned long long n = 0;
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", l->cgroup->name, v2 ? "memory.current" : "memory.usage_in_bytes");
	return fd_get_u64(l->host->base[v2 ? 0 : CGROUP_MEMORY], path, &n) < 0 ? 0 : n;
}

/* Page cache that the group is charged for, and that the kernel can drop. */
static uint64_t droppable(const struct kernel_look *l)
{
	const bool v2 = l->host->version == 2;
	uint64_t active = 0, inactive = 0;
	char path[96], text[8192];

	snprintf(path, sizeof(path), "%s/memory.stat", l->cgroup->name);
	if (fd_get(l->host->base[v2 ? 0 : CGROUP_MEMORY], path, text, sizeof(text)) < 0)
		return 0;
	cgroup_parse_kv(text, v2 ? "active_file" : "total_active_file", &active);
	cgroup_parse_kv(text, v2 ? "inactive_file" : "total_inactive_file", &inactive);
	return active + inactive;
}

/* Whether one kind takes more than its share of the machine's memory: then *@which is that kind. */
static bool share_taken(const struct kernel_usage *u, unsigned *which)
{
	for (unsigned i = 0; i < KERNEL_KINDS_COUNT; i++)
		if (kinds[i].most && u->bytes[i] > kinds[i].most) {
			*which = i;
			return true;
		}
	return false;
}

/* A request to the watch, with the values that it was decided by. */
static struct kernel_act act_of(const struct kernel_looked *x, enum kernel_act_kind kind, const struct kernel_usage *u)
{
	struct kernel_act a = { .kind = kind, .memory = x->look.memory };

	memcpy(a.bytes, u->bytes, sizeof(a.bytes));
	return a;
}

static bool act(const struct kernel_looks *w, const struct kernel_looked *x, const struct kernel_act *a)
{
	return w->o.sink.act(w->o.sink.arg, x->id, a);
}

/* Has its processes ended: what ->by names is too much. */
static void end(const struct kernel_looks *w, struct kernel_looked *x, const struct kernel_act *a)
{
	if (!act(w, x, a))
		return;
	kernel_kind_log(x->cgroup.name, a);
	x->ended_ns = clock_mono_ns();
	x->files.hidden.not_before_ns = x->ended_ns;
}

/*
 * Files that a sandbox has read fill its memory up to the limit, and are worth less than what its sockets hold. So the
 * kernel drops @bytes of the @have it is charged, a part at a time.
 */
static void make_room(const struct kernel_looks *w, const struct kernel_looked *x, const struct kernel_usage *u,
		      uint64_t have, uint64_t bytes)
{
	struct kernel_act a = act_of(x, KERNEL_ACT_ROOM, u);

	if (droppable(&x->look) < bytes || bytes >= have)
		return;
	a.have = have;
	a.room = bytes < KERNEL_ROOM_MOST ? bytes : KERNEL_ROOM_MOST;
	act(w, x, &a);
}

/* Measures all kinds; returns the sum. */
static uint64_t ask(struct kernel_looked *x, struct kernel_usage *u, unsigned *most)
{
	uint64_t all = 0;

	*most = 0;
	for (unsigned i = 0; i < KERNEL_KINDS_COUNT; i++) {
		uint64_t bytes = 0;
		int r = kinds[i].bytes ? kinds[i].bytes(&x->look, &bytes) : 0;

		/* A sandbox that has ended has none. After other errors the last value stays. */
		if (r == 0 || r == -ESRCH)
			u->bytes[i] = r < 0 ? 0 : bytes;
		else if (!(x->failed & 1U << i)) {
			x->failed |= 1U << i;
			log_warn("sandbox %s: the size of its %s is unknown: errno %d", x->cgroup.name,
				 kernel_kind_name(1 + i), -r);
		}
		all += u->bytes[i];
		*most = u->bytes[i] > u->bytes[*most] ? i : *most;
	}
	return all;
}

/*
 * Whether its processes are still ending, so that they must not be ended again. Ended processes take a moment to free
 * their memory, and closing sockets count more than they hold. So only a sum that is above that of the last end at two
 * looks, and rises, is a reason to end them again.
 */
static bool dies(struct kernel_looked *x, uint64_t sum)
{
	const uint64_t before = x->risen;

	if (!x->ended_ns || x->looked_ns - x->ended_ns >= AGAIN_NS)
		return false;
	x->risen = sum > x->ended_sum + SMALL ? sum : 0;
	return !before || sum <= before;
}

/* Called without ->lock; @x stays while it is ->busy. True: @a, which ends it, is to be done. */
static bool look(struct kernel_looks *w, struct kernel_looked *x, struct kernel_usage *u, struct kernel_act *a)
{
	const uint64_t before = x->all, before_ns = x->looked_ns;
	unsigned most;
	uint64_t all = ask(x, u, &most), have, soon, ns;

	x->all = all;
	x->looked_ns = clock_mono_ns();
	if (all < SMALL)
		return false;
	have = charged(&x->look);
	if (dies(x, all + have))
		return false;
	if (all + have > x->look.memory + SMALL) {
		make_room(w, x, u, have, all + have - x->look.memory);
		have = charged(&x->look);
	}
	/* Until the next look as much may come as since the last one. */
	ns = x->looked_ns - before_ns;
	soon = before_ns && all > before ? all - before : 0;
	if (ns > KERNEL_WATCH_MS * 1000000ULL)
		soon = (uint64_t)((double)soon * KERNEL_WATCH_MS * 1000000 / (double)ns);
	soon += all + have;
	if (all + have <= x->look.memory + KERNEL_WATCH_OVER && soon <= x->look.memory + KERNEL_WATCH_SOON &&
	    !share_taken(u, &most))
		return false;
	x->ended_sum = all + have;
	x->risen = 0;
	*a = act_of(x, KERNEL_ACT_END, u);
	a->by = 1 + most;
	a->have = have;
	return true;
}

/* Whether it has run since the last look for long enough to fill memory. *ret: CPU time since the last check. */
static bool has_run(struct kernel_looked *x, uint64_t *ret)
{
	AUTO_CLOSE int fd = cpu_open(x->look.host, x->cgroup.mask, x->cgroup.name);

	*ret = 0;
	if (cpu_since(x->look.host, fd, &x->cpu, ret) < 0)
		return true;
	x->unseen += *ret;
	if (x->first_ns && x->unseen < FIRST_CPU_USEC && clock_mono_ns() < x->first_ns)
		return false;
	if (x->first_ns) {
		x->unseen = x->unseen > LOOK_CPU_USEC ? x->unseen : LOOK_CPU_USEC;
		x->first_ns = 0;
	}
	if (x->unseen < LOOK_CPU_USEC) {
		x->quiet++;
		/* Memory that it took before it became idle may not be measured yet. */
		return x->files.due_ns && x->files.due_ns <= clock_mono_ns();
	}
	x->quiet = 0;
	x->unseen = 0;
	return true;
}

/* Frees it, in the thread; it is in no list any more. */
static void drop(struct kernel_looked *x)
{
	fd_close(x->look.pidfd);
	fd_close(x->look.diag);
	show_done(&x->show);
	kernel_files_done(&x->files);
	free(x);
}

static void link_in(struct kernel_looks *w, struct kernel_looked *x, bool idle)
{
	x->idle = idle;
	x->next = w->first[idle];
	x->prev = &w->first[idle];
	if (x->next)
		x->next->prev = &x->next;
	w->first[idle] = x;
}

static void link_out(struct kernel_looked *x)
{
	*x->prev = x->next;
	if (x->next)
		x->next->prev = x->prev;
}

/* The next one in both lists. @x NULL: the first. */
static struct kernel_looked *after(const struct kernel_looks *w, const struct kernel_looked *x)
{
	struct kernel_looked *next = x ? x->next : w->first[false];

	return next || (x && x->idle) ? next : w->first[true];
}

/* Keeps @x until leave_busy(); ->lock is released until then. */
static void enter_busy(struct kernel_looks *w, struct kernel_looked *x)
{
	w->busy = x;
	x->look.memory = x->memory;
	pthread_mutex_unlock(&w->lock);
}

/* Reports changed figures to the sink. */
static void tell(const struct kernel_looks *w, struct kernel_looked *x, const struct kernel_usage *u)
{
	struct kernel_figures f = { 0 };

	if (!x->files.looked_ns)
		return;
	memcpy(f.bytes, u->bytes, sizeof(f.bytes));
	kernel_files_base(&x->look, &f.base);
	if (!memcmp(&f, &x->said, sizeof(f)))
		return;
	x->said = f;
	w->o.sink.figures(w->o.sink.arg, x->id, &f);
}

static bool leaves(struct kernel_looks *w, const struct kernel_looked *x)
{
	bool r;

	pthread_mutex_lock(&w->lock);
	r = x->leaving;
	pthread_mutex_unlock(&w->lock);
	return r;
}

/* Stores its usage @u; with @over, its processes are ended for that. False: @x is gone. */
static bool leave_busy(struct kernel_looks *w, struct kernel_looked *x, const struct kernel_usage *u,
		       const struct kernel_act *over)
{
	if (!leaves(w, x)) {
		tell(w, x, u); /* before anyone can see the kill that results */
		if (over)
			end(w, x, over);
	}
	pthread_mutex_lock(&w->lock);
	w->filters += u->bytes[KERNEL_FILTERS] - x->usage.bytes[KERNEL_FILTERS];
	x->usage = *u;
	w->busy = NULL;
	if (!x->leaving)
		return true;
	w->filters -= u->bytes[KERNEL_FILTERS];
	drop(x);
	return false;
}

/*
 * Looks at running sandboxes (@idle: at idle ones), and returns the CPU time they have used. Called with ->lock held;
 * released during each look.
 */
static uint64_t look_at_some(struct kernel_looks *w, bool idle)
{
	uint64_t used = 0, one;

	w->both = false;
	for (struct kernel_looked *x = w->first[idle]; x && !w->stop; x = w->cursor) {
		struct kernel_usage u = x->usage;
		struct kernel_act a;
		bool over;

		w->cursor = x->next;
		enter_busy(w, x);
		over = has_run(x, &one) && look(w, x, &u, &a);
		if (!x->first_ns)
			show_tick(&x->show, w->o.host, &x->cgroup, x->look.memory, x->cpu);
		used += one;
		if (leave_busy(w, x, &u, over ? &a : NULL) && (x->quiet > QUIET) != idle) {
			link_out(x);
			link_in(w, x, !idle);
		}
	}
	w->cursor = NULL;
	return used;
}

/* What one tenant has taken, @x and those after it. *@most: the sandbox with the most. */
static uint64_t tenant_taken(const struct kernel_looks *w, struct kernel_looked *x, struct kernel_looked **most)
{
	const uint64_t tenant = x->tenant;
	uint64_t sum = 0;

	for (*most = x; x; x = after(w, x))
		if (x->tenant == tenant) {
			x->summed = true;
			sum += x->taken;
			*most = x->taken > (*most)->taken ? x : *most;
		}
	return sum;
}

/* The sandbox with the most of the pool, of the tenant that has the most and is above its share. NULL: none. */
static struct kernel_looked *pool_taker(const struct kernel_looks *w, uint64_t share)
{
	struct kernel_looked *ret = NULL, *most;
	uint64_t largest = share, sum;

	for (struct kernel_looked *x = after(w, NULL); x; x = after(w, x))
		x->summed = false;
	for (struct kernel_looked *x = after(w, NULL); x; x = after(w, x)) {
		sum = x->summed ? 0 : tenant_taken(w, x, &most);
		if (sum > largest) {
			largest = sum;
			ret = most;
		}
	}
	return ret;
}

/*
 * Measures what all sandboxes have taken of a pool; then ends those with the most, until every tenant is within its
 * share.
 */
static void pool_divide(struct kernel_looks *w, enum kernel_pool_id id)
{
	const uint64_t share = w->pools.share[id];
	struct kernel_looked *x;

	for (x = after(w, NULL); x; x = after(w, x))
		x->taken = 0; /* the value is of another pool */
	w->both = true;
	for (x = after(w, NULL); x && !w->stop; x = w->cursor) {
		const struct kernel_usage u = x->usage;

		w->cursor = after(w, x);
		enter_busy(w, x);
		/* Ended processes take a moment to give it back. */
		x->taken = x->ended_ns && clock_mono_ns() - x->ended_ns < AGAIN_NS ?
				   0 :
				   kernel_pools_taken(id, &x->look, &u);
		leave_busy(w, x, &u, NULL);
	}
	while (!w->stop && (x = pool_taker(w, share))) {
		const struct kernel_usage u = x->usage;
		struct kernel_act a = act_of(x, KERNEL_ACT_END, &u);

		a.by = KERNEL_POOLS_FIRST + id;
		a.share = share;
		a.taken = x->taken;
		x->taken = 0;
		enter_busy(w, x);
		leave_busy(w, x, &u, &a);
	}
	w->cursor = NULL;
}

/* Takes a tenth of a processor at most, while the rest of a pool is below one tenant's share. */
static void look_at_pools(struct kernel_looks *w)
{
	const uint64_t began = clock_mono_ns();
	unsigned scarce;
	uint64_t filters, all;

	if (began - w->pools_ns < 9 * w->pools_cost_ns)
		return;
	all = w->filters;
	pthread_mutex_unlock(&w->lock);
	scarce = kernel_pools_scarce(&w->pools);
	filters = w->pools.share[KERNEL_POOL_FILTERS];
	/* The sum over sandboxes is an estimate, which the machine's figure bounds. */
	if (filters && all > filters / 2 && kernel_files_code(w->files) > filters)
		scarce |= 1U << KERNEL_POOL_FILTERS;
	pthread_mutex_lock(&w->lock);
	for (unsigned i = 0; i < KERNEL_POOLS_COUNT; i++)
		if (scarce & 1U << i)
			pool_divide(w, i);
	w->pools_ns = clock_mono_ns();
	w->pools_cost_ns = scarce ? w->pools_ns - began : 0;
}

/*
 * Running sandboxes are looked at each time; idle ones only when all together have used more CPU time than the running
 * ones, and the machine has less memory: then one of them may have started to fill it. CPU time alone means little:
 * other groups, sandboxes in the making, and short wake-ups use some. The total is read before the running ones: what
 * these use in between is in one sum now and in the other the next time, so the difference is kept with its sign. It
 * must not get far below 0: a recycled group brings the time of the last one.
 */
static void look_at_all(struct kernel_looks *w)
{
	uint64_t all = 0, used;
	const int r = cpu_since(w->o.host, w->total, &w->cpu, &all);
	bool grown;

	used = look_at_some(w, false);
	w->unexplained += (int64_t)all - (int64_t)used;
	if (w->unexplained < LEAST_UNEXPLAINED)
		w->unexplained = LEAST_UNEXPLAINED;
	if (all || r < 0)
		look_at_pools(w);
	/* The load average of idle sandboxes falls, and must be shown. */
	if (clock_mono_ns() - w->idle_ns >= SHOW_LOAD_S * 1000000000ULL)
		w->unexplained = LOOK_CPU_USEC;
	if (r == 0 && w->unexplained < (int64_t)LOOK_CPU_USEC)
		return;
	pthread_mutex_unlock(&w->lock);
	grown = r < 0 || clock_mono_ns() - w->idle_ns >= IDLE_NS || kernel_files_grown(w->files);
	if (grown)
		kernel_files_mark(w->files);
	pthread_mutex_lock(&w->lock);
	if (!grown)
		return;
	w->unexplained = 0;
	look_at_some(w, true);
	w->idle_ns = clock_mono_ns();
}

static void until(uint64_t ns, struct timespec *ret)
{
	*ret = (struct timespec){ .tv_sec = (time_t)(ns / 1000000000ULL), .tv_nsec = (long)(ns % 1000000000ULL) };
}

static void *run(void *arg)
{
	struct kernel_looks *w = arg;

	sys_test_spare();
	kernel_quick(true);
	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		const uint64_t began = clock_mono_ns();
		uint64_t next, rest;
		struct timespec t;

		if (!after(w, NULL)) {
			pthread_cond_wait(&w->wake, &w->lock);
			continue;
		}
		look_at_all(w);
		w->rounds++;
		/* Half of a processor at most, however much there is to do. */
		rest = clock_mono_ns() - began;
		next = began + (2 * rest > KERNEL_WATCH_MS * 1000000ULL ? 2 * rest : KERNEL_WATCH_MS * 1000000ULL);
		until(next, &t);
		while (!w->stop && pthread_cond_timedwait(&w->wake, &w->lock, &t) == 0)
			;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int kernel_looks_new(const struct kernel_looker_opts *o, struct kernel_looks **ret, struct err *e)
{
	struct kernel_looks *w = calloc(1, sizeof(*w));
	pthread_condattr_t a;

	if (!w || !(w->files = kernel_files_host_new(o->host))) {
		free(w);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to watch sandboxes");
	}
	w->o = *o;
	w->total = cpu_open(o->host, ~0U, "");
	w->pools.percent = o->percent;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &a);
	pthread_condattr_destroy(&a);
	*ret = w;
	return 0;
}

void kernel_looks_free(struct kernel_looks *w)
{
	struct kernel_looked *next;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->wake);
	pthread_mutex_unlock(&w->lock);
	if (w->started)
		pthread_join(w->thread, NULL);
	for (struct kernel_looked *x = after(w, NULL); x; x = next) {
		next = after(w, x);
		drop(x);
	}
	fd_close(w->total);
	kernel_table_done(&w->table);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	kernel_files_host_free(w->files);
	free(w);
}

/* CPU time that its agent uses to restore processes is not the sandbox's. */
static void wait_for_first(struct kernel_looked *x)
{
	AUTO_CLOSE int fd = cpu_open(x->look.host, x->cgroup.mask, x->cgroup.name);
	uint64_t before;

	x->first_ns = cpu_since(x->look.host, fd, &x->cpu, &before) < 0 ? 0 : clock_mono_ns() + FIRST_NS;
}

static struct kernel_looked *looked_new(struct kernel_looks *w, const struct kernel_subject *s)
{
	struct kernel_looked *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	cgroup_init(&x->cgroup);
	memcpy(x->cgroup.name, s->group, sizeof(x->cgroup.name) - 1);
	x->cgroup.mask = (unsigned)s->mask;
	x->cgroup.parked = true;
	x->id = s->id;
	x->tenant = s->tenant;
	x->memory = s->memory;
	x->ended_ns = s->ended_ns;
	x->ended_sum = s->ended_sum;
	x->files.hidden.not_before_ns = s->ended_ns;
	x->look = (struct kernel_look){ .pid = (pid_t)s->pid,
					.pidfd = -1,
					.diag = -1,
					.host = w->o.host,
					.cgroup = &x->cgroup,
					.memory = s->memory,
					.rootless = w->o.rootless,
					.net = w->o.net,
					.files_host = w->files,
					.files = &x->files,
					.sockets = (uint32_t)s->sockets,
					.unsure = &x->unsure };
	show_init(&x->show, w->o.host, &x->cgroup);
	if (s->flags & KERNEL_SUBJECT_SEEN) {
		memcpy(x->usage.bytes, s->bytes, sizeof(x->usage.bytes));
		x->base = s->base;
		x->files.seen = &x->base;
	}
	if (s->flags & KERNEL_SUBJECT_RESTORES)
		wait_for_first(x);
	return x;
}

/* 0 or -errno. Called with ->lock held. */
static int looked_add(struct kernel_looks *w, struct kernel_looked *x)
{
	if (!w->started)
		w->started = pthread_create(&w->thread, NULL, run, w) == 0;
	if (!w->started || kernel_table_put(&w->table, x->id, x) < 0)
		return -ENOMEM;
	if (!after(w, NULL))
		pthread_cond_signal(&w->wake);
	w->filters += x->usage.bytes[KERNEL_FILTERS];
	link_in(w, x, false);
	return 0;
}

static int keep(struct kernel_looked *x, const int fd[KERNEL_FDS])
{
	int *const to[KERNEL_FDS] = { &x->look.pidfd, &x->look.diag, &x->show.meminfo, &x->show.loadavg };

	for (unsigned i = 0; i < KERNEL_FDS; i++)
		if (fd[i] >= 0 && (*to[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 0)) < 0)
			return -errno;
	return 0;
}

int kernel_looks_add(struct kernel_looks *w, const struct kernel_subject *s, const int fd[KERNEL_FDS])
{
	struct kernel_looked *x;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	if (!kernel_table_find(&w->table, s->id)) {
		x = looked_new(w, s);
		r = x ? keep(x, fd) : -ENOMEM;
		if (r == 0)
			r = looked_add(w, x);
		if (r < 0 && x)
			drop(x);
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

void kernel_looks_limit(struct kernel_looks *w, uint64_t id, uint64_t memory)
{
	struct kernel_looked *x;

	pthread_mutex_lock(&w->lock);
	x = kernel_table_find(&w->table, id);
	if (x)
		x->memory = memory;
	pthread_mutex_unlock(&w->lock);
}

void kernel_looks_remove(struct kernel_looks *w, uint64_t id)
{
	struct kernel_looked *x;

	pthread_mutex_lock(&w->lock);
	x = kernel_table_find(&w->table, id);
	if (x) {
		kernel_files_stop(&x->files); /* a present walk would delay others */
		kernel_table_remove(&w->table, id);
		if (w->cursor == x)
			w->cursor = w->both ? after(w, x) : x->next;
		link_out(x);
		x->leaving = w->busy == x; /* then the thread frees it */
		if (!x->leaving) {
			w->filters -= x->usage.bytes[KERNEL_FILTERS];
			drop(x);
		}
	}
	pthread_mutex_unlock(&w->lock);
}

uint64_t kernel_looks_rounds(struct kernel_looks *w)
{
	uint64_t n;

	pthread_mutex_lock(&w->lock);
	n = after(w, NULL) ? w->rounds : UINT64_MAX;
	pthread_mutex_unlock(&w->lock);
	return n;
}

/* ---- as a looker ------------------------------------------------------------------------------------------------ */

static int threads_new(const struct kernel_looker_opts *o, void **ret, struct err *e)
{
	struct kernel_looks *w = NULL;
	int r = kernel_looks_new(o, &w, e);

	*ret = w;
	return r;
}

static int threads_add(void *l, const struct kernel_subject *s, const int fd[KERNEL_FDS])
{
	return kernel_looks_add(l, s, fd);
}

static void threads_remove(void *l, uint64_t id)
{
	kernel_looks_remove(l, id);
}

static void threads_limit(void *l, uint64_t id, uint64_t memory)
{
	kernel_looks_limit(l, id, memory);
}

static bool threads_owner(void *l, pid_t first, uint64_t inode, struct socket_owner *ret)
{
	(void)l;
	return socket_owner_find(first, inode, ret);
}

static void threads_free(void *l)
{
	kernel_looks_free(l);
}

const struct kernel_looker kernel_looker_threads = { .new = threads_new,
						     .add = threads_add,
						     .remove = threads_remove,
						     .limit = threads_limit,
						     .owner = threads_owner,
						     .free = threads_free };
