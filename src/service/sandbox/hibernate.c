/* Hibernation: of a sandbox that sleeps there are layers and rows, and nothing else. */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "service/sandbox/disk.h"
#include "service/sandbox/internal.h"
#include "service/sandbox/part.h"
#include "service/sandbox/queue.h"
#include "service/checkpoint/struct.h"
#include "service/state/json_read.h"
#include "service/internal.h"
#include "service/state/wall.h"
#include "service/link/warden_link.h"

#define SETTLE_MS 20 /* for file workers to end; a frozen one could not */
#define AGAIN_MS 100
#define TRIES 30U
#define STEADY_TRIES 300U
#define QUIET_MS 2
#define QUIET_TRIES 5000U

/*
 * Hibernates a sandbox. It is frozen first, so that nothing happens between its image and its end; its pipes are
 * released before, so that unread output is in the image, and read once: they are not read again until it has ended, or
 * continues. Then the row says that it sleeps, and when that is stored the sandbox is ended. A crash before leaves it
 * as it was: the next API process thaws it.
 */
struct sleep {
	struct sandbox *b;
	struct who who;
	bool must_carry;
	enum network_request network;
	bool froze; /* by us */
	bool let_go; /* of its pipes */
	unsigned tries, steady_tries, quiet_tries;
	uint64_t until_ns; /* what may be over in a moment is tried again until then; 0: no seal was begun yet */
	uint64_t handle;
	uv_timer_t *timer;
	char *why; /* its processes could not be carried */
	sandbox_done_fn *fn;
	void *arg;
	int r;
	struct err e;
	struct turn_wait wait;
};

static void begin(struct sleep *x);
static void look_after_waiters(struct sandbox *b, int r, const struct err *e);

static void free_timer(uv_handle_t *h)
{
	free(h);
}

static void on_told(void *arg)
{
	struct sleep *x = arg;
	struct sandbox *b = x->b;
	/* By itself: no caller gets the reason. What is in conflict now may work at the next attempt. */
	const bool refused = !x->fn && x->r < 0 && x->e.kind != ERR_CONFLICT;

	STEP("hibernate.stored");
	if (x->r == 0)
		warden_link_call(b->service->warden, WARDEN_DESTROY, x->handle, 0, NULL, NULL, NULL);
	if (refused && !b->idle_refused) /* once, not at each attempt */
		log_warn("sandbox '%s': it is idle, but was not hibernated: %s", b->id, x->e.msg);
	b->idle_refused = refused;
	b->sleep = NULL;
	if (x->fn)
		x->fn(x->arg, x->r, x->r < 0 ? &x->e : NULL);
	look_after_waiters(b, 0, NULL);
	uv_close((uv_handle_t *)x->timer, free_timer);
	free(x->why);
	sandbox_unref(b);
	free(x);
}

/* It continues as it was. */
static void thaw(struct sleep *x)
{
	struct sandbox *b = x->b;

	if (b->handle == x->handle && x->froze && b->state == SANDBOX_RUNNING) {
		sandbox_thaw(b, false);
		b->service->commands->clock(b, false);
	}
	b->service->commands->take_up(b, b->handle == x->handle && x->let_go && b->link.poll);
	x->froze = x->let_go = false;
}

static void finish(struct sleep *x, int r)
{
	if (r < 0)
		thaw(x);
	x->r = r;
	turn_after(x->b->service->turn, &x->wait, on_told, x);
}

