#include "engine/kernel_memory/watch.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/kernel_memory/files.h"
#include "engine/kernel_memory/pools.h"
#include "engine/kernel_memory/sockets.h"
#include "engine/rootfs/shown.h"
#include "linux/cgroup_parse.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_CPU_USEC 2000 /* a core fills some 2 MiB in a millisecond */
#define QUIET 100 /* times: a second in which it has not run so long */
#define IDLE_NS 500000000ULL /* that others are asked whether they run, however little the machine has lost meanwhile */
#define SMALL (4U << 20) /* less than that is never too much: nothing else is asked then */
#define FIRST_CPU_USEC 6000 /* of one that is being restored: a small one takes 3000 for that, and nothing of its own runs before its end */
#define FIRST_NS 100000000ULL /* it is looked at for the first time, however little it has run */
#define LEAST_UNEXPLAINED (-(int64_t)LOOK_CPU_USEC)
#define AGAIN_NS 300000000ULL /* what was ended takes a moment to give its memory back */
#define ROOM_MOST (16U << 20) /* bytes that are dropped at a time */
#define ONCE_MORE_NS 2000000000ULL /* ended, and again so soon: then ending execs does not help */

struct kernel_watched {
	struct kernel_watched *next, **prev;
	bool idle; /* which list it is in */
	struct kernel_look look;
	struct cgroup cgroup; /* parked, our own */
	uint64_t tenant, taken; /* of the pool that is asked about; 0 = it is being ended for that */
	bool summed; /* with another one of its tenant */
	uint64_t cpu; /* as it was told last */
	uint64_t unseen; /* CPU time since it was looked at */
	unsigned quiet; /* times it was asked since it has run */
	uint64_t first_ns; /* until when its first look may wait for FIRST_CPU_USEC; 0 = that is over */
	uint64_t all, looked_ns; /* bytes of all kinds at the last look, and when that was; 0 = never */
	unsigned failed; /* a bit for each kind that could not be asked, and that was logged for */
	struct socket_bpf_entry entry;
	uint32_t bound; /* sockets, by BPF; 0 = not */
	uint64_t ended_ns; /* when we ended what ran in it */
	uint64_t ended_sum, risen; /* what it had then; what it had at the last look, when that was more */
	bool leaving; /* is in no list, and freed by the thread */
	struct kernel_usage usage;
	struct kernel_files files;
	uint64_t unsure;
	struct shown shown;
};

struct kernel_watch {
	struct kernel_watch_opts o;
	struct kernel_files_host *files;
	struct socket_bpf *bpf; /* NULL: not here */
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t idle, wake; /* ->busy has changed; ->stop or ->first has */
	struct kernel_watched *first[2]; /* those that run, and the others: to go through them alone would take its time */
	struct kernel_watched *busy;
	bool acting; /* something is done to ->busy, by the name of its group: it must not go */
	struct kernel_watched *cursor; /* the next to be looked at */
	bool both; /* after it come those of the other list, too */
	int total; /* the file that has the CPU time of all; -1: none */
	uint64_t cpu; /* of all, as it was told last */
	int64_t unexplained; /* of that, what those that run have not used */
	uint64_t idle_ns; /* when those that do not run were asked last */
	struct kernel_pools pools;
	uint64_t filters; /* bytes, of all sandboxes */
	uint64_t pools_ns, pools_cost_ns; /* when and how long they were asked one by one */
	bool started, stop;
};

static const struct kernel_kind kinds[KERNEL_KINDS_COUNT] = {
	[KERNEL_SOCKETS] = { kernel_sockets_bytes, 0 },
	[KERNEL_LOCKS] = { kernel_locks_bytes, KERNEL_LOCKS_MOST },
	[KERNEL_LISTINGS] = { kernel_listings_bytes, 0 },
	[KERNEL_DESCRIPTORS] = { kernel_descriptors_bytes, 0 },
	[KERNEL_FILTERS] = { kernel_filters_bytes, KERNEL_FILTERS_MOST },
};

