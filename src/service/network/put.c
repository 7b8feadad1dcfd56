/*
 * A policy is changed while its sandbox runs. First the kernel's rules, all at once or not at all; then the row; then
 * egress, whose word that it is in force is what the caller waits for. A failure of the first leaves everything as it
 * was. When egress does not answer, the new policy stays noted, and is what it gets when it is back: until then there is
 * no network at all.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/network/internal.h"
#include "service/state/event.h"
#include "service/secret/give.h"
#include "service/link/warden_link.h"

#define PUT_MS 10000

struct net_put {
	struct net_run *run; /* NULL: the change has ended; it is freed when no callback is pending */
	struct sandbox_op *op; /* the caller that waits; NULL: it was answered */
	struct net_request *request; /* until the sandbox owns it */
	struct nets *nets;
	uint64_t number;
	uv_timer_t *timer;
	bool asked; /* the warden's answer is to come */
};

static void free_timer(uv_handle_t *h)
{
	free(h);
}

static void put_free(struct net_put *p)
{
	net_request_free(p->request);
	uv_close((uv_handle_t *)p->timer, free_timer);
	free(p);
}

/* Answers once; freed when no callback is pending. */
static void tell(struct net_put *p, int r, const struct err *e)
{
	struct net_run *run = p->run;

	if (run && run->put == p)
		run->put = NULL;
	p->run = NULL;
	uv_timer_stop(p->timer);
	if (p->op)
		sandbox_tell(p->op->sandbox->service, p->op, r, e);
	p->op = NULL;
	if (!p->asked)
		put_free(p);
}

void net_put_fail(struct net_run *r, int ret, const struct err *e)
{
	if (r->put)
		tell(r->put, ret, e);
}

void net_put_done(struct net_run *r, int errnum)
{
	struct net_put *p = r->put;
	struct err e = { 0 };
	int ret = 0;

	if (!p || p->asked) /* an answer to something before it */
		return;
	if (errnum) {
		ret = err_set(&e, ERR_INTERNAL, -errnum, "cloche-egress rejects the sandbox: %s", strerror(errnum));
		err_remedy(&e, "it has no network now; try again, or restore it from a checkpoint");
	}
	tell(p, ret, &e);
}

static void on_late(uv_timer_t *t)
{
	struct net_put *p = t->data;
	struct err e = { 0 };

	err_set(&e, WHY_SERVICE_LOST, -ETIMEDOUT, "%s does not answer: the change is not in effect%s",
		p->asked ? "the warden" : "cloche-egress", p->asked ? "" : " yet");
	err_remedy(&e, p->asked ? "see the daemon's log, and try again" :
				  "it is stored and takes effect when cloche-egress is back; until then the sandbox "
				  "has no network");
	tell(p, -ETIMEDOUT, &e);
}

static void note(struct sandbox *b, const struct who *who)
{
	struct audit_rec rec = who_rec(who, "network.set");
	AUTO(buf_done) struct buf text = BUF_INIT(256 * KIB);
	struct json j = JSON_INIT(&text);

	rec.sandbox = b->id;
	rec.tenant = b->tenant->id;
	net_request_write(b->request->net, "network", audit_begin(b->service->audit, &rec));
	audit_end(b->service->audit, NULL);
	jout_object(&j, NULL);
	net_request_write(b->request->net, "network", &j);
	jout_end(&j);
	if (jout_done(&j) == 0 && text.len > 2) { /* without its braces */
		text.data[text.len - 1] = '\0';
		event_add(b->service, b, "network.set", text.data + 1);
	}
	turn_dirty(b->service->turn);
}

static bool other_budget(const struct net_request *a, const struct net_request *b)
{
	static const struct net_request none;

	a = a ? a : &none;
	b = b ? b : &none;
	return memcmp(&a->budget, &b->budget, sizeof(a->budget)) ||
	       memcmp(&a->tree_budget, &b->tree_budget, sizeof(a->tree_budget));
}

