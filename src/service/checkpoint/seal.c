/* Queues seals, and asks the warden for them. */
#include "service/device/device.h"
#include "service/checkpoint/seal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "service/sandbox/internal.h"
#include "service/network/network.h"
#include "service/network/cut.h"
#include "service/exec/exec.h"
#include "service/file/file.h"
#include "service/checkpoint/layer.h"
#include "service/link/warden_link.h"
#include "tier/tiers.h"
#include "service/checkpoint/struct.h"

#define TRIES 8U
#define BUSY_MS 100
#define BUSY_TRIES 100U
#define SWAP_TRIES 600U

struct sealing {
	struct sealing *next; /* of the same sandbox */
	struct sandbox *sandbox;
	struct checkpoint *c;
	enum memory_request memory;
	bool asked; /* for memory, this time */
	uint64_t begun_ns;
	unsigned tries, busy, swaps;
	uv_timer_t *timer; /* waits for the end of a seal whose caller has gone */
	sandbox_done_fn *fn;
	void *arg;
	int r;
	struct err e;
	struct memory_cuts cuts; /* of its processes */
	struct net_flush flush;
	struct turn_wait wait;
};

static void start(struct sealing *x);

static void free_timer(uv_handle_t *h)
{
	free(h);
}

static void on_again(uv_timer_t *t)
{
	start(t->data);
}

/* The warden is at what an API process asked for that has died since, or what was asked twice. */
static void start_later(struct sealing *x)
{
	if (!x->timer) {
		x->timer = malloc(sizeof(*x->timer));
		if (!x->timer)
			abort();
		uv_timer_init(x->sandbox->service->loop, x->timer);
		x->timer->data = x;
	}
	uv_timer_start(x->timer, on_again, BUSY_MS, 0);
}

static void on_told(void *arg)
{
	struct sealing *x = arg;

	x->fn(x->arg, x->r, x->r < 0 ? &x->e : NULL);
	checkpoint_unref(x->c);
	sandbox_rest(x->sandbox);
	sandbox_unref(x->sandbox);
	if (x->timer)
		uv_close((uv_handle_t *)x->timer, free_timer);
	free(x);
}

static void finish(struct sealing *x, int r)
{
	struct sandbox *b = x->sandbox;
	struct checkpoint *c = x->c;

	x->r = r;
	if (r < 0 && c->held) {
		c->held = false;
		layer_drop(b->service, c->id);
	}
	b->sealing = x->next;
	turn_after(b->service->turn, &x->wait, on_told, x);
	if (b->sealing)
		start(b->sealing);
}

/* The layers of its sandbox, down to the layer's parent: the warden may have joined some. */
static int put_chain(struct checkpoint *c, const char *parent, struct err *e)
{
	struct sandbox_spec *s = c->chain;
	uint32_t n = 0;

	while (parent[0] && n < s->layers && strcmp(s->layer[n], parent))
		n++;
	if (parent[0] && n == s->layers)
		return err_set(e, ERR_INTERNAL, -EBADMSG, "layer '%s' is based on '%s', but its sandbox is not", c->id,
			       parent);
	n += parent[0] != '\0';
	if (n >= SPEC_LAYERS)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %d layers", SPEC_LAYERS);
	c->image_layers = c->image_layers < n ? c->image_layers : n;
	memcpy(s->layer[n], c->id, sizeof(c->id));
	s->layers = n + 1;
	return 0;
}

static int save_execs(struct sealing *x)
{
	AUTO(buf_done) struct buf text = BUF_INIT(4 * MIB);

	if (exec_save(x->sandbox, x->begun_ns, &text) < 0)
		return err_set(&x->e, ERR_EXHAUSTED, -ENOMEM, "no memory for a checkpoint");
	free(x->c->execs);
	x->c->execs = buf_take(&text);
	return 0;
}

/*
 * Processes that cannot be carried: that is for the caller to decide on. The warden's word says which, and why. -EBUSY: it
 * is still at what an API process asked for that has died since; that says nothing about processes, and is over soon.
 */
static bool refuses(const struct sealing *x, int r)
{
	return x->asked && r < 0 && r != -EEXIST && r != -ESRCH && r != -ECANCELED && r != -EBUSY &&
	       x->e.kind != ERR_EXHAUSTED;
}

static int refused(struct sealing *x, int r)
{
	/* Nothing runs: then the files are all there is. */
	if (x->e.kind == ERR_NOT_FOUND) {
		x->memory = MEMORY_NO;
		x->e = (struct err){ 0 };
		return 0;
	}
	if (x->memory == MEMORY_YES) {
		err_because(&x->e, WHY_CANNOT_CARRY);
		if (!x->e.remedy[0])
			err_remedy(&x->e, "leave `memory` out, or use \"auto\", to save only the files");
		return r;
	}
	free(x->c->refused);
	x->c->refused = strdup(x->e.msg);
	x->memory = MEMORY_NO;
	x->e = (struct err){ 0 };
	return 0;
}

/* Of all addresses its programs may know: more than at that moment does no harm. */
static void on_names(void *arg)
{
	AUTO(buf_done) struct buf names = BUF_INIT(2 * MIB);
	struct sealing *x = arg;
	const struct net_state *net = x->sandbox->net;
	int r = 0;

	free(x->c->cut);
	x->c->cut = cut_text(&x->cuts, net);
	if (net && net->nnames) {
		r = net_state_names_write(net, &names);
		if (r < 0)
			r = err_set(&x->e, ERR_EXHAUSTED, -ENOMEM, "no memory for a checkpoint");
		else
			x->c->names = buf_take(&names);
	}
	finish(x, r);
}

