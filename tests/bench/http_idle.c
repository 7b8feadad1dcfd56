/*
 * A daemon with a crowd: thousands of connections and hundreds of sandboxes that do nothing. An exec there takes turns
 * with one in a daemon that has nobody else, so that whatever else the machine does hits both alike; what the crowd
 * costs the kernel as a whole hits both, too, so the same daemon before the crowd came is told beside it.
 */
#include "daemon.h"
#include "base/base.h"
#include "base/clock.h"

#include <unistd.h>

#define PART "crowd"

struct crowd {
	struct bench *b;
	struct serve busy, empty;
	struct client busy_client, empty_client, *conns;
	char busy_box[API_ID], empty_box[API_ID], (*boxes)[API_ID];
	unsigned nconns, nboxes, want_conns, want_boxes;
	struct samples *before, *alone, *beside;
	struct serve_memory fresh, used, crowded, after;
};

static int timed_exec(struct client *c, const char *id, struct samples *to, struct err *e)
{
	uint64_t t = clock_mono_ns();
	int r = api_exec(c, id, e);

	if (r == 0 && to)
		samples_add(to, clock_mono_ns() - t);
	return r;
}

static int open_one(struct serve *s, struct bench *b, struct client *c, char id[API_ID], struct err *e)
{
	int r = serve_start(s, b, &(struct serve_opts){ 0 }, e);

	if (r == 0)
		r = client_open(c, s, e);
	if (r == 0)
		r = api_create(c, NULL, id, e);
	/* Idle: with its pool full and one sandbox, and nothing left to do. */
	if (r == 0)
		serve_settle(s);
	return r;
}

static int let_in(struct crowd *x, struct err *e)
{
	int r = 0;

	while (r == 0 && x->nboxes < x->want_boxes && !bench_stop) {
		r = api_create(&x->busy_client, NULL, x->boxes[x->nboxes], e);
		if (r == 0)
			r = api_exec(&x->busy_client, x->boxes[x->nboxes++], e);
	}
	if (r < 0)
		return err_wrap(e, r, "sandbox %u of %u", x->nboxes, x->want_boxes);
	/* Each is a client that has called once and stays. */
	while (r == 0 && x->nconns < x->want_conns && !bench_stop) {
		struct client *c = &x->conns[x->nconns++];

		r = client_open(c, &x->busy, e);
		if (r == 0)
			r = client_call(c, "GET", "/healthz", NULL, 200, NULL, e);
		buf_done(&c->in);
	}
	return r < 0 ? err_wrap(e, r, "connection %u of %u", x->nconns, x->want_conns) : 0;
}

/* That none of them was hung up on: else there was no crowd. */
static int still_there(struct crowd *x, struct err *e)
{
	for (unsigned i = 0; i < x->nconns; i++) {
		int r = client_call(&x->conns[i], "GET", "/healthz", NULL, 200, NULL, e);

		buf_done(&x->conns[i].in);
		if (r < 0)
			return err_wrap(e, r, "connection %u of %u", i + 1, x->nconns);
	}
	return 0;
}

static int send_away(struct crowd *x, struct err *e)
{
	int r = 0;

	for (; x->nconns; x->nconns--)
		client_close(&x->conns[x->nconns - 1]);
	for (; r == 0 && x->nboxes; x->nboxes--)
		r = api_delete(&x->busy_client, x->boxes[x->nboxes - 1], e);
	return r;
}

static int measure(struct crowd *x, struct err *e)
{
	const unsigned execs = x->b->quick ? 50 : 2000, warm = 10;
	int r = serve_memory(&x->busy, &x->fresh, e);

	for (unsigned i = 0; r == 0 && i < execs + warm && !bench_stop; i++)
		r = timed_exec(&x->busy_client, x->busy_box, i < warm ? NULL : x->before, e);
	if (r == 0)
		r = serve_memory(&x->busy, &x->used, e);
	if (r == 0)
		r = let_in(x, e);
	if (r < 0)
		return r;
	serve_settle(&x->busy);
	serve_settle(&x->empty);
	r = serve_memory(&x->busy, &x->crowded, e);
	for (unsigned i = 0; r == 0 && i < execs + warm && !bench_stop; i++) {
		r = timed_exec(&x->empty_client, x->empty_box, i < warm ? NULL : x->alone, e);
		if (r == 0)
			r = timed_exec(&x->busy_client, x->busy_box, i < warm ? NULL : x->beside, e);
	}
	if (r == 0)
		r = still_there(x, e);
	if (r == 0)
		r = send_away(x, e);
	if (r < 0)
		return r;
	serve_settle(&x->busy);
	return serve_memory(&x->busy, &x->after, e);
}