/* The file with the CPU time of a group, or of all of them (@name ""). -1: it is not counted. */
static int cpu_open(const struct cgroup_host *h, unsigned mask, const char *name)
{
	const bool v2 = h->version == 2;
	const int base = v2 ? h->base[0] : mask & CGROUP_BIT(CGROUP_CPUACCT) ? h->base[CGROUP_CPUACCT] : -1;
	char path[96];

	snprintf(path, sizeof(path), "%s%s%s", name, name[0] ? "/" : "", v2 ? "cpu.stat" : "cpuacct.usage");
	return base < 0 ? -1 : openat(base, path, O_RDONLY | O_CLOEXEC);
}

/*
 * How much CPU time it has used since the last time, in microseconds; *last is then now. A group that is used again starts at 0.
 * -errno: not known.
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

/* Files of the page cache that the group is charged for, and that the kernel can drop. */
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

/* Version 1: in version 2 we never change it. */
static int put_limit(const struct kernel_look *l)
{
	char path[96], text[24];

	snprintf(path, sizeof(path), "%s/memory.limit_in_bytes", l->cgroup->name);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)l->memory);
	return fd_put(l->host->base[CGROUP_MEMORY], path, text);
}

/* What fills memory has all processors busy: we must run in between. Without the right to it, as often as others. */
static void be_quick(bool quick)
{
	const struct sched_param p = { .sched_priority = quick };

	/* musl has no sched_setscheduler. */
	if (syscall(SYS_sched_setscheduler, 0, (quick ? SCHED_FIFO : SCHED_OTHER) | SCHED_RESET_ON_FORK, &p) < 0)
		setpriority(PRIO_PROCESS, 0, -19);
}

/*
 * What a sandbox has read fills its memory up to the limit, and is worth less than what its sockets hold. So the kernel drops
 * @bytes of the @have it is charged. In version 1 it does so when the limit is lowered, which is then raised again. This can take
 * a while: not before all others, and a part at a time.
 */
static void make_room(const struct kernel_look *l, uint64_t have, uint64_t bytes)
{
	const bool v2 = l->host->version == 2;
	const int base = l->host->base[v2 ? 0 : CGROUP_MEMORY];
	char path[96], text[24];

	if (droppable(l) < bytes || bytes >= have)
		return;
	bytes = bytes < ROOM_MOST ? bytes : ROOM_MOST;
	snprintf(path, sizeof(path), "%s/%s", l->cgroup->name, v2 ? "memory.reclaim" : "memory.limit_in_bytes");
	snprintf(text, sizeof(text), "%llu", (unsigned long long)(v2 ? bytes : have - bytes));
	be_quick(false);
	fd_put(base, path, text);
	if (!v2 && put_limit(l) < 0)
		log_error("sandbox %s: its memory limit remains at %llu bytes", l->cgroup->name,
			  (unsigned long long)(have - bytes));
	be_quick(true);
}

/*
 * Ends the execs; false when there are none. The groups are listed before any is ended: the next exec, which may start as soon as
 * one has ended, is none of them. An empty one is at hand for it, and on version 1 it could not fork there.
 */
static bool end_groups(const struct kernel_watch *w, struct kernel_watched *x)
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

/* Ends what runs: the execs of a sandbox that goes on without them, else all. */
static void end_execs(const struct kernel_watch *w, struct kernel_watched *x)
{
	const uint64_t now = clock_mono_ns();
	const bool again = x->ended_ns && now - x->ended_ns < ONCE_MORE_NS;

	x->ended_ns = now;
	x->files.hidden.not_before_ns = now;
	if (w->o.persist && !again && end_groups(w, x))
		return;
	cgroup_kill_now(w->o.host, x->cgroup.name);
	sys_pidfd_send_signal(x->look.pidfd, SIGKILL);
}

/* Whether one kind takes more than its share of the machine's: then *@which is it. */
static bool share_taken(const struct kernel_usage *u, unsigned *which)
{
	for (unsigned i = 0; i < KERNEL_KINDS_COUNT; i++)
		if (kinds[i].most && u->bytes[i] > kinds[i].most) {
			*which = i;
			return true;
		}
	return false;
}

