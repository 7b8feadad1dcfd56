/*
 * Whether throughput grows with the cores: 1, 2, 4, 8, 16 and 32 callers, each in a loop, of the engine and over HTTP,
 * in turn with bwrap and crun. A caller is a thread. In the engine, creates and destroys of all callers take turns, as
 * they do in the warden's one serving thread; commands do not. A cell's time ends when everything behind it is done,
 * too: the pool full again, and what ended cleaned up. Beside each rate is the CPU time of the whole machine for one,
 * the kernel's own threads included. Then what is serial: the CPU time of each thread for one lifecycle, of which the
 * largest share must stay small; the same again with samples of what threads wait for.
 */
#include "daemon.h"
#include "scale.h"
#include "base/base.h"
#include "base/clock.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PART "scale"
#define POOL 64
#define CALLERS_MAX 32
#define SHARE_MOST 0.1

static const unsigned counts[] = { 1, 2, 4, 8, 16, 32 };

enum load { LIVES, EXECS, HTTP_LIVES, HTTP_EXECS, HTTP_FORKS, BWRAP, CRUN, WORKS };
static const char *const names[WORKS] = {
	"engine lifecycles", "engine execs", "http lifecycles", "http execs", "http forks", "bwrap", "crun run",
};

struct cell {
	double rate, p50_us, p99_us, machine_us; /* 0: not measured */
	double own_us, count; /* of run_cell: CPU time of our processes and their children for one */
};

struct scale {
	struct bench *b;
	struct peers peers;
	struct serve serve;
	struct engine *engine;
	pthread_mutex_t turn; /* the engine's serving thread */
	uint64_t turn_ns, turn_cpu_ns; /* how long it was taken, and for how much of that its owner ran */
	struct cell cell[WORKS][ARRAY_LEN(counts)];
};

struct caller {
	struct scale *s;
	enum load work;
	unsigned index;
	uint64_t until;
	pthread_t thread;
	struct samples times;
	struct client client;
	struct box box;
	char id[API_ID];
	int r;
	struct err e;
};

/* ---- one operation ---- */

static uint64_t thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static int take_turn(struct scale *s, int (*fn)(struct engine *g, struct box *b, struct err *e), struct box *b,
		     struct err *e)
{
	uint64_t t, cpu;
	int r;

	pthread_mutex_lock(&s->turn);
	t = clock_mono_ns();
	cpu = thread_ns();
	r = fn(s->engine, b, e);
	s->turn_cpu_ns += thread_ns() - cpu;
	s->turn_ns += clock_mono_ns() - t;
	pthread_mutex_unlock(&s->turn);
	return r;
}

static int end_box(struct engine *g, struct box *b, struct err *e)
{
	(void)g;
	return box_destroy(b, e);
}

static int live(struct caller *c)
{
	int r = take_turn(c->s, box_create, &c->box, &c->e), q;

	if (r == 0)
		r = box_exec(&c->box, &c->e);
	q = take_turn(c->s, end_box, &c->box, r < 0 ? NULL : &c->e);
	return r < 0 ? r : q;
}

static int http_live(struct caller *c)
{
	int r = api_create(&c->client, NULL, c->id, &c->e);

	if (r == 0)
		r = api_exec(&c->client, c->id, &c->e);
	return r == 0 ? api_delete(&c->client, c->id, &c->e) : r;
}

/* The copy is deleted: how many there are stays the same. */
static int http_fork(struct caller *c)
{
	struct answer a;
	char path[96], id[API_ID];
	int r;

	snprintf(path, sizeof(path), "/v1/sandboxes/%s/fork", c->id);
	r = client_call(&c->client, "POST", path, "{}", 201, &a, &c->e);
	if (r == 0)
		r = answer_id(&a, id, &c->e);
	return r == 0 ? api_delete(&c->client, id, &c->e) : r;
}