static void judge(struct crowd *x)
{
	struct report *out = &x->b->report;
	const char *few = x->b->quick ? "too few in a quick run" : NULL;
	double p99 = (double)samples_at(x->beside, 990);

	report_fact(out, PART, "sandboxes that do nothing", x->want_boxes, "");
	report_fact(out, PART, "connections that do nothing", x->want_conns, "");
	report_fact(out, PART, "exec p50 in the crowd / in an empty daemon",
		    ratio((double)samples_at(x->beside, 500), (double)samples_at(x->alone, 500)), "");
	report_fact(out, PART, "exec p99 in the crowd / before it came", ratio(p99, (double)samples_at(x->before, 990)),
		    "");
	report_fact(out, PART, "RSS, API process, idle", x->fresh.api_mib, "MiB");
	report_fact(out, PART, "RSS, warden, idle", x->fresh.warden_mib, "MiB");
	report_fact(out, PART, "PSS of all three, idle", x->fresh.pss_mib, "MiB");
	report_fact(out, PART, "RSS of all three, after some execs", x->used.rss_mib, "MiB");
	report_fact(out, PART, "RSS of all three, with the crowd", x->crowded.rss_mib, "MiB");
	report_fact(out, PART, "RSS, API process, with the crowd", x->crowded.api_mib, "MiB");
	report_fact(out, PART, "RSS, API process, after the crowd", x->after.api_mib, "MiB");
	report_fact(out, PART, "PSS of all three, after the crowd", x->after.pss_mib, "MiB");
	report_target(out, &(struct target){
				   .part = PART,
				   .what = "exec p99 in the crowd / in an empty daemon",
				   .unit = "",
				   .measured = ratio(p99, (double)samples_at(x->alone, 990)),
				   .limit = 2,
				   .bound = BOUND_MOST,
				   .why_not = few,
			   });
	report_target(out, &(struct target){
				   .part = PART,
				   .what = "daemon RSS, idle",
				   .unit = "MiB",
				   .measured = x->fresh.rss_mib,
				   .limit = 40,
				   .bound = BOUND_MOST,
			   });
	report_target(out, &(struct target){
				   .part = PART,
				   .what = "daemon RSS, idle again after the crowd",
				   .unit = "MiB",
				   .measured = x->after.rss_mib,
				   .limit = 40,
				   .bound = BOUND_MOST,
				   .why_not = few,
			   });
}

int bench_crowd(struct bench *b, struct err *e)
{
	static struct crowd x;
	int r;

	x.b = b;
	x.want_boxes = b->quick ? 20 : 500;
	x.want_conns = b->quick ? 200 : 5000;
	x.conns = calloc(x.want_conns, sizeof(*x.conns));
	x.boxes = calloc(x.want_boxes, sizeof(*x.boxes));
	x.before = report_row(&b->report, "http exec, before the crowd");
	x.alone = report_row(&b->report, "http exec, empty daemon beside it");
	x.beside = report_row(&b->report, "http exec, in the crowd");
	r = x.conns && x.boxes ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	if (r == 0)
		r = open_one(&x.busy, b, &x.busy_client, x.busy_box, e);
	if (r == 0)
		r = open_one(&x.empty, b, &x.empty_client, x.empty_box, e);
	if (r == 0)
		r = measure(&x, e);
	if (r == 0)
		judge(&x);
	for (unsigned i = 0; i < x.nconns; i++)
		client_close(&x.conns[i]);
	client_close(&x.busy_client);
	client_close(&x.empty_client);
	serve_stop(&x.busy);
	serve_stop(&x.empty);
	free(x.conns);
	free(x.boxes);
	return r;
}