/* Something is to be done to ->busy: false when it leaves. */
static bool act(struct kernel_watch *w, bool begin)
{
	bool stays;

	pthread_mutex_lock(&w->lock);
	stays = !w->busy->leaving;
	w->acting = begin && stays;
	pthread_cond_broadcast(&w->idle);
	pthread_mutex_unlock(&w->lock);
	return stays;
}

/* The kinds' bytes; their sum. */
static uint64_t ask(struct kernel_watched *x, struct kernel_usage *u, unsigned *most)
{
	uint64_t all = 0;

	*most = 0;
	for (unsigned i = 0; i < KERNEL_KINDS_COUNT; i++) {
		uint64_t bytes = 0;
		int r = kinds[i].bytes ? kinds[i].bytes(&x->look, &bytes) : 0;

		/* One that has ended has nothing. Else it has what it had. */
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
 * What was ended takes a moment to give its memory back, and for some sockets that are being closed more is counted than they hold.
 * So it must have more than when it was ended, at two looks, and more at the second.
 */
static bool dies(struct kernel_watched *x, uint64_t sum)
{
	const uint64_t before = x->risen;

	if (!x->ended_ns || x->looked_ns - x->ended_ns >= AGAIN_NS)
		return false;
	x->risen = sum > x->ended_sum + SMALL ? sum : 0;
	return !before || sum <= before;
}

/* ->lock is not held; @x stays while it is ->busy. */
static bool look(struct kernel_watch *w, struct kernel_watched *x, struct kernel_usage *u)
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
	if (all + have > x->look.memory + SMALL && act(w, true)) {
		make_room(&x->look, have, all + have - x->look.memory);
		act(w, false);
		have = charged(&x->look);
	}
	/* As much as came since the last look may come until the next. */
	ns = x->looked_ns - before_ns;
	soon = before_ns && all > before ? all - before : 0;
	if (ns > KERNEL_WATCH_MS * 1000000ULL)
		soon = (uint64_t)((double)soon * KERNEL_WATCH_MS * 1000000 / (double)ns);
	soon += all + have;
	if (all + have <= x->look.memory + KERNEL_WATCH_OVER && soon <= x->look.memory + KERNEL_WATCH_SOON && !share_taken(u, &most))
		return false;
	x->ended_sum = all + have;
	x->risen = 0;
	u->kills++;
	u->killed_by = 1 + most;
	log_info("sandbox %s: %llu KiB of %s and %llu KiB of memory exceed its limit of %llu KiB: its processes are "
		 "ended",
		 x->cgroup.name, (unsigned long long)u->bytes[most] / KIB, kernel_kind_name(1 + most),
		 (unsigned long long)have / KIB, (unsigned long long)x->look.memory / KIB);
	return true;
}

/* Whether it has run since it was looked at last, long enough to fill something. *ret: what it used since the last time it was asked. */
static bool has_run(struct kernel_watched *x, uint64_t *ret)
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
		/* What it took before it went to sleep may not be known yet. */
		return x->files.due_ns && x->files.due_ns <= clock_mono_ns();
	}
	x->quiet = 0;
	x->unseen = 0;
	return true;
}

/* The thread's: nobody else knows it any more. */
static void drop(struct kernel_watched *x)
{
	fd_close(x->look.pidfd);
	kernel_files_done(&x->files);
	free(x);
}

static void link_in(struct kernel_watch *w, struct kernel_watched *x, bool idle)
{
	x->idle = idle;
	x->next = w->first[idle];
	x->prev = &w->first[idle];
	if (x->next)
		x->next->prev = &x->next;
	w->first[idle] = x;
}

static void link_out(struct kernel_watched *x)
{
	*x->prev = x->next;
	if (x->next)
		x->next->prev = x->prev;
}

/* All, in both lists. @x NULL: the first. */
static struct kernel_watched *after(const struct kernel_watch *w, const struct kernel_watched *x)
{
	struct kernel_watched *next = x ? x->next : w->first[false];

