/*
 * Every contender in turn, over and over: A B C A B C. Whatever else the machine does hits all alike, and the ratios of
 * one run can be compared. Our pool is full and idle whenever a peer is measured.
 */
#include "bench.h"
#include "base/base.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>

#define POOL 64
#define STEADY 8 /* lifecycles of a round, for their tail */
#define PART "rounds"

struct rounds {
	struct bench *b;
	struct peers peers;
	struct engine *engine;
	struct box exec; /* stays, for execs */
	struct samples *peer[PEER_COUNT], *crun_exec, *run, *create, *exec_warm, *lifecycle, *steady, *destroy, *burst;
	unsigned cgroup_version;
	double stolen;
};

/* In ticks of all CPUs, since the machine started. */
struct ticks {
	uint64_t all, stolen;
};

static struct ticks ticks_now(void)
{
	uint64_t v[8] = { 0 };
	struct ticks t = { 0 };
	FILE *f = fopen("/proc/stat", "re");

	if (f &&
	    fscanf(f,
		   "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
		   &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) == 8)
		t.stolen = v[7];
	for (unsigned i = 0; i < ARRAY_LEN(v); i++)
		t.all += v[i];
	if (f)
		fclose(f);
	return t;
}

static void name_rows(struct rounds *r)
{
	struct report *out = &r->b->report;

	for (unsigned i = 0; i < PEER_COUNT; i++) {
		r->peer[i] = report_row(out, r->peers.list[i].name);
		if (r->peers.list[i].why_not[0])
			r->peer[i]->note = strdup(r->peers.list[i].why_not);
	}
	r->run = report_row(out, "cloche run");
	r->lifecycle = report_row(out, "cloche lifecycle, from the pool");
	r->steady = report_row(out, "cloche lifecycle, one after another");
	r->burst = report_row(out, "cloche lifecycle, back to back");
	r->create = report_row(out, "cloche create");
	r->destroy = report_row(out, "cloche destroy");
	r->exec_warm = report_row(out, "cloche exec");
	r->crun_exec = report_row(out, "crun exec");
	if (!r->peers.exec[0])
		r->crun_exec->note = "no container runs";
}

static int measure(struct spawner *s, const char *const *argv, struct samples *to, struct err *e)
{
	struct spawn_opts o = { 0 };
	struct spawn_time t;
	int r = spawner_run(s, argv, &o, &t, e);

	if (r == 0)
		samples_add(to, t.ns);
	return r;
}

static int measure_exec(struct rounds *r, struct err *e)
{
	uint64_t t = clock_mono_ns();
	int rc = box_exec(&r->exec, e);

	samples_add(r->exec_warm, clock_mono_ns() - t);
	return rc;
}

/*
 * The same command without a sandbox and in one that is there, next to each other and each of them first in turn: what
 * a contender leaves to be cleaned up is then on both alike.
 */
static int measure_pair(struct rounds *r, unsigned round, struct err *e)
{
	const struct peer *p = &r->peers.list[PEER_NONE];
	int rc = round % 2 ? measure_exec(r, e) : 0;

	if (rc == 0)
		rc = measure(peer_spawner(&r->peers, p), p->argv, r->peer[PEER_NONE], e);
	return rc == 0 && round % 2 == 0 ? measure_exec(r, e) : rc;
}

static int measure_peers(struct rounds *r, unsigned round, struct err *e)
{
	int rc = measure_pair(r, round, e);

	for (unsigned i = PEER_NONE + 1; rc == 0 && i < PEER_COUNT; i++) {
		struct peer *p = &r->peers.list[i];

		if (!p->why_not[0] && round % p->every == 0)
			rc = measure(peer_spawner(&r->peers, p), p->argv, r->peer[i], e);
	}
	if (rc == 0 && r->peers.exec[0])
		rc = measure(&r->peers.other, r->peers.exec, r->crun_exec, e);
	return rc;
}

static int measure_ours(struct rounds *r, struct err *e)
{
	const char *const run[] = { r->b->cloche, "run", "--", "/bin/true", NULL };
	struct warden *w = engine_warden(r->engine);
	struct box b = { .made = false };
	uint64_t t, ns;
	int rc;

	rc = measure(&r->peers.host, run, r->run, e);
	if (rc < 0)
		return rc;
	rc = box_lifecycle(r->engine, &ns, e);
	if (rc < 0)
		return rc;
	samples_add(r->lifecycle, ns);
	warden_pool_wait(w, POOL);
	t = clock_mono_ns();
	rc = box_create(r->engine, &b, e);
	if (rc == 0)
		rc = box_up(&b, e);
	samples_add(r->create, clock_mono_ns() - t);
	t = clock_mono_ns();
	if (rc == 0)
		rc = box_destroy(&b, e);
	else
		box_destroy(&b, NULL);
	samples_add(r->destroy, clock_mono_ns() - t);
	warden_pool_wait(w, POOL);
	return rc;
}

/*
 * With nothing of the others' being cleaned up behind, and far more often than there are rounds. Its tail is what a
 * sandbox's own remains do to the next: a command keeps to one processor, and waits there for the kernel's workers.
 */
static int measure_steady(struct rounds *r, struct err *e)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < STEADY; i++) {
		uint64_t ns;

		rc = box_lifecycle(r->engine, &ns, e);
		if (rc == 0)
			samples_add(r->steady, ns);
		warden_pool_wait(engine_warden(r->engine), POOL);
	}
	return rc;
}