static int work_once(struct caller *c)
{
	switch (c->work) {
	case LIVES:
		return live(c);
	case EXECS:
		return box_exec(&c->box, &c->e);
	case HTTP_LIVES:
		return http_live(c);
	case HTTP_EXECS:
		return api_exec(&c->client, c->id, &c->e);
	case HTTP_FORKS:
		return http_fork(c);
	case BWRAP:
	case CRUN:
	case WORKS:
		break;
	}
	return -EINVAL;
}

static void *caller_main(void *arg)
{
	struct caller *c = arg;

	prctl(PR_SET_NAME, "caller");
	while (c->r == 0 && !bench_stop) {
		uint64_t t = clock_mono_ns();

		if (t >= c->until)
			break;
		c->r = work_once(c);
		samples_add(&c->times, clock_mono_ns() - t);
	}
	return NULL;
}

/* ---- a cell: all callers at once ---- */

static int open_caller(struct caller *c)
{
	int r = 0;

	samples_init(&c->times, names[c->work]);
	if (c->work == EXECS)
		r = box_create(c->s->engine, &c->box, &c->e);
	if (r == 0 && c->work == EXECS)
		r = box_exec(&c->box, &c->e);
	if (r == 0 && c->work >= HTTP_LIVES)
		r = client_open(&c->client, &c->s->serve, &c->e);
	if (r == 0 && (c->work == HTTP_EXECS || c->work == HTTP_FORKS))
		r = api_create(&c->client, NULL, c->id, &c->e);
	if (r == 0 && (c->work == HTTP_EXECS || c->work == HTTP_FORKS))
		r = api_exec(&c->client, c->id, &c->e);
	return r;
}

static int close_caller(struct caller *c)
{
	int r = 0;

	box_destroy(&c->box, NULL);
	if (c->r == 0 && (c->work == HTTP_EXECS || c->work == HTTP_FORKS) && c->id[0])
		r = api_delete(&c->client, c->id, &c->e);
	client_close(&c->client);
	return r;
}

/* Until nothing is left to do behind the answers. Returns when that was. */
static uint64_t settle(struct scale *s, enum load work)
{
	if (work >= HTTP_LIVES && work <= HTTP_FORKS)
		return serve_settle(&s->serve);
	if (work == LIVES)
		warden_pool_wait(engine_warden(s->engine), POOL);
	return clock_mono_ns();
}

static void sum_up(struct caller *all, unsigned n, uint64_t ns, uint64_t cpu, struct cell *ret)
{
	struct samples times;
	size_t count;

	samples_init(&times, "all");
	for (unsigned i = 0; i < n; i++) {
		for (size_t k = 0; k < all[i].times.n; k++)
			samples_add(&times, all[i].times.ns[k]);
		samples_done(&all[i].times);
	}
	count = times.n;
	ret->count = (double)count;
	ret->rate = ratio((double)count * 1e9, (double)ns);
	ret->p50_us = (double)samples_at(&times, 500) / 1e3;
	ret->p99_us = (double)samples_at(&times, 990) / 1e3;
	ret->machine_us = ratio((double)cpu / 1e3, (double)count);
	samples_done(&times);
}

static uint64_t duration_ns(const struct scale *s)
{
	return s->b->quick ? 150000000ULL : s->b->scale_ms * 1000000ULL;
}

/* With children that were waited for: agents, and what ran in sandboxes. */
static uint64_t own_ns(const struct scale *s, enum load work)
{
	struct rusage u[2];
	uint64_t sum = 0;

	if (work >= HTTP_LIVES)
		return serve_cpu_ns(&s->serve);
	getrusage(RUSAGE_SELF, &u[0]);
	getrusage(RUSAGE_CHILDREN, &u[1]);
	for (unsigned i = 0; i < 2; i++)
		sum += (uint64_t)(u[i].ru_utime.tv_sec + u[i].ru_stime.tv_sec) * 1000000000ULL +
		       (uint64_t)(u[i].ru_utime.tv_usec + u[i].ru_stime.tv_usec) * 1000ULL;
	return sum;
}