	return next || (x && x->idle) ? next : w->first[true];
}

/* @x stays until leave_busy(), and ->lock is not held until then. */
static void enter_busy(struct kernel_watch *w, struct kernel_watched *x)
{
	w->busy = x;
	pthread_mutex_unlock(&w->lock);
}

/* Its usage is now @u; and when it is @over, what runs in it is ended. False: @x is gone. */
static bool leave_busy(struct kernel_watch *w, struct kernel_watched *x, const struct kernel_usage *u, bool over)
{
	pthread_mutex_lock(&w->lock);
	w->filters += u->bytes[KERNEL_FILTERS] - x->usage.bytes[KERNEL_FILTERS];
	x->usage = *u; /* before anybody sees what dies of it */
	w->acting = over && !x->leaving;
	if (w->acting) {
		pthread_mutex_unlock(&w->lock);
		end_execs(w, x);
		pthread_mutex_lock(&w->lock);
	}
	w->busy = NULL;
	w->acting = false;
	pthread_cond_broadcast(&w->idle);
	if (!x->leaving)
		return true;
	w->filters -= u->bytes[KERNEL_FILTERS];
	drop(x);
	return false;
}

/* Looks at those that run (@idle: at the others), and returns what they have used. ->lock is held, and given up while one is looked at. */
static uint64_t look_at_some(struct kernel_watch *w, bool idle)
{
	uint64_t used = 0, one;

	w->both = false;
	for (struct kernel_watched *x = w->first[idle]; x && !w->stop; x = w->cursor) {
		struct kernel_usage u = x->usage;
		bool over;

		w->cursor = x->next;
		enter_busy(w, x);
		over = has_run(x, &one) && look(w, x, &u);
		/* Only in between: whoever removes it then closes its writable layer. */
		if (!x->first_ns && shown_is_due(&x->shown, x->cpu) && act(w, true)) {
			shown_tick(&x->shown, x->look.host, &x->cgroup, x->look.memory, x->cpu);
			act(w, false);
		}
		used += one;
		if (leave_busy(w, x, &u, over) && (x->quiet > QUIET) != idle) {
			link_out(x);
			link_in(w, x, !idle);
		}
	}
	w->cursor = NULL;
	return used;
}

/* ---- pools of the host ------------------------------------------------------------------------------------------ */

/* What one tenant has taken, @x and those behind it. *@most: the one that has the most. */
static uint64_t tenant_taken(const struct kernel_watch *w, struct kernel_watched *x, struct kernel_watched **most)
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

/* Of the tenant that has taken the most, and more than its share: the sandbox that has the most of that. NULL: there is none. */
static struct kernel_watched *pool_taker(const struct kernel_watch *w, uint64_t share)
{
	struct kernel_watched *ret = NULL, *most;
	uint64_t largest = share, sum;

	for (struct kernel_watched *x = after(w, NULL); x; x = after(w, x))
		x->summed = false;
	for (struct kernel_watched *x = after(w, NULL); x; x = after(w, x)) {
		sum = x->summed ? 0 : tenant_taken(w, x, &most);
		if (sum > largest) {
			largest = sum;
			ret = most;
		}
	}
	return ret;
}

/* Asks all sandboxes what they have taken of a pool; then ends those that have the most, until every tenant's are within its share. */
static void pool_divide(struct kernel_watch *w, enum kernel_pool_id id)
{
	const uint64_t share = w->pools.share[id];
	struct kernel_watched *x;

	for (x = after(w, NULL); x; x = after(w, x))
		x->taken = 0; /* of another pool */
	w->both = true;
	for (x = after(w, NULL); x && !w->stop; x = w->cursor) {
		const struct kernel_usage u = x->usage;

		w->cursor = after(w, x);
		enter_busy(w, x);
		/* What was ended takes a moment to give it back. */
		x->taken = x->ended_ns && clock_mono_ns() - x->ended_ns < AGAIN_NS ? 0 : kernel_pools_taken(id, &x->look, &u);
		leave_busy(w, x, &u, false);
	}
	while (!w->stop && (x = pool_taker(w, share))) {
		struct kernel_usage u = x->usage;

		u.kills++;
		u.killed_by = KERNEL_POOLS_FIRST + id;
		log_info("sandbox %s: its tenant's sandboxes use more than %llu of %s, of which it uses %llu: its "
			 "processes are ended",
			 x->cgroup.name, (unsigned long long)share, kernel_kind_name(u.killed_by),
			 (unsigned long long)x->taken);
		x->taken = 0;
		enter_busy(w, x);
		leave_busy(w, x, &u, true);
	}
	w->cursor = NULL;
}

