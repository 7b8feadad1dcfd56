/*
 * What a client of the daemon waits for, beside what bwrap and crun take in the same rounds: create, exec, delete over
 * one keep-alive connection, then eight of them at once. The daemon is one with the default configuration.
 */
#include "daemon.h"
#include "base/base.h"
#include "base/clock.h"

#include <sys/epoll.h>
#include <unistd.h>

#define PART "http"
#define FLIGHT 8

struct slice {
	uint64_t ns, cpu_ns, client_ns; /* the last: CPU time of this process */
	unsigned count;
};

struct http {
	struct bench *b;
	struct peers peers;
	struct serve serve;
	struct client client;
	char box[API_ID]; /* stays, for execs */
	struct samples *bwrap, *crun_exec, *lifecycle, *create, *first, *delete, *exec, *burst, *health;
	struct slice ours, theirs;
};

static void name_rows(struct http *h)
{
	struct report *out = &h->b->report;

	h->bwrap = report_row(out, "bwrap --unshare-all, beside the daemon");
	h->crun_exec = report_row(out, "crun exec, beside the daemon");
	h->lifecycle = report_row(out, "http create, exec, delete");
	h->create = report_row(out, "http create");
	h->first = report_row(out, "http first exec");
	h->delete = report_row(out, "http delete");
	h->exec = report_row(out, "http exec");
	h->burst = report_row(out, "http create, exec, delete, back to back");
	h->health = report_row(out, "http GET /healthz");
	if (h->peers.list[PEER_BWRAP].why_not[0])
		h->bwrap->note = strdup(h->peers.list[PEER_BWRAP].why_not);
	if (!h->peers.exec[0])
		h->crun_exec->note = "no container runs";
}

/* ---- one after the other ---- */

static int measure_peer(struct spawner *s, const char *const *argv, struct samples *to, struct err *e)
{
	struct spawn_opts o = { 0 };
	struct spawn_time t;
	int r = spawner_run(s, argv, &o, &t, e);

	if (r == 0)
		samples_add(to, t.ns);
	return r;
}

static int measure_life(struct http *h, struct err *e)
{
	uint64_t t[4] = { clock_mono_ns() };
	char id[API_ID];
	int r = api_create(&h->client, NULL, id, e);

	t[1] = clock_mono_ns();
	if (r == 0)
		r = api_exec(&h->client, id, e);
	t[2] = clock_mono_ns();
	if (r == 0)
		r = api_delete(&h->client, id, e);
	t[3] = clock_mono_ns();
	if (r < 0)
		return r;
	samples_add(h->lifecycle, t[3] - t[0]);
	samples_add(h->create, t[1] - t[0]);
	samples_add(h->first, t[2] - t[1]);
	samples_add(h->delete, t[3] - t[2]);
	return 0;
}

static int measure_round(struct http *h, struct err *e)
{
	uint64_t t;
	int r = 0;

	if (!h->peers.list[PEER_BWRAP].why_not[0])
		r = measure_peer(&h->peers.host, h->peers.list[PEER_BWRAP].argv, h->bwrap, e);
	if (r == 0)
		r = measure_life(h, e);
	if (r < 0)
		return r;
	serve_settle(&h->serve);
	if (h->peers.exec[0])
		r = measure_peer(&h->peers.other, h->peers.exec, h->crun_exec, e);
	t = clock_mono_ns();
	if (r == 0)
		r = api_exec(&h->client, h->box, e);
	samples_add(h->exec, clock_mono_ns() - t);
	t = clock_mono_ns();
	if (r == 0)
		r = client_call(&h->client, "GET", "/healthz", NULL, 200, NULL, e);
	samples_add(h->health, clock_mono_ns() - t);
	return r;
}

static int measure_burst(struct http *h, unsigned count, struct err *e)
{
	uint64_t end = clock_mono_ns() + h->b->seconds * 1000000000ULL / 4;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < count && !bench_stop && clock_mono_ns() < end; i++) {
		uint64_t t = clock_mono_ns();
		char id[API_ID];

		r = api_create(&h->client, NULL, id, e);
		if (r == 0)
			r = api_exec(&h->client, id, e);
		if (r == 0)
			r = api_delete(&h->client, id, e);
		samples_add(h->burst, clock_mono_ns() - t);
	}
	serve_settle(&h->serve);
	return r;
}