static int run_cell(struct scale *s, enum load work, unsigned n, struct cell *ret, struct err *e)
{
	static struct caller all[CALLERS_MAX];
	unsigned open, started = 0;
	uint64_t t, end, cpu, own;
	int r = 0;

	memset(all, 0, sizeof(all));
	for (open = 0; r == 0 && open < n; open++) {
		all[open] = (struct caller){ .s = s, .work = work, .index = open, .box.made = false };
		r = open_caller(&all[open]);
		if (r < 0)
			*e = all[open].e;
	}
	settle(s, work);
	own = own_ns(s, work);
	cpu = scale_machine_ns();
	t = clock_mono_ns();
	for (; r == 0 && started < n; started++) {
		all[started].until = t + duration_ns(s);
		if (pthread_create(&all[started].thread, NULL, caller_main, &all[started]))
			break;
	}
	for (unsigned i = 0; i < started; i++)
		pthread_join(all[i].thread, NULL);
	end = clock_mono_ns();
	if (work == LIVES || work == HTTP_LIVES || work == HTTP_FORKS)
		end = settle(s, work);
	cpu = scale_machine_ns() - cpu;
	own = own_ns(s, work) - own;
	for (unsigned i = 0; i < open; i++) {
		int q = close_caller(&all[i]);

		if (r == 0 && all[i].r + q < 0)
			*e = all[i].e;
		r = r < 0 ? r : all[i].r < 0 ? all[i].r : q;
	}
	if (r == 0 && started < n)
		r = err_set(e, ERR_EXHAUSTED, -EAGAIN, "start the callers");
	sum_up(all, open, end - t, cpu, ret);
	ret->own_us = ratio((double)own / 1e3, ret->count);
	return r < 0 ? err_wrap(e, r, "%s, %u callers", names[work], n) : 0;
}

static int run_peer(struct scale *s, enum load work, unsigned n, struct cell *ret, struct err *e)
{
	struct peer *p = &s->peers.list[work == BWRAP ? PEER_BWRAP : PEER_CRUN];
	struct spawn_opts o = { .workers = n, .ms = (unsigned)(duration_ns(s) / 1000000) };
	uint64_t cpu = scale_machine_ns();
	struct spawn_time t;
	int r;

	if (p->why_not[0])
		return 0;
	r = spawner_run(peer_spawner(&s->peers, p), p->argv, &o, &t, e);
	if (r < 0)
		return r;
	cpu = scale_machine_ns() - cpu;
	*ret = (struct cell){ .rate = ratio((double)t.count * 1e9, (double)t.ns),
			      .p50_us = (double)t.p50_ns / 1e3,
			      .p99_us = (double)t.p99_ns / 1e3,
			      .machine_us = ratio((double)cpu / 1e3, t.count) };
	return 0;
}

/* ---- what is printed ---- */

static void print_table(const struct scale *s)
{
	printf("\n%-18s %8s %10s %10s %10s %8s %12s %10s\n", "", "callers", "per s", "p50 us", "p99 us", "p99/p50",
	       "machine us", "/ bwrap");
	for (unsigned w = 0; w < WORKS; w++) {
		for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
			const struct cell *c = &s->cell[w][i];

			if (c->rate > 0)
				printf("%-18s %8u %10.0f %10.0f %10.0f %8.1f %12.0f %10.2f\n", names[w], counts[i],
				       c->rate, c->p50_us, c->p99_us, ratio(c->p99_us, c->p50_us), c->machine_us,
				       ratio(c->rate, s->cell[BWRAP][i].rate));
		}
	}
}

static void target(struct scale *s, const char *what, double measured, double limit, enum bound bound,
		   const char *why_not)
{
	report_target(&s->b->report, &(struct target){ .part = PART,
						       .what = what,
						       .unit = "",
						       .measured = measured,
						       .limit = limit,
						       .bound = bound,
						       .why_not = why_not });
}

