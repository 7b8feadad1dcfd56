/* What is done to a sandbox that is there. */
#include "base/base.h"
#include "base/log.h"
#include "service/sandbox/internal.h"
#include "service/sandbox/part.h"
#include "service/template/pool.h"
#include "service/internal.h"
#include "service/state/wall.h"
#include "service/link/warden_link.h"
#include "service/template/struct.h"

/* --- delete --- */

static void destroy(struct sandbox *b)
{
	sandbox_parts_lost(b, LOSS_DESTROYED); /* first: open sockets of it keep its namespace */
	if (b->handle)
		warden_link_call(b->service->warden, WARDEN_DESTROY, b->handle, 0, NULL, NULL, NULL);
}

/*
 * The row is gone: from now on every restart ends the sandbox, so the answer need not wait for that, nor for waking the
 * warden. Its room is free before the answer, since the client's next request may need it. A daemon that drains ends
 * with its last answer: then the request is sent to the warden first.
 */
static void on_unstored(void *arg)
{
	struct sandbox_op *op = arg;
	struct sandbox *b = op->sandbox;
	bool first = b->service->draining;

	sandbox_ref(b);
	if (first)
		destroy(b);
	b->service->ending--;
	sandbox_make_room(b);
	sandbox_op_end(op);
	if (!first)
		destroy(b);
	sandbox_leave(b);
	sandbox_unref(b);
}

void sandbox_delete(struct sandbox *b, const struct who *who, const char *kind, sandbox_done_fn *fn, void *arg)
{
	struct sandbox_op *op = sandbox_op_new(b, who, fn, arg);

	op->kind = kind;
	sandbox_set_state(b, SANDBOX_ENDING);
	sandbox_unlist(b);
	sandbox_parts_lost(b, LOSS_DELETED);
	/*
	 * First the row: a crash in between leaves a sandbox without a row, which is ended, and not one that seems to
	 * be lost.
	 */
	op->r = sandboxes_delete(b->service->db, b->id, &op->err);
	if (op->r == 0)
		sandbox_note_state(b, &op->who, op->kind);
	b->service->ending++;
	turn_after(b->service->turn, &op->wait, on_unstored, op);
}

void sandbox_discard(struct sandbox *b, const char *why)
{
	const struct who daemon = { .tenant = b->tenant };
	struct sandbox_op *op = sandbox_op_new(b, &daemon, NULL, NULL);
	const struct sandbox_origin *origin = &b->request->origin;
	struct audit_rec rec = who_rec(&daemon, origin->run	? "run.over" :
						origin->work	? "image.work_over" :
						origin->pool[0] ? "pool.drop" :
								  "template.drop");
	struct json *j;

	sandbox_set_state(b, SANDBOX_ENDING);
	sandbox_parts_lost(b, LOSS_DELETED);
	op->r = sandboxes_delete(b->service->db, b->id, &op->err);
	rec.sandbox = b->id;
	j = audit_begin(b->service->audit, &rec);
	if (b->pool)
		jout_str(j, "pool", b->pool->name);
	jout_str(j, "why", why);
	audit_end(b->service->audit, NULL);
	sandbox_make_room(b);
	b->service->ending++;
	turn_after(b->service->turn, &op->wait, on_unstored, op);
}

/* --- pause, resume --- */

/* A call came while it was being frozen: it waits inside, and may be the last call for long. */
static bool used_again(const struct sandbox *b)
{
	return b->idle_paused && wall_now(b->service) - b->used_ns < b->request->idle.pause_ms * 1000000ULL;
}

static void on_frozen(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sandbox_op *op = arg;
	struct sandbox *b = op->sandbox;
	bool pause = !strcmp(op->kind, "sandbox.pause");

	(void)a;
	if (r == 0 && b->handle == op->handle && (b->state == SANDBOX_RUNNING || b->state == SANDBOX_PAUSED)) {
		sandbox_set_state(b, pause ? SANDBOX_PAUSED : SANDBOX_RUNNING);
		b->idle_paused = pause && !op->done;
		free(b->memory_refused); /* the reason from its last sleep was reported */
		b->memory_refused = NULL;
		b->service->commands->clock(b, pause);
		sandbox_reattach(b);
		sandbox_parts_reached(b);
		r = sandbox_store(b, &op->err);
		sandbox_note_state(b, &op->who, op->kind);
		e = &op->err;
		if (used_again(b))
			sandbox_resume(b, &op->who, NULL, NULL);
	} else if (r == 0) {
		r = err_set(&op->err, WHY_CHANGED_MEANWHILE, -ESRCH,
			    "the sandbox was ended or restored in the meantime");
		e = &op->err;
	}
	sandbox_tell(b->service, op, r, e);
}

/*
 * During a seal the warden refuses. A seal whose caller is gone (it died, or asked twice) leaves the sandbox as it was
 * before, which may be frozen.
 */
static void on_thawed(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sandbox_op *op = arg;
	struct sandbox *b = op->sandbox;

	(void)a;
	if (r == -EBUSY && b->handle == op->handle && b->state == SANDBOX_RUNNING) {
		b->thaw_due = true;
		service_soon(b->service);
		r = 0;
	}
	sandbox_tell(b->service, op, r, e);
}