static void fall_asleep(struct sleep *x, const struct checkpoint *c)
{
	struct sandbox *b = x->b;
	struct sandbox_spec *s = b->request->spec;
	struct tenant_quota less = b->charged;
	int r;

	if (!c->memory)
		sandbox_parts_lost(b, LOSS_REPLACED);
	s->layers = c->chain->layers;
	b->request->image_layers = c->image_layers;
	memcpy(s->layer, c->chain->layer, sizeof(s->layer));
	b->asleep = c->memory ? ASLEEP_MEMORY : ASLEEP_FILES;
	sandbox_set_state(b, SANDBOX_HIBERNATED);
	b->handle = 0;
	b->synced = b->hands_off = false;
	b->found = false;
	b->idle_paused = false;
	b->tried_ns = 0; /* once it is awake, its idle time counts as before */
	b->nrelease = 0;
	if (b->request->disk[0]) /* all of it is in the layers */
		disk_may_go(b->service, b->request->disk);
	memset(b->request->disk, 0, sizeof(b->request->disk));
	b->ended_group = 0;
	agent_link_close(&b->link);
	sandbox_parts_lost(b, LOSS_ASLEEP);
	sandbox_drop_group(b);
	less.memory = less.cpu_milli = less.gpus = 0;
	less.checkpoint_bytes = c->size + c->memory_size;
	tenant_give(b->tenant, &b->charged);
	tenant_force(b->tenant, &less);
	b->charged = less;
	free(b->memory_refused);
	b->memory_refused = TAKE_PTR(x->why);
	free(b->cut);
	b->cut = c->cut ? strdup(c->cut) : NULL;
	sandbox_revive_over(b); /* callers that wait for the execs of its image need not any more */
	r = sandbox_store(b, &x->e);
	if (r == 0)
		sandbox_note_state(b, &x->who, "sandbox.hibernate");
	STEP("hibernate.noted");
	finish(x, r);
}

static void on_again(uv_timer_t *t)
{
	begin(t->data);
}

/* Some exec is about to begin or to end. The image would not have it, and it would count as lost. */
static void begin_later(struct sleep *x)
{
	if (x->steady_tries++ >= STEADY_TRIES) {
		finish(x, err_set(&x->e, WHY_BUSY, -EBUSY,
				  "execs of sandbox '%s' are starting, or their output is being read",
				  x->b->request->name));
		return;
	}
	thaw(x);
	uv_timer_start(x->timer, on_again, AGAIN_MS, 0);
}

/* Of a frozen one: its agent has heard all that we said, and we know all that it has to say. */
static bool is_steady(const struct sandbox *b)
{
	return !b->service->commands->any_between(b) && b->synced && agent_link_is_read(&b->link);
}

static void on_sealed(void *arg, struct checkpoint *c, const struct err *e)
{
	struct sleep *x = arg;
	struct sandbox *b = x->b;

	STEP("hibernate.sealed");
	if (c && b->handle == x->handle)
		agent_link_read(&b->link);
	if (c && b->handle == x->handle && b->missed) {
		begin_later(x); /* that image has no owner: it is swept */
		return;
	}
	if (c && b->handle == x->handle && (b->state == SANDBOX_RUNNING || b->state == SANDBOX_PAUSED)) {
		fall_asleep(x, c);
		return;
	}
	if (c) {
		finish(x, err_set(&x->e, WHY_CHANGED_MEANWHILE, -ESRCH,
				  "the sandbox was ended or restored in the meantime"));
		return;
	}
	x->e = *e;
	/* Files were being read, or the agent was busy; or the warden is at a seal whose caller is gone. */
	if ((e->errnum == EAGAIN || e->errnum == EBUSY) && x->tries++ < TRIES && clock_mono_ns() < x->until_ns) {
		thaw(x);
		uv_timer_start(x->timer, on_again, AGAIN_MS, 0);
	} else if (e->kind == ERR_REFUSED && !x->must_carry && !x->why) {
		x->why = strdup(e->msg);
		sandbox_parts_save(b, &x->who, MEMORY_NO, NETWORK_DROP, on_sealed, x);
	} else {
		finish(x, -(e->errnum ? e->errnum : EIO));
	}
}

static bool is_there(struct sleep *x)
{
	const struct sandbox *b = x->b;

	if (b->handle == x->handle && (b->state == SANDBOX_RUNNING || b->state == SANDBOX_PAUSED))
		return true;
	finish(x, err_set(&x->e, WHY_CHANGED_MEANWHILE, -ESRCH, "the sandbox was ended or restored in the meantime"));
	return false;
}

static void on_quiet(uv_timer_t *t);

/* What a worker takes out of a pipe behind the copy of it would come twice: it is waited for. */
static void seal(struct sleep *x)
{
	struct sandbox *b = x->b;

	if (!x->until_ns)
		x->until_ns = clock_mono_ns() + TRIES * AGAIN_MS * 1000000ULL;
	if (!b->service->commands->any_read(b))
		sandbox_parts_save(b, &x->who, x->why ? MEMORY_NO : MEMORY_YES, x->network, on_sealed, x);
	else if (x->quiet_tries++ < QUIET_TRIES)
		uv_timer_start(x->timer, on_quiet, QUIET_MS, 0);
	else
		finish(x, err_set(&x->e, WHY_BUSY, -EBUSY, "output of execs of sandbox '%s' is being written to disk",
				  b->request->name));
}