static void judge(struct scale *s)
{
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	const char *few = cores < 16			       ? "fewer than 16 cores" :
			  s->peers.list[PEER_BWRAP].why_not[0] ? "bwrap is not usable here" :
								 NULL;
	const struct cell *b = s->cell[BWRAP], *g = s->cell[LIVES], *h = s->cell[HTTP_LIVES], *x = s->cell[EXECS],
			  *y = s->cell[HTTP_EXECS];
	double most = 0, most_http = 0, worst = 0;

	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		most = x[i].rate > most ? x[i].rate : most;
		most_http = y[i].rate > most_http ? y[i].rate : most_http;
	}
	for (size_t i = 3; i <= 4; i++) {
		const double e = ratio(g[i].p99_us, g[i].p50_us), d = ratio(h[i].p99_us, h[i].p50_us);

		worst = e > worst ? e : worst;
		worst = d > worst ? d : worst;
	}
	target(s, "engine lifecycles of 8 callers / bwrap's", ratio(g[3].rate, b[3].rate), 1.7, BOUND_LEAST, few);
	target(s, "engine lifecycles of 16 callers / bwrap's", ratio(g[4].rate, b[4].rate), 2, BOUND_LEAST, few);
	target(s, "http lifecycles of 8 callers / bwrap's", ratio(h[3].rate, b[3].rate), 1.3, BOUND_LEAST, few);
	target(s, "http lifecycles of 16 callers / bwrap's", ratio(h[4].rate, b[4].rate), 1.3, BOUND_LEAST, few);
	target(s, "engine execs/s / (cores x one caller's)", ratio(most, (double)cores * x[0].rate), 0.7, BOUND_LEAST,
	       few);
	target(s, "http execs/s / (cores x one caller's)", ratio(most_http, (double)cores * y[0].rate), 0.7,
	       BOUND_LEAST, few);
	target(s, "p99 / p50 of lifecycles of 8 and 16 callers", worst, 5, BOUND_MOST, few);
}

/* ---- what is serial, and what waits ---- */

struct watcher {
	struct scale_where where;
	volatile bool stop;
};

static void *watch_main(void *arg)
{
	struct watcher *w = arg;

	prctl(PR_SET_NAME, "bench watch");
	scale_watch(&w->where, &w->stop, 15);
	return NULL;
}

/* Each thread's CPU time for one, and its share; of several threads with one name, that of the busiest. */
static double print_threads(const struct scale_cpu *cpu, double lives, double own_us, const char *leave_out)
{
	double most = 0;

	printf("%10s %10s %8s %8s  %s\n", "us, all", "us, most", "threads", "share", "CPU time for one");
	for (size_t i = 0; i < cpu->n; i++) {
		const struct scale_thread *t = &cpu->by[i];
		const double all = ratio((double)t->sum_ns / 1e3, lives), one = ratio((double)t->most_ns / 1e3, lives);

		if (all < 1 || strstr(t->name, "bench watch"))
			continue;
		printf("%10.1f %10.1f %8u %7.1f%%  %s\n", all, one, t->count, 100 * ratio(one, own_us), t->name);
		if (!strstr(t->name, leave_out) && one > most)
			most = one;
	}
	return ratio(most, own_us);
}