/* It is what the sandbox has from now on. */
static int keep(struct sandbox *b, const struct who *who, struct net_request **request, struct err *e)
{
	struct net_request *old = b->request->net;
	int r;

	b->request->net = *request;
	r = sandbox_store(b, e);
	if (r < 0) {
		b->request->net = old;
		return r;
	}
	if (b->net && other_budget(old, *request))
		b->net->budget_ns = clock_real_ns();
	*request = NULL;
	net_request_free(old);
	note(b, who);
	return 0;
}

static void on_steered(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct net_put *p = arg;
	struct net_run *run = p->run;
	struct err why = { 0 };

	p->asked = false;
	if (!p->op) { /* it timed out, or the sandbox is gone */
		if (r == 0)
			net_run_resteer(p->nets, p->number);
		put_free(p);
		return;
	}
	if (e)
		why = *e;
	if (r == 0)
		r = keep(run->sandbox, &p->op->who, &p->request, &why);
	if (r < 0) {
		if (a && !a->rep->result)
			net_run_resteer(p->nets, p->number);
		tell(p, r, &why);
		return;
	}
	if (a->nfds == EGRESS_SOCKETS) {
		fd_close_many(run->sock, EGRESS_SOCKETS);
		for (unsigned i = 0; i < EGRESS_SOCKETS; i++) {
			run->sock[i] = a->fds[i];
			a->fds[i] = -1;
		}
	}
	net_run_sync(run);
}

static int check(struct sandbox *b, const struct net_request *request, struct err *e)
{
	if (b->state == SANDBOX_LOST)
		return sandbox_lost(b, e);
	if (b->swap || b->sleep || b->waking)
		return err_set(e, WHY_BUSY, -EBUSY, "sandbox '%s' is being restored, hibernated or woken up",
			       b->request->name);
	if (b->run && b->run->put)
		return err_set(e, WHY_BUSY, -EBUSY, "another change of its network is in progress");
	if (net_request_terminates(request) && !(b->secrets && b->secrets->ca_cert)) {
		err_set(e, WHY_WRONG_STATE, -ENOKEY, "network: sandbox '%s' has no CA, which +terminate needs",
			b->request->name);
		err_remedy(e, "create a sandbox with a +terminate rule, or restore one as new with it");
		return -ENOKEY;
	}
	return net_request_check(b->service->o.net, request, e);
}

static void begin(struct sandbox *b, struct sandbox_op *op, struct net_request *request)
{
	struct net_put *p = calloc(1, sizeof(*p));
	struct steer_rules rules;
	struct net_run *run;

	if (!p || !(p->timer = malloc(sizeof(*p->timer))))
		abort();
	if (!b->net)
		b->net = net_state_new(net_tree_get(b->service->nets, b->tree));
	if (!b->run) {
		net_run_new(b)->ready = true;
		net_run_list(b->run, b->handle);
	}
	run = b->run;
	p->run = run;
	p->nets = run->nets;
	p->number = run->number;
	p->op = op;
	p->request = request;
	p->asked = true;
	run->put = p;
	uv_timer_init(b->service->loop, p->timer);
	p->timer->data = p;
	uv_timer_start(p->timer, on_late, PUT_MS, 0);
	net_request_steer(b->service->o.net, request, &rules);
	warden_link_net(b->service->warden, b->handle, !run->held && run->sock[0] < 0 && !run->asking, &rules,
			on_steered, p);
}

void sandbox_net_put(struct sandbox *b, const struct who *who, struct net_request *request, sandbox_done_fn *fn,
		     void *arg)
{
	struct sandbox_op *op = sandbox_op_new(b, who, fn, arg);
	AUTO(net_request_free) struct net_request *mine = request;
	struct err e = { 0 };
	int r = check(b, request, &e);

	if (r == 0 && b->handle && (b->run || net_request_on(request))) {
		begin(b, op, TAKE_PTR(mine));
		return;
	}
	if (r == 0)
		r = keep(b, who, &mine, &e);
	sandbox_tell(b->service, op, r, &e);
}