/* A tenth of a processor at most, while the host has less of a pool left than one tenant may take. */
static void look_at_pools(struct kernel_watch *w)
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
	/* What sandboxes have of it is an estimate, which the machine's figure bounds. */
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
 * Those that have run of late are asked each time. The others only when all together have used more than these, and the machine has
 * less memory: then one of them may have begun to fill it. The CPU time alone says little: there are sandboxes that are not ours, that are
 * being made, and that wake up now and then. All are asked before those that run: what these use in between is in one sum now and in the other the next time,
 * so the difference is kept with its sign. It must not get far below 0: a group that is used again brings time of the last one.
 */
static void look_at_all(struct kernel_watch *w)
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
	/* The load of those that do not run falls. */
	if (clock_mono_ns() - w->idle_ns >= SHOWN_LOAD_S * 1000000000ULL)
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
	struct kernel_watch *w = arg;

	sys_test_spare();
	be_quick(true);
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
		/* Half of a processor at most, whatever there is to look at. */
		rest = clock_mono_ns() - began;
		next = began + (2 * rest > KERNEL_WATCH_MS * 1000000ULL ? 2 * rest : KERNEL_WATCH_MS * 1000000ULL);
		until(next, &t);
		while (!w->stop && pthread_cond_timedwait(&w->wake, &w->lock, &t) == 0)
			;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

struct kernel_watch *kernel_watch_new(const struct kernel_watch_opts *o)
{
	struct kernel_watch *w = calloc(1, sizeof(*w));
	struct err e = { 0 };
	pthread_condattr_t a;

	if (!w)
		return NULL;
	w->o = *o;
	w->files = kernel_files_host_new(o->host);
	if (!w->files) {
		free(w);
		return NULL;
	}
	w->total = cpu_open(o->host, ~0U, "");
	w->pools.percent = o->percent ? o->percent : KERNEL_POOLS_PERCENT;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &a);
	pthread_cond_init(&w->idle, NULL);
	pthread_condattr_destroy(&a);
	/* Attaching takes milliseconds: not for a single sandbox. */
	if (o->persist && !o->rootless && socket_bpf_new(o->host, &w->bpf, &e) < 0)
		log_info("%s: the number of sockets is not limited; their memory is still watched", e.msg);
	return w;
}

uint32_t kernel_watch_bound(const struct kernel_watched *x)
{
	return x ? x->bound : 0;
}

void kernel_watch_limit(struct kernel_watch *w, struct kernel_watched *x, uint64_t memory)
{
	pthread_mutex_lock(&w->lock);
	while (w->busy == x)
		pthread_cond_wait(&w->idle, &w->lock);
	x->look.memory = memory;
	pthread_mutex_unlock(&w->lock);
}

unsigned kernel_watch_share(const struct kernel_watch *w)
{
	return w->o.persist ? w->pools.percent : 0;
}

int kernel_watch_mend(const struct kernel_watched *x)
{
	return x && x->look.host->version != 2 ? put_limit(&x->look) : 0;
}

static void bound(struct kernel_watch *w, struct kernel_watched *x)
{
	const uint32_t most = w->o.sockets ? w->o.sockets : (uint32_t)kernel_sockets_most(x->look.memory);
	int r = w->bpf ? kernel_sockets_bound(&x->look, w->bpf, most, &x->entry) : -ENODEV;

	if (r == 0)
		x->look.sockets = x->bound = most;
	else if (w->bpf && r != -ESRCH)
		log_warn("sandbox %s: its sockets are not limited by BPF: errno %d; they are still watched",
			 x->cgroup.name, -r);
}