static int look_closer(struct scale *s, enum load work, unsigned n, struct err *e)
{
	static struct watcher w;
	struct scale_mark *mark = scale_mark_new();
	struct warden_counts before, after;
	struct scale_cpu cpu;
	struct cell c = { 0 };
	pthread_t thread;
	char what[64];
	double lives, share;
	int r;

	memset(&w, 0, sizeof(w));
	warden_counts(engine_warden(s->engine), &before);
	s->turn_ns = s->turn_cpu_ns = 0;
	r = run_cell(s, work, n, &c, e);
	lives = c.count;
	scale_since(mark, &cpu);
	if (r < 0)
		return r;
	warden_counts(engine_warden(s->engine), &after);
	printf("\n%s, %u callers: %.0f per second; CPU for one: %.0f us of the whole machine, %.0f of our processes\n",
	       names[work], n, c.rate, c.machine_us, c.own_us);
	share = print_threads(&cpu, lives, c.own_us, "caller");
	if (work == LIVES) {
		const double turn = ratio((double)s->turn_ns / 1e3, lives),
			     ran = ratio((double)s->turn_cpu_ns / 1e3, lives),
			     lock = ratio((double)(after.locked_ns - before.locked_ns) / 1e3, lives);

		printf("%10.1f us in create and destroy, one caller after the other, %.1f of it running: %.1f%%\n",
		       turn, ran, 100 * ratio(ran, c.own_us));
		printf("%10.1f us with the pool's lock held: %.1f%%\n", lock, 100 * ratio(lock, c.own_us));
		share = ratio(ran, c.own_us) > share ? ratio(ran, c.own_us) : share;
		target(s, "engine: largest serial part of a lifecycle's CPU, at 8", share, SHARE_MOST, BOUND_MOST,
		       NULL);
	} else if (work == HTTP_LIVES && n == 8) {
		target(s, "http: largest serial part of a lifecycle's CPU, at 8", share, SHARE_MOST, BOUND_MOST, NULL);
	}
	/* Once more: looking takes time, so it is not done while anything is measured. */
	if (pthread_create(&thread, NULL, watch_main, &w))
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "start a thread");
	r = run_cell(s, work, n, &c, e);
	w.stop = true;
	pthread_join(thread, NULL);
	snprintf(what, sizeof(what), "%s, %u callers", names[work], n);
	scale_where_print(&w.where, what);
	return r;
}

/* Whether the user asked for it. */
static bool is_asked(const struct scale *s, unsigned work, unsigned callers)
{
	return (!s->b->only || !strcmp(s->b->only, names[work])) && (!s->b->callers || s->b->callers == callers);
}

static int measure(struct scale *s, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(counts) && !bench_stop; i++) {
		for (unsigned w = 0; r == 0 && w < WORKS && !bench_stop; w++) {
			struct cell *c = &s->cell[w][i];

			if (!is_asked(s, w, counts[i]))
				continue;
			fprintf(stderr, "%s, %u callers\n", names[w], counts[i]);
			r = w >= BWRAP ? run_peer(s, (enum load)w, counts[i], c, e) :
					 run_cell(s, (enum load)w, counts[i], c, e);
		}
	}
	print_table(s);
	if (r < 0 || s->b->only)
		return r;
	r = look_closer(s, LIVES, 8, e);
	if (r == 0)
		r = look_closer(s, HTTP_LIVES, 8, e);
	if (r == 0)
		r = look_closer(s, HTTP_EXECS, 8, e);
	if (r == 0)
		r = look_closer(s, HTTP_EXECS, 32, e);
	if (r == 0)
		r = look_closer(s, HTTP_LIVES, 16, e);
	if (r == 0 && !s->b->callers)
		judge(s);
	return r;
}

int bench_scale(struct bench *b, struct err *e)
{
	static struct scale s;
	int r;

	s.b = b;
	pthread_mutex_init(&s.turn, NULL);
	printf("this machine has %ld cores\n", sysconf(_SC_NPROCESSORS_ONLN));
	r = peers_open(&s.peers, e);
	if (r == 0)
		r = engine_new(&(struct engine_opts){ .pool = POOL }, &s.engine, e);
	if (r == 0)
		r = serve_start(&s.serve, b, &(struct serve_opts){ 0 }, e);
	if (r == 0)
		r = measure(&s, e);
	serve_stop(&s.serve);
	engine_free(s.engine);
	peers_close(&s.peers);
	return r;
}
