/*
 * Eight at once, in slices that take turns. A slice of ours starts with a full pool and ends when it is full again and
 * everything is cleaned up: nothing made ahead or left for later is got for free.
 */
#include "bench.h"
#include "base/base.h"
#include "base/clock.h"

#include <sys/resource.h>

#define POOL 64
#define FLIGHT 8
#define PART "flight"

struct slice {
	uint64_t ns, cpu_ns;
	unsigned count;
};

static double per_second(const struct slice *s)
{
	return ratio((double)s->count * 1e9, (double)s->ns);
}

/* Without the kernel's own threads, on either side; steadier than the clock on a machine that has other work. */
static double cpu_ms(const struct slice *s)
{
	return ratio((double)s->cpu_ns / 1e6, s->count);
}

static uint64_t cpu_of(int who)
{
	struct rusage u;

	getrusage(who, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000ULL +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000ULL;
}

static int peer_slice(struct peers *p, enum peer_id id, unsigned count, struct slice *to, struct err *e)
{
	struct spawn_opts o = { .count = count, .workers = FLIGHT };
	struct spawn_time t;
	int r;

	if (p->list[id].why_not[0])
		return 0;
	r = spawner_run(peer_spawner(p, &p->list[id]), p->list[id].argv, &o, &t, e);
	if (r < 0)
		return r;
	to->ns += t.ns;
	to->cpu_ns += t.cpu_ns;
	to->count += count;
	return 0;
}

static int our_slice(struct engine *g, unsigned count, struct slice *to, struct err *e)
{
	uint64_t t = clock_mono_ns(), cpu = cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN);
	int r = box_flight(g, count, FLIGHT, e);

	if (r < 0)
		return r;
	warden_pool_wait(engine_warden(g), POOL);
	to->ns += clock_mono_ns() - t;
	to->cpu_ns += cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN) - cpu;
	to->count += count;
	return 0;
}

int bench_flight(struct bench *b, struct err *e)
{
	const unsigned slices = b->quick ? 2 : 10, count = b->quick ? 64 : 250;
	struct slice ours = { 0 }, bwrap = { 0 }, full = { 0 }, crun = { 0 };
	AUTO(engine_free) struct engine *g = NULL;
	static struct peers p;
	int r;

	r = peers_open(&p, e);
	if (r == 0)
		r = engine_new(&(struct engine_opts){ .pool = POOL }, &g, e);
	if (r == 0)
		warden_pool_wait(engine_warden(g), POOL);
	for (unsigned i = 0; r == 0 && i < slices && !bench_stop; i++) {
		r = peer_slice(&p, PEER_BWRAP, count, &bwrap, e);
		if (r == 0)
			r = our_slice(g, count, &ours, e);
		if (r == 0)
			r = peer_slice(&p, PEER_BWRAP_FULL, count / 4, &full, e);
		if (r == 0)
			r = peer_slice(&p, PEER_CRUN, count / 4, &crun, e);
	}
	peers_close(&p);
	if (r < 0)
		return r;
	report_fact(&b->report, PART, "bwrap, 8 at once", per_second(&bwrap), "per second");
	report_fact(&b->report, PART, "bwrap with /proc /dev /tmp, 8 at once", per_second(&full), "per second");
	report_fact(&b->report, PART, "crun run, 8 at once", per_second(&crun), "per second");
	report_fact(&b->report, PART, "cloche lifecycle, 8 at once", per_second(&ours), "per second");
	report_fact(&b->report, PART, "bwrap, CPU time of one", cpu_ms(&bwrap), "ms");
	report_fact(&b->report, PART, "crun run, CPU time of one", cpu_ms(&crun), "ms");
	report_fact(&b->report, PART, "cloche lifecycle, CPU time of one", cpu_ms(&ours), "ms");
	report_target(&b->report, &(struct target){
					  .part = PART,
					  .what = "lifecycles per second at 8 / bwrap's",
					  .unit = "",
					  .measured = ratio(per_second(&ours), per_second(&bwrap)),
					  .limit = 1.7,
					  .bound = BOUND_LEAST,
					  .why_not = bwrap.count ? NULL : "bwrap is not usable here",
				  });
	return 0;
}