static void on_sealed(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sealing *x = arg;
	struct checkpoint *c = x->c;
	const struct msg_layer *l = a ? &a->rep->layer : NULL;

	if (e)
		x->e = *e;
	if (r == -EBUSY && x->busy++ < BUSY_TRIES) {
		layer_drop(x->sandbox->service, c->id);
		c->held = false;
		start_later(x);
		return;
	}
	/*
	 * Repeated after the warden's death, when the first seal had finished: that layer has no owner, and will be
	 * swept.
	 */
	if (r == -EEXIST && x->tries++ < TRIES) {
		layer_drop(x->sandbox->service, c->id);
		c->held = false;
		start(x);
		return;
	}
	if (refuses(x, r)) {
		r = refused(x, r);
		if (r == 0) {
			layer_drop(x->sandbox->service, c->id);
			c->held = false;
			start(x);
			return;
		}
	}
	if (r == -ESRCH || r == -ECANCELED)
		r = err_set(&x->e, WHY_CHANGED_MEANWHILE, -ESRCH, "sandbox '%s' was ended or restored in the meantime",
			    x->sandbox->request->name);
	if (r == 0)
		r = put_chain(c, l->parent, &x->e);
	/* A machine's layer always has memory; the request decides whether its processes continue. */
	if (r == 0 && x->asked && l->flags & MSG_LAYER_MEMORY)
		r = save_execs(x);
	if (r == 0) {
		c->memory = x->asked && l->flags & MSG_LAYER_MEMORY;
		x->cuts = a->rep->cuts;
		c->memory_size = l->memory;
		c->size = l->size;
		c->files = l->files;
		c->pause_ns = a->rep->arg;
		memcpy(c->sum, l->sum, sizeof(c->sum));
	}
	x->flush = (struct net_flush){ .fn = on_names, .arg = x };
	if (r < 0)
		finish(x, r);
	else if (sandbox_net_flushed(x->sandbox, &x->flush))
		on_names(x);
}

static int config_of(const struct sandbox *b, struct checkpoint *c, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&text);

	jout_object(&j, NULL);
	sandbox_request_write_config(b->request, &j);
	jout_end(&j);
	free(c->config);
	c->config = jout_done(&j) < 0 ? NULL : buf_take(&text);
	return c->config ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a checkpoint");
}

static int ready(const struct sandbox *b, struct err *e)
{
	if (b->opened)
		return 0;
	if (b->state == SANDBOX_LOST)
		return sandbox_lost(b, e);
	/* A sandbox in the making is known to its maker alone, which may use it once it is ready. */
	if (b->state != SANDBOX_RUNNING && b->state != SANDBOX_PAUSED &&
	    !(b->state == SANDBOX_MAKING && b->maker && b->handle))
		return err_set(e, WHY_CHANGED_MEANWHILE, -ESRCH, "sandbox '%s' has ended", b->request->name);
	return 0;
}

static void start(struct sealing *x)
{
	struct sandbox *b = x->sandbox;
	struct checkpoint *c = x->c;
	int r;

	/* Of one that is being restored nothing would come: what takes its place is sealed. */
	if (b->swap && b->state != SANDBOX_ENDING && x->swaps++ < SWAP_TRIES) {
		start_later(x);
		return;
	}
	r = ready(b, &x->e);
	if (r == 0)
		r = config_of(b, c, &x->e);
	if (r == 0 && x->tries) {
		r = id_new(c->id, sizeof(c->id));
		if (r < 0)
			err_sys(&x->e, ERR_INTERNAL, r, "make an id");
	}
	if (r < 0) {
		finish(x, r);
		return;
	}
	snprintf(c->parent, sizeof(c->parent), "%s", b->request->checkpoint);
	c->chain->layers = b->request->spec->layers;
	c->image_layers = b->request->image_layers;
	memcpy(c->chain->layer, b->request->spec->layer, sizeof(c->chain->layer));
	layer_hold(b->service, c->id);
	c->held = true;
	if (x->memory != MEMORY_NO && (r = devices_refuse_memory(b, &x->e)) < 0 && (r = refused(x, r)) < 0) {
		finish(x, r);
		return;
	}
	x->asked = x->memory != MEMORY_NO;
	/* Those that only wait for more to do would be waited for; in a machine they would be part of what is saved. */
	if (x->asked || tier_is_machine(b->request->spec->flags))
		file_workers_drop(b);
	x->begun_ns = clock_real_ns();
	layer_may_go(b->service, c->id);
	STEP("checkpoint.begun");
	warden_link_call_layer(b->service->warden, WARDEN_SEAL, b->handle,
			       !x->asked ? WARDEN_FILES :
					   (c->soon ? WARDEN_MEMORY_SOON : WARDEN_WITH_MEMORY) |
						   (c->network == NETWORK_REFUSE ? WARDEN_REFUSE_NETWORK : 0U),
			       c->id, on_sealed, x);
}

void seal_sandbox(struct sandbox *b, struct checkpoint *c, enum memory_request memory, sandbox_done_fn *fn, void *arg)
{
	struct sealing *x = calloc(1, sizeof(*x)), **last = &b->sealing;

	if (!x)
		abort();
	*x = (struct sealing){ .sandbox = b, .c = c, .memory = memory, .fn = fn, .arg = arg };
	sandbox_ref(b);
	sandbox_use(b);
	checkpoint_ref(c);
	while (*last)
		last = &(*last)->next;
	*last = x;
	if (b->sealing == x)
		start(x);
}