/* One after the other without a pause: making and cleaning up compete with the requests. */
static int measure_burst(struct rounds *r, unsigned count, struct err *e)
{
	uint64_t end = clock_mono_ns() + r->b->seconds * 1000000000ULL;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < count && !bench_stop && clock_mono_ns() < end; i++) {
		uint64_t ns;

		rc = box_lifecycle(r->engine, &ns, e);
		if (rc == 0)
			samples_add(r->burst, ns);
	}
	warden_pool_wait(engine_warden(r->engine), POOL);
	return rc;
}

static void add_ratio(struct rounds *r, const char *what, uint64_t ours, struct samples *theirs, double limit)
{
	report_target(&r->b->report, &(struct target){
					     .part = PART,
					     .what = what,
					     .unit = "",
					     .measured = ratio((double)ours, (double)samples_at(theirs, 500)),
					     .limit = limit,
					     .bound = BOUND_MOST,
					     .why_not = theirs->n ? NULL : "the contender is not usable here",
				     });
}

static void judge(struct rounds *r)
{
	struct samples *bwrap = r->peer[PEER_BWRAP];
	uint64_t p50 = samples_at(r->lifecycle, 500);

	add_ratio(r, "cloche run p50 / crun run p50", samples_at(r->run, 500), r->peer[PEER_CRUN], 0.8);
	add_ratio(r, "cloche run p50 / bwrap p50", samples_at(r->run, 500), bwrap, 1.0);
	if (r->cgroup_version != 2)
		r->b->report.targets[r->b->report.ntargets - 1].why_not = "only where cgroup v2 is used";
	add_ratio(r, "lifecycle p50 / bwrap p50", p50, bwrap, 0.3);
	add_ratio(r, "lifecycle p99 / its own p50", samples_at(r->lifecycle, 990), r->lifecycle, 3.0);
	add_ratio(r, "create p50 / bwrap p50", samples_at(r->create, 500), bwrap, 0.12);
	add_ratio(r, "exec p50 / posix_spawn p50", samples_at(r->exec_warm, 500), r->peer[PEER_NONE], 1.15);
	add_ratio(r, "exec p50 / crun exec p50", samples_at(r->exec_warm, 500), r->crun_exec, 0.25);
	report_fact(&r->b->report, PART, "lifecycle p50 / p50 of bwrap with /proc /dev /tmp",
		    ratio((double)p50, (double)samples_at(r->peer[PEER_BWRAP_FULL], 500)), "");
	/* What the machine itself does to a tail: where this is above 3, nothing that runs on it stays below. */
	report_fact(&r->b->report, PART, "no sandbox: p99 / its own p50",
		    ratio((double)samples_at(r->peer[PEER_NONE], 990), (double)samples_at(r->peer[PEER_NONE], 500)),
		    "");
	report_fact(&r->b->report, PART, "CPU time that the host of this machine took away", r->stolen, "%");
	report_fact(&r->b->report, PART, "one after another: p99 / its own p50",
		    ratio((double)samples_at(r->steady, 990), (double)samples_at(r->steady, 500)), "");
	report_fact(&r->b->report, PART, "back to back: p99 / its own p50",
		    ratio((double)samples_at(r->burst, 990), (double)samples_at(r->burst, 500)), "");
	report_fact(&r->b->report, PART, "cgroup version", r->cgroup_version, "");
}

static int loop(struct rounds *r, struct err *e)
{
	const unsigned least = r->b->quick ? 20 : 30, most = r->b->quick ? 20 : 2000;
	uint64_t end = clock_mono_ns() + r->b->seconds * 1000000000ULL;
	const struct ticks before = ticks_now();
	struct ticks after;
	int rc = 0;

	warden_pool_wait(engine_warden(r->engine), POOL);
	for (unsigned i = 0; rc == 0 && i < most && !bench_stop; i++) {
		if (i >= least && clock_mono_ns() > end)
			break;
		rc = measure_peers(r, i, e);
		if (rc == 0)
			rc = measure_ours(r, e);
		if (rc == 0)
			rc = measure_steady(r, e);
	}
	after = ticks_now();
	r->stolen = 100 * ratio((double)(after.stolen - before.stolen), (double)(after.all - before.all));
	return rc == 0 ? measure_burst(r, r->b->quick ? 100 : 1000, e) : rc;
}

int bench_rounds(struct bench *b, struct err *e)
{
	static struct rounds r;
	int rc;

	r.b = b;
	rc = peers_open(&r.peers, e);
	if (rc == 0) {
		name_rows(&r);
		rc = engine_new(&(struct engine_opts){ .pool = POOL }, &r.engine, e);
	}
	if (rc == 0)
		rc = box_create(r.engine, &r.exec, e);
	if (rc == 0)
		rc = box_up(&r.exec, e);
	if (rc == 0) {
		r.cgroup_version = r.exec.s.receipt.cgroup_version;
		rc = box_exec(&r.exec, e); /* the first one finds cold caches */
	}
	if (rc == 0)
		rc = loop(&r, e);
	if (rc == 0)
		judge(&r);
	box_destroy(&r.exec, NULL);
	engine_free(r.engine);
	peers_close(&r.peers);
	return rc;
}