void kernel_watch_free(struct kernel_watch *w)
{
	struct kernel_watched *next;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->wake);
	pthread_mutex_unlock(&w->lock);
	if (w->started)
		pthread_join(w->thread, NULL);
	for (struct kernel_watched *x = after(w, NULL); x; x = next) {
		next = after(w, x);
		kernel_files_done(&x->files);
		shown_done(&x->shown);
		free(x);
	}
	fd_close(w->total);
	socket_bpf_free(w->bpf);
	pthread_cond_destroy(&w->wake);
	pthread_cond_destroy(&w->idle);
	pthread_mutex_destroy(&w->lock);
	kernel_files_host_free(w->files);
	free(w);
}

struct kernel_watched *kernel_watch_add(struct kernel_watch *w, pid_t pid, int pidfd, const struct cgroup *c, uint64_t memory, uint64_t tenant, int writable)
{
	struct kernel_watched *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	cgroup_init(&x->cgroup);
	memcpy(x->cgroup.name, c->name, sizeof(x->cgroup.name));
	x->cgroup.mask = c->mask;
	x->cgroup.parked = true;
	x->tenant = tenant;
	x->look = (struct kernel_look){ .pid = pid, .pidfd = pidfd, .host = w->o.host, .cgroup = &x->cgroup, .memory = memory, .rootless = w->o.rootless, .net = w->o.net,
				       .files_host = w->files, .files = &x->files, .unsure = &x->unsure };
	pthread_mutex_lock(&w->lock);
	if (!w->started)
		w->started = pthread_create(&w->thread, NULL, run, w) == 0;
	if (!w->started) {
		pthread_mutex_unlock(&w->lock);
		free(x);
		return NULL;
	}
	bound(w, x);
	shown_init(&x->shown, w->o.host, c, writable);
	if (!after(w, NULL))
		pthread_cond_signal(&w->wake);
	link_in(w, x, false);
	pthread_mutex_unlock(&w->lock);
	return x;
}

void kernel_watch_restores(struct kernel_watch *w, struct kernel_watched *x)
{
	uint64_t before;

	pthread_mutex_lock(&w->lock);
	/* A group that is used again has time of the last one, and its agent was started before anybody asked for it. */
	if (w->busy != x && !x->looked_ns) {
		AUTO_CLOSE int fd = cpu_open(x->look.host, x->cgroup.mask, x->cgroup.name);

		x->first_ns = cpu_since(x->look.host, fd, &x->cpu, &before) < 0 ? 0 : clock_mono_ns() + FIRST_NS;
	}
	pthread_mutex_unlock(&w->lock);
}

void kernel_watch_remove(struct kernel_watch *w, struct kernel_watched *x, int *pidfd)
{
	int other = -1;
	bool leaving;

	if (!x)
		return;
	if (x->bound)
		socket_bpf_leave(w->bpf, &x->entry);
	kernel_files_stop(&x->files); /* a walk that is under way keeps others waiting */
	pthread_mutex_lock(&w->lock);
	/* Without a descriptor we have to wait. */
	while (w->busy == x && (w->acting || (other < 0 && (other = fcntl(*pidfd, F_DUPFD_CLOEXEC, 0)) < 0)))
		pthread_cond_wait(&w->idle, &w->lock);
	if (w->cursor == x)
		w->cursor = w->both ? after(w, x) : x->next;
	shown_done(&x->shown);
	link_out(x);
	leaving = x->leaving = w->busy == x;
	if (!leaving)
		w->filters -= x->usage.bytes[KERNEL_FILTERS];
	pthread_mutex_unlock(&w->lock);
	if (leaving) /* the thread of the watch frees it, perhaps already */
		*pidfd = other;
	else {
		fd_close(other);
		kernel_files_done(&x->files);
		free(x);
	}
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