static int measure_rounds(struct http *h, struct err *e)
{
	const unsigned least = h->b->quick ? 20 : 30, most = h->b->quick ? 20 : 1000;
	uint64_t end = clock_mono_ns() + h->b->seconds * 1000000000ULL / 2;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < most && !bench_stop; i++) {
		if (i >= least && clock_mono_ns() > end)
			break;
		r = measure_round(h, e);
	}
	return r == 0 ? measure_burst(h, h->b->quick ? 50 : 500, e) : r;
}

/* ---- eight at once ---- */

struct flyer {
	struct client c;
	enum { DOING_NOTHING, DOING_CREATE, DOING_EXEC, DOING_DELETE } doing;
	char id[API_ID];
};

/* An answer has come: the next call of the same life. 1 when there is none. */
static int fly_on(struct flyer *f, const struct answer *a, struct err *e)
{
	char path[96];
	int r;

	switch (f->doing) {
	case DOING_NOTHING:
		break;
	case DOING_CREATE:
		r = answer_check(a, 201, "create", e);
		if (r == 0)
			r = answer_id(a, f->id, e);
		if (r < 0)
			return r;
		f->doing = DOING_EXEC;
		snprintf(path, sizeof(path), "/v1/sandboxes/%s/execs", f->id);
		return client_send(&f->c, "POST", path, NULL, API_TRUE, e);
	case DOING_EXEC:
		r = answer_check(a, 200, "exec", e);
		if (r == 0)
			r = answer_ended_well(a, e);
		if (r < 0)
			return r;
		f->doing = DOING_DELETE;
		snprintf(path, sizeof(path), "/v1/sandboxes/%s", f->id);
		return client_send(&f->c, "DELETE", path, NULL, NULL, e);
	case DOING_DELETE:
		r = answer_check(a, 204, "delete", e);
		f->doing = DOING_NOTHING;
		return r < 0 ? r : 1;
	}
	return err_set(e, ERR_LOST, -EBADMSG, "an answer to nothing");
}

static int take_off(struct flyer *f, unsigned *started, unsigned count, struct err *e)
{
	if (*started == count)
		return 0;
	(*started)++;
	f->doing = DOING_CREATE;
	return client_send(&f->c, "POST", "/v1/sandboxes", NULL, "{}", e);
}

static int fly(struct flyer *all, int ep, unsigned count, struct err *e)
{
	unsigned started = 0, ended = 0;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < FLIGHT; i++)
		r = take_off(&all[i], &started, count, e);
	while (r == 0 && ended < count) {
		struct epoll_event ev[FLIGHT];
		int n = epoll_wait(ep, ev, FLIGHT, 60000);

		if (n == 0 || (n < 0 && errno != EINTR))
			return err_set(e, ERR_TIMEOUT, -ETIMEDOUT, "no client makes progress");
		for (int i = 0; r == 0 && i < n; i++) {
			struct flyer *f = &all[ev[i].data.u32];
			struct answer a;

			r = client_step(&f->c, &a, e);
			if (r == 1)
				r = fly_on(f, &a, e);
			if (r == 1) {
				ended++;
				r = take_off(f, &started, count, e);
			}
		}
	}
	return r;
}

static int our_slice(struct http *h, struct flyer *all, int ep, unsigned count, struct err *e)
{
	uint64_t t = clock_mono_ns(), cpu = serve_cpu_ns(&h->serve), own = own_cpu_ns();
	int r = fly(all, ep, count, e);

	if (r < 0)
		return r;
	h->ours.client_ns += own_cpu_ns() - own;
	/* Nothing left for later is got for free. */
	h->ours.ns += serve_settle(&h->serve) - t;
	h->ours.cpu_ns += serve_cpu_ns(&h->serve) - cpu;
	h->ours.count += count;
	return 0;
}