void sandbox_thaw(struct sandbox *b, bool first)
{
	const struct who nobody = { .tenant = b->tenant };
	struct sandbox_op *op = sandbox_op_new(b, &nobody, NULL, NULL);

	b->thaw_due = false;
	if (first)
		warden_link_call_first(b->service->warden, WARDEN_THAW, b->handle, 0, on_thawed, op);
	else
		warden_link_call(b->service->warden, WARDEN_THAW, b->handle, 0, NULL, on_thawed, op);
}

static void freeze(struct sandbox *b, const struct who *who, bool pause, sandbox_done_fn *fn, void *arg)
{
	struct sandbox_op *op = sandbox_op_new(b, who, fn, arg);
	enum sandbox_state to = pause ? SANDBOX_PAUSED : SANDBOX_RUNNING;
	struct err e = { 0 };

	op->kind = pause ? "sandbox.pause" : "sandbox.resume";
	if (fn)
		b->idle_paused = b->idle_paused && !pause; /* from now on it is the caller's will */
	if (b->state == to && !pause && b->handle && !b->sleep && !b->swap)
		warden_link_call(b->service->warden, WARDEN_THAW, b->handle, 0, NULL, on_thawed, op);
	else if (b->state == to)
		sandbox_tell(b->service, op, 0, NULL);
	else if (b->state == SANDBOX_LOST)
		sandbox_tell(b->service, op, sandbox_lost(b, &e), &e);
	else if (!b->handle || b->sleep || b->opened)
		sandbox_tell(b->service, op, sandbox_ready(b, &e), &e);
	else
		warden_link_call(b->service->warden, pause ? WARDEN_FREEZE : WARDEN_THAW, b->handle, 0, NULL, on_frozen,
				 op);
}

void sandbox_pause(struct sandbox *b, const struct who *who, sandbox_done_fn *fn, void *arg)
{
	freeze(b, who, true, fn, arg);
}

void sandbox_resume(struct sandbox *b, const struct who *who, sandbox_done_fn *fn, void *arg)
{
	freeze(b, who, false, fn, arg);
}

/* --- the rest --- */

int sandbox_update(struct sandbox *b, const struct who *who, uint64_t timeout_ms, const struct idle_request *idle,
		   const char *name, struct kv *metadata, struct err *e)
{
	int r = b->state == SANDBOX_LOST ? sandbox_lost(b, e) : 0;

	if (r == 0 && name)
		r = sandbox_rename(b, name, e);
	if (r < 0)
		return r;
	if (timeout_ms != UINT64_MAX) {
		b->request->timeout_ms = timeout_ms;
		b->expires_ns = timeout_ms ? wall_now(b->service) + timeout_ms * 1000000ULL : 0;
	}
	if (idle)
		b->request->idle = *idle;
	if (metadata) {
		kv_done(&b->request->metadata);
		b->request->metadata = *metadata;
		*metadata = (struct kv){ 0 };
	}
	service_soon(b->service);
	r = sandbox_store(b, e);
	if (r == 0)
		sandbox_note_update(b, who);
	return r;
}

static void on_stat(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sandbox_op *op = arg;

	if (r == 0)
		op->sandbox->stat = a->rep->stat;
	sandbox_tell(op->sandbox->service, op, r, e);
}

void sandbox_stat(struct sandbox *b, sandbox_done_fn *fn, void *arg)
{
	struct who nobody = { .tenant = b->tenant };
	struct sandbox_op *op = sandbox_op_new(b, &nobody, fn, arg);
	struct err e = { 0 };

	if (b->state == SANDBOX_HIBERNATED || b->state == SANDBOX_STOPPED) {
		b->stat = (struct warden_stat){ 0 };
		sandbox_tell(b->service, op, 0, NULL);
	} else if (b->handle)
		warden_link_call(b->service->warden, WARDEN_STAT, b->handle, 0, NULL, on_stat, op);
	else
		sandbox_tell(b->service, op, sandbox_lost(b, &e), &e);
}

int sandbox_ready(const struct sandbox *b, struct err *e)
{
	if (b->state == SANDBOX_HIBERNATED || b->sleep) {
		err_set(e, WHY_SANDBOX_HIBERNATED, -EBUSY, "sandbox '%s' is %s", b->request->name,
			b->sleep ? "being hibernated" : "hibernated");
		err_remedy(e, "resume it first");
		return -EBUSY;
	}
	if (b->state == SANDBOX_RUNNING || b->opened)
		return 0;
	if (b->state == SANDBOX_STOPPED) {
		err_set(e, WHY_SANDBOX_STOPPED, -EBUSY, "sandbox '%s' is stopped", b->request->name);
		err_remedy(e, "start it first (`cloche start`, POST …/start)");
		return -EBUSY;
	}
	if (b->state == SANDBOX_PAUSED) {
		err_set(e, WHY_SANDBOX_PAUSED, -EBUSY, "sandbox '%s' is paused", b->request->name);
		err_remedy(e, "resume it first");
		return -EBUSY;
	}
	return sandbox_lost(b, e);
}