static void on_quiet(uv_timer_t *t)
{
	struct sleep *x = t->data;

	if (is_there(x))
		seal(x);
}

/* Nothing runs in it. */
static void let_go(struct sleep *x)
{
	x->b->service->commands->let_go(x->b);
	x->let_go = true;
	x->quiet_tries = 0;
	seal(x);
}

static void on_frozen(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sleep *x = arg;
	struct sandbox *b = x->b;

	(void)a;
	if (r == -EBUSY && x->tries++ < TRIES) { /* a checkpoint is being made of it */
		uv_timer_start(x->timer, on_again, AGAIN_MS, 0);
		return;
	}
	if (r < 0 && e)
		x->e = *e;
	if (r == 0 && (b->handle != x->handle || b->state != SANDBOX_RUNNING))
		r = err_set(&x->e, WHY_CHANGED_MEANWHILE, -ESRCH, "the sandbox was ended or restored in the meantime");
	if (r < 0) {
		finish(x, r);
		return;
	}
	STEP("hibernate.frozen");
	x->froze = true;
	b->service->commands->clock(b, true);
	agent_link_read(&b->link); /* all that it said before it was frozen */
	if (b->handle != x->handle || b->state != SANDBOX_RUNNING) {
		finish(x, err_set(&x->e, WHY_CHANGED_MEANWHILE, -ESRCH,
				  "the sandbox was ended or restored in the meantime"));
		return;
	}
	if (!is_steady(b)) {
		begin_later(x);
		return;
	}
	let_go(x);
}

static void begin(struct sleep *x)
{
	struct sandbox *b = x->b;

	if (!is_there(x))
		return;
	if (b->service->commands->any_between(b)) {
		begin_later(x);
		return;
	}
	if (b->state == SANDBOX_RUNNING) {
		warden_link_call(b->service->warden, WARDEN_FREEZE, b->handle, 0, NULL, on_frozen, x);
		return;
	}
	let_go(x);
}

static void hibernate_now(struct sandbox *b, const struct who *who, const struct sandbox_hibernate_opts *o,
			  sandbox_done_fn *fn, void *arg)
{
	struct err e = { 0 };
	struct sleep *x;
	int r = 1;

	if (b->state == SANDBOX_LOST)
		r = sandbox_lost(b, &e);
	else if (b->sleep || b->swap || b->waking)
		r = err_set(&e, WHY_BUSY, -EBUSY, "sandbox '%s' is being hibernated, woken up or restored",
			    b->request->name);
	else if (b->state == SANDBOX_HIBERNATED)
		r = 0;
	if (r <= 0) {
		sandbox_tell(b->service, sandbox_op_new(b, who, fn, arg), r, &e);
		return;
	}
	x = calloc(1, sizeof(*x));
	if (x)
		x->timer = malloc(sizeof(*x->timer));
	if (!x || !x->timer)
		abort();
	x->b = b;
	x->who = *who;
	x->must_carry = !o->may_end;
	x->network = o->refuse_network ? NETWORK_REFUSE : NETWORK_DROP;
	x->handle = b->handle;
	x->fn = fn;
	x->arg = arg;
	uv_timer_init(b->service->loop, x->timer);
	x->timer->data = x;
	sandbox_ref(b);
	b->sleep = x;
	/* A worker that another caller still uses is waited for by the seal. */
	uv_timer_start(x->timer, on_again, b->files ? SETTLE_MS : 0, 0);
	sandbox_parts_resting(b);
}

struct hibernate_call {
	struct sandbox *b;
	struct who who;
	struct sandbox_hibernate_opts o;
	sandbox_done_fn *fn;
	void *arg;
};

static void on_free(void *arg, int r, const struct err *e)
{
	struct hibernate_call *x = arg;

	if (r < 0)
		x->fn(x->arg, r, e);
	else
		hibernate_now(x->b, &x->who, &x->o, x->fn, x->arg);
	free(x);
}