static int their_slice(struct http *h, unsigned count, struct err *e)
{
	struct peer *p = &h->peers.list[PEER_BWRAP];
	struct spawn_opts o = { .count = count, .workers = FLIGHT };
	struct spawn_time t;
	int r;

	if (p->why_not[0])
		return 0;
	r = spawner_run(&h->peers.host, p->argv, &o, &t, e);
	if (r < 0)
		return r;
	h->theirs.ns += t.ns;
	h->theirs.cpu_ns += t.cpu_ns;
	h->theirs.count += count;
	return 0;
}

static int measure_flight(struct http *h, struct err *e)
{
	const unsigned slices = h->b->quick ? 2 : 10, count = h->b->quick ? 40 : 250;
	AUTO_CLOSE int ep = epoll_create1(EPOLL_CLOEXEC);
	static struct flyer all[FLIGHT];
	int r = ep < 0 ? -errno : 0;

	for (unsigned i = 0; r == 0 && i < FLIGHT; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.u32 = i };

		r = client_open(&all[i].c, &h->serve, e);
		if (r == 0 && epoll_ctl(ep, EPOLL_CTL_ADD, all[i].c.fd, &ev) < 0)
			r = -errno;
	}
	for (unsigned i = 0; r == 0 && i < slices && !bench_stop; i++) {
		r = their_slice(h, count, e);
		if (r == 0)
			r = our_slice(h, all, ep, count, e);
	}
	for (unsigned i = 0; i < FLIGHT; i++)
		client_close(&all[i].c);
	return r;
}

/* ---- the verdict ---- */

static double per_second(const struct slice *s)
{
	return ratio((double)s->count * 1e9, (double)s->ns);
}

static void add_ratio(struct http *h, const char *what, struct samples *ours, struct samples *theirs, double limit)
{
	report_target(&h->b->report,
		      &(struct target){
			      .part = PART,
			      .what = what,
			      .unit = "",
			      .measured = ratio((double)samples_at(ours, 500), (double)samples_at(theirs, 500)),
			      .limit = limit,
			      .bound = BOUND_MOST,
			      .why_not = theirs->n ? NULL : "the contender is not usable here",
		      });
}

static void judge(struct http *h)
{
	struct report *out = &h->b->report;

	report_fact(out, PART, "bwrap, 8 at once", per_second(&h->theirs), "per second");
	report_fact(out, PART, "create, exec, delete by 8 clients", per_second(&h->ours), "per second");
	report_fact(out, PART, "bwrap, CPU time of one", ratio((double)h->theirs.cpu_ns / 1e6, h->theirs.count), "ms");
	report_fact(out, PART, "the daemon's CPU time of one", ratio((double)h->ours.cpu_ns / 1e6, h->ours.count),
		    "ms");
	report_fact(out, PART, "the clients' CPU time of one", ratio((double)h->ours.client_ns / 1e6, h->ours.count),
		    "ms");
	add_ratio(h, "http create, exec, delete p50 / bwrap p50", h->lifecycle, h->bwrap, 0.45);
	report_target(out, &(struct target){
				   .part = PART,
				   .what = "http lifecycles per second of 8 clients / bwrap's at 8",
				   .unit = "",
				   .measured = ratio(per_second(&h->ours), per_second(&h->theirs)),
				   .limit = 1.3,
				   .bound = BOUND_LEAST,
				   .why_not = h->theirs.count ? NULL : "bwrap is not usable here",
			   });
	add_ratio(h, "http exec p50 / crun exec p50", h->exec, h->crun_exec, 0.3);
}

int bench_http(struct bench *b, struct err *e)
{
	static struct http h;
	int r;

	h.b = b;
	r = peers_open(&h.peers, e);
	if (r == 0) {
		name_rows(&h);
		r = serve_start(&h.serve, b, &(struct serve_opts){ 0 }, e);
	}
	if (r == 0)
		r = client_open(&h.client, &h.serve, e);
	if (r == 0)
		r = api_create(&h.client, NULL, h.box, e);
	if (r == 0)
		r = api_exec(&h.client, h.box, e); /* the first one finds cold caches */
	if (r == 0) {
		serve_settle(&h.serve);
		r = measure_rounds(&h, e);
	}
	if (r == 0)
		r = measure_flight(&h, e);
	if (r == 0)
		judge(&h);
	client_close(&h.client);
	serve_stop(&h.serve);
	peers_close(&h.peers);
	return r;
}