void sandbox_hibernate(struct sandbox *b, const struct who *who, const struct sandbox_hibernate_opts *o,
		       sandbox_done_fn *fn, void *arg)
{
	struct hibernate_call *x;

	if (!fn) { /* by itself: it is tried again later */
		hibernate_now(b, who, o, fn, arg);
		return;
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		abort();
	*x = (struct hibernate_call){ .b = b, .who = *who, .o = *o, .fn = fn, .arg = arg };
	sandbox_when_free(b, on_free, x);
}

/* --- waking up --- */

void sandbox_tell_waiters(struct sandbox *b, int r, const struct err *e)
{
	struct sandbox_waiter *w;

	while ((w = b->waiters)) {
		b->waiters = w->next;
		w->next = NULL;
		w->fn(w->arg, r, e);
	}
}

static void on_woken(void *arg, int r, const struct err *e)
{
	struct sandbox *b = arg;

	b->waking = false;
	sandbox_tell_waiters(b, r, e);
	sandbox_unref(b);
}

void sandbox_forget_memory(struct sandbox *b)
{
	if (b->state != SANDBOX_HIBERNATED || b->asleep != ASLEEP_MEMORY || b->sleep || b->waking)
		return;
	sandbox_parts_lost(b, LOSS_REPLACED);
	b->asleep = ASLEEP_FILES;
	free(b->memory_refused);
	b->memory_refused = strdup("the wake request asked for its files only");
	free(b->cut);
	b->cut = NULL;
}

int sandbox_request_again(const struct sandbox *b, struct sandbox_request **ret, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(4 * MIB);
	AUTO(json_decref) json_t *o = NULL;
	struct json j = JSON_INIT(&text);
	struct sandbox_request *w = NULL;
	int r;

	jout_object(&j, NULL);
	sandbox_request_write(b->request, &j);
	jout_end(&j);
	r = jout_done(&j) < 0 ? err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox") :
				json_read_begin(text.data, text.len, &o, e);
	if (r == 0)
		r = sandbox_request_parse(&b->service->o, o, true, &w, e);
	if (r < 0)
		return r;
	w->spec->layers = b->request->spec->layers;
	w->image_layers = b->request->image_layers;
	memcpy(w->spec->layer, b->request->spec->layer, sizeof(w->spec->layer));
	memcpy(w->checkpoint, b->request->checkpoint, sizeof(w->checkpoint));
	w->origin = b->request->origin;
	w->wake = true;
	w->memory = b->asleep == ASLEEP_MEMORY;
	*ret = w;
	return 0;
}

static void wake(struct sandbox *b)
{
	struct who daemon = { .tenant = b->tenant };
	struct sandbox_request *w = NULL;
	struct err e = { 0 };
	int r = sandbox_request_again(b, &w, &e);

	b->waking = true;
	sandbox_ref(b);
	if (r < 0)
		sandbox_tell(b->service, sandbox_op_new(b, &daemon, on_woken, b), r, &e);
	else
		sandbox_replace(b, &daemon, w, on_woken, b);
}

static void look_after_waiters(struct sandbox *b, int r, const struct err *e)
{
	if (!b->waiters || b->waking || b->sleep || b->swap || b->starting)
		return;
	if (b->state == SANDBOX_HIBERNATED)
		wake(b);
	else
		sandbox_tell_waiters(b, r, e);
}

void sandbox_wake_waiters(struct sandbox *b)
{
	look_after_waiters(b, 0, NULL);
}

bool sandbox_awake(struct sandbox *b, struct sandbox_waiter *w)
{
	struct who daemon = { .tenant = b->tenant };
	struct sandbox_waiter **last = &b->waiters;
	bool paused = b->state == SANDBOX_PAUSED && b->idle_paused;

	if (b->state != SANDBOX_HIBERNATED && !b->sleep && !b->waking && !paused)
		return true;
	b->used_ns = wall_now(b->service);
	while (*last)
		last = &(*last)->next;
	w->next = NULL;
	*last = w;
	if (b->state == SANDBOX_HIBERNATED && !b->sleep && !b->waking) {
		if (!b->swap) /* else when that is over: it may be awake then */
			wake(b);
	} else if (paused && !b->sleep && !b->waking) {
		b->waking = true;
		sandbox_ref(b);
		sandbox_resume(b, &daemon, on_woken, b);
	}
	return false;
}

void sandbox_wait_cancel(struct sandbox *b, struct sandbox_waiter *w)
{
	for (struct sandbox_waiter **p = &b->waiters; *p; p = &(*p)->next)
		if (*p == w) {
			*p = w->next;
			return;
		}
}
