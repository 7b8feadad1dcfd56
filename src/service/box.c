#include "service/box.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "driver/link.h"
#include "proto/wire.h"
#include "service/box_impl.h"
#include "service/event.h"
#include "service/exec.h"
#include "service/file.h"
#include "service/jin.h"
#include "service/pool.h"
#include "service/service_impl.h"
#include "service/template.h"
#include "service/wlink.h"

#define BREAKS_MAX 3U

/* Who waits for a box: one caller, or several that asked for the same key. */
struct box_op {
	struct box_op *next;
	struct box *box;
	struct who who;
	bool found; /* it was there, or in the making, already */
	box_made_fn *made;
	box_done_fn *done;
	void *arg;
	struct err err; /* when ->r < 0 */
	int r;
	const char *kind; /* of the audit record */
	struct turn_wait wait;
};

const char *box_state_name(enum box_state s)
{
	switch (s) {
	case BOX_MAKING:
		return "making";
	case BOX_RUNNING:
		return "running";
	case BOX_PAUSED:
		return "paused";
	case BOX_LOST:
		return "lost";
	case BOX_ENDING:
		return "ending";
	}
	return "unknown";
}

static int lost(const struct box *b, struct err *e)
{
	err_set(e, ERR_LOST, -ESRCH, "sandbox '%s' is lost: its first process died", b->want->name);
	err_remedy(e, "delete it and create another");
	return -ESRCH;
}

struct tenant_quota box_quota(const struct box_want *w)
{
	const struct spec_limits *l = &w->spec->limits;

	return (struct tenant_quota){ .sandboxes = 1, .cpu_milli = l->cpu_milli, .memory = l->memory, .disk = l->disk };
}

void box_ref(struct box *b)
{
	b->refs++;
}

void box_unref(struct box *b)
{
	if (--b->refs)
		return;
	assert(!b->making && !b->execs);
	alink_close(&b->link);
	fd_close(b->group);
	box_want_free(b->want);
	free(b);
}

void box_use(struct box *b)
{
	b->calls++;
	b->used_ns = clock_real_ns();
}

void box_rest(struct box *b)
{
	b->calls--;
	b->used_ns = clock_real_ns();
}

static void on_told(void *arg)
{
	struct box_op *op = arg;
	const struct err *e = op->r < 0 ? &op->err : NULL;

	if (op->made)
		op->made(op->arg, op->r < 0 ? NULL : op->box, op->found, e);
	else if (op->done)
		op->done(op->arg, op->r, e);
	if (op->box)
		box_unref(op->box);
	free(op);
}

/* The callback comes when what happened is stored. */
static void tell(struct service *s, struct box_op *op, int r, const struct err *e)
{
	op->r = r;
	if (e)
		op->err = *e;
	turn_after(s->turn, &op->wait, on_told, op);
}

static struct box_op *op_new(struct box *b, const struct who *who, box_done_fn *done, void *arg)
{
	struct box_op *op = calloc(1, sizeof(*op));

	if (!op)
		abort(); /* a few hundred bytes: nothing would go on */
	op->box = b;
	if (b)
		box_ref(b);
	op->who = *who;
	op->done = done;
	op->arg = arg;
	return op;
}

/* --- what is stored --- */

int box_store(struct box *b, struct err *e)
{
	AUTO(buf_done) struct buf spec = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&spec);
	struct box_row row = {
		.id = b->id,
		.tenant = b->tenant->id,
		.name = b->want->name,
		.key = b->want->key[0] ? b->want->key : NULL,
		.handle = b->handle,
		.state = b->pooled ? "pooled" : box_state_name(b->state),
		.created_ns = b->created_ns,
		.expires_ns = b->expires_ns,
		.used_ns = b->used_ns,
		.next_exec = b->next_exec,
	};

	jout_object(&j, NULL);
	box_want_write(b->want, &j);
	box_origin_write(b->want, &j);
	jout_end(&j);
	if (jout_done(&j) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to store a sandbox");
	row.spec = spec.data;
	return b->up ? boxes_update(b->service->db, &row, e) : boxes_insert(b->service->db, &row, e);
}

/* The audit log says what was done ("sandbox.create"), an event what has happened ("sandbox.created"). */
static void tell_event(struct box *b, const char *kind)
{
	char text[40];
	bool verb = kind[strlen(kind) - 1] == 'e';

	if (!strcmp(kind, "sandbox.expire"))
		kind = "sandbox.delete"; /* to who watches it is the same */
	snprintf(text, sizeof(text), "%s%s", kind, verb ? "d" : "");
	event_add(b->service, b, text, "");
}

void box_note(struct box *b, const struct who *who, const char *kind)
{
	struct audit_rec rec = who_rec(who, kind);
	struct json *j;

	rec.sandbox = b->id;
	rec.tenant = b->tenant->id;
	j = audit_begin(b->service->audit, &rec);
	jout_str(j, "name", b->want->name);
	if (!strcmp(kind, "sandbox.create") || !strcmp(kind, "pool.fill")) {
		if (b->want->origin.template[0])
			jout_str(j, "template", b->want->origin.template);
		if (b->pool)
			jout_str(j, "pool", b->pool->name);
		if (b->want->origin.pooled)
			jout_bool(j, "pooled", true);
		jout_str(j, "image", b->want->spec->image);
		jout_str(j, "isolation", "container");
		jout_str(j, "network", "none");
		jout_u64(j, "memory", b->want->spec->limits.memory);
		jout_u64(j, "cpu_milli", b->want->spec->limits.cpu_milli);
	}
	audit_end(b->service->audit, NULL);
	tell_event(b, kind);
	turn_dirty(b->service->turn);
}

int idem_note(struct service *s, const struct tenant *t, const char *key, const uint8_t body[32], const char *answer,
	      struct err *e)
{
	struct idem_row row = { .tenant = t->id, .key = key, .status = 201, .answer = answer };

	row.created_ns = clock_real_ns();
	memcpy(row.body, body, sizeof(row.body));
	return idem_put(s->db, &row, e);
}

/* --- coming into being, and passing --- */

/* Its room, and its names, are others'. */
static void make_room(struct box *b)
{
	struct tenant_quota had = box_quota(b->want);

	box_unlist(b);
	map_del(&b->service->boxes, b->id);
	if (b->counted)
		tenant_give(b->tenant, &had);
	b->counted = false;
	pool_left(b);
}

/* Takes it out of everything and lets go of it. */
static void leave(struct box *b)
{
	make_room(b);
	file_workers_drop(b);
	exec_drop_all(b);
	alink_close(&b->link);
	b->state = BOX_ENDING;
	box_unref(b);
}

static void tell_makers(struct box *b, int r, const struct err *e)
{
	struct box_op *op;

	b->service->making--;
	while ((op = b->making)) {
		b->making = op->next;
		tell(b->service, op, r, e);
	}
}

/* It will not stand. */
static void give_up(struct box *b, int r, const struct err *e)
{
	struct service *s = b->service;

	if (b->handle)
		wlink_call(s->warden, WARDEN_DESTROY, b->handle, 0, NULL, NULL, NULL);
	tell_makers(b, r, e);
	leave(b);
}

static void stand(struct box *b)
{
	struct err e = { 0 };
	int r;

	b->state = BOX_RUNNING;
	r = box_store(b, &e);
	/* In the same transaction, so that a repeated request finds either both or nothing. */
	if (r == 0 && b->want->idem[0]) {
		r = idem_note(b->service, b->tenant, b->want->idem, b->want->idem_body, b->id, &e);
		if (r < 0)
			boxes_delete(b->service->db, b->id, NULL);
	}
	if (r < 0) {
		give_up(b, r, &e);
		return;
	}
	b->up = true;
	r = template_start(b, &e);
	if (r < 0) {
		boxes_delete(b->service->db, b->id, NULL);
		if (b->want->idem[0])
			idem_delete(b->service->db, b->tenant->id, b->want->idem, NULL);
		give_up(b, r, &e);
		return;
	}
	box_note(b, &b->making->who, b->pooled ? "pool.fill" : "sandbox.create");
	tell_makers(b, 0, NULL);
}

bool box_gone(struct box *b)
{
	struct err e = { 0 };
	int r;

	if (!b->handle || b->state == BOX_LOST || b->state == BOX_ENDING)
		return false;
	b->handle = 0;
	if (b->state == BOX_MAKING) { /* its agent died, and the warden before it could say so */
		r = err_set(&e, ERR_LOST, -ESRCH, "the sandbox ended before it stood");
		give_up(b, r, &e);
	} else {
		box_lose(b, "the warden does not know it any more");
	}
	return true;
}

void box_lose(struct box *b, const char *why)
{
	struct who nobody = { .tenant = b->tenant };

	if (b->state == BOX_LOST || b->state == BOX_ENDING)
		return;
	if (b->pooled) { /* nobody's loss */
		box_discard(b, why);
		return;
	}
	log_warn("sandbox %s is lost: %s", b->id, why);
	b->state = BOX_LOST;
	alink_close(&b->link);
	exec_lose_all(b);
	if (b->handle)
		wlink_call(b->service->warden, WARDEN_DESTROY, b->handle, 0, NULL, NULL, NULL);
	b->handle = 0;
	box_store(b, NULL);
	box_note(b, &nobody, "sandbox.lost");
}

/* --- the agent's frames --- */

static void on_ready(struct box *b, const struct frame *f)
{
	struct wire_in r = { f->payload, f->payload + f->len, false };
	uint32_t version = wire_get_u32(&r), abi = wire_get_u32(&r);

	if (!r.bad && version == FRAME_VERSION)
		b->receipt.landlock_abi = abi;
}

static void on_failed(struct box *b, const struct frame *f)
{
	struct err e = { 0 };
	int r = link_error(f, "make the sandbox", &e, NULL);

	if (b->state == BOX_MAKING)
		give_up(b, r, &e);
	else
		box_lose(b, "the agent failed");
}

static void on_frame(void *arg, int r, const struct frame *f, int *fds, size_t nfds)
{
	struct box *b = arg;
	struct err e = { 0 };

	box_ref(b);
	if (r < 0 && b->state == BOX_MAKING) {
		r = err_set(&e, ERR_LOST, r, "the agent died before the sandbox stood");
		give_up(b, r, &e);
	} else if (r == -EPIPE && b->breaks++ < BREAKS_MAX) {
		/* Dead, or it gave up on us since we did not read for too long: the warden can tell. */
		b->found = true;
		b->synced = false;
		box_reattach(b);
		service_soon(b->service);
	} else if (r < 0) {
		box_lose(b, r == -EPIPE ? "its first process has ended" : "its agent talked nonsense");
	} else if (f->type == FRAME_SYNCED) {
		b->breaks = 0;
		exec_synced(b);
	} else if (f->id) {
		exec_frame(b, f, fds, nfds);
	} else if (f->type == FRAME_READY) {
		on_ready(b, f);
	} else if (f->type == FRAME_UP && b->state == BOX_MAKING) {
		stand(b);
	} else if (f->type == FRAME_FAILED) {
		on_failed(b, f);
	}
	box_unref(b);
}

static void on_counted(void *arg, int r, const struct wlink_answer *a, const struct err *e)
{
	struct box *b = arg;

	(void)e;
	if (r == 0)
		b->stat = a->rep->stat;
	box_unref(b);
}

int box_attach(struct box *b, int sock, const struct msg_receipt *receipt, struct err *e)
{
	uint32_t abi = b->receipt.landlock_abi;

	/* What the limits stopped so far is not to be blamed on the next exec. */
	if (b->found) {
		box_ref(b);
		wlink_call_first(b->service->warden, WARDEN_STAT, b->handle, 0, on_counted, b);
	}
	msg_get_receipt(receipt, &b->receipt);
	b->receipt.landlock_abi = abi;
	alink_close(&b->link);
	return alink_open(&b->link, b->service->loop, sock, on_frame, b, e);
}

static void on_reattached(void *arg, int r, const struct wlink_answer *w, const struct err *e)
{
	struct box *b = arg;
	struct err why = { 0 };

	b->attaching = false;
	if (e)
		why = *e;
	if (b->state != BOX_RUNNING && b->state != BOX_PAUSED) {
		box_unref(b);
		return;
	}
	if (r == 0 && w->nfds && !b->link.poll) {
		r = box_attach(b, w->fds[0], &w->rep->receipt, &why);
		if (r == 0) {
			w->fds[0] = -1;
			exec_sync(b);
		}
	}
	/* No room for us with an agent that does not run yet: the next tick tries again. */
	if (r == -EAGAIN)
		service_soon(b->service);
	else if (r < 0)
		box_lose(b, r == -EPIPE || r == -ESRCH ? "its first process has ended" : why.msg);
	box_unref(b);
}

void box_reattach(struct box *b)
{
	if (b->attaching || b->link.poll || !b->found || b->state != BOX_RUNNING)
		return;
	b->attaching = true;
	box_ref(b);
	wlink_call(b->service->warden, WARDEN_ATTACH, b->handle, 0, NULL, on_reattached, b);
}

/* --- create --- */

static void on_created(void *arg, int r, const struct wlink_answer *a, const struct err *e)
{
	struct box *b = arg;
	struct err why = { 0 };

	if (e)
		why = *e;
	if (r < 0) {
		if (!why.msg[0])
			err_set(&why, ERR_LOST, r, "the warden is gone");
		give_up(b, r, &why);
		box_unref(b);
		return;
	}
	b->handle = a->rep->handle;
	if (a->nfds > 2 && a->rep->arg) {
		b->group = a->fds[2];
		b->group_no = a->rep->arg;
		a->fds[2] = -1;
	}
	r = box_attach(b, a->fds[0], &a->rep->receipt, &why);
	if (r < 0)
		give_up(b, r, &why);
	else
		a->fds[0] = -1;
	box_unref(b);
}

static int begin(struct service *s, const struct who *who, struct box_want *want, struct box_op *op, struct err *e)
{
	struct tenant_quota quota = box_quota(want);
	struct sandbox_spec spec;
	struct box *b;
	int r;

	if (s->draining)
		return err_set(e, ERR_EXHAUSTED, -ESHUTDOWN, "the daemon is about to stop");
	while (s->o.sandboxes_max && s->boxes.count >= s->o.sandboxes_max && !want->origin.ready)
		if (!pool_yield(s, NULL))
			break;
	if (s->o.sandboxes_max && s->boxes.count >= s->o.sandboxes_max) {
		err_set(e, ERR_EXHAUSTED, -EDQUOT, "this host has %zu sandboxes, as many as it may", s->boxes.count);
		err_remedy(e, "delete some, or raise sandboxes_max in the configuration");
		return -EDQUOT;
	}
	b = calloc(1, sizeof(*b));
	if (!b)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	*b = (struct box){ .service = s, .tenant = who->tenant, .want = want, .refs = 1, .group = -1, .next_exec = 1 };
	b->synced = true;
	b->pooled = want->origin.ready;
	b->created_ns = b->used_ns = clock_real_ns();
	b->expires_ns = want->timeout_ms ? b->created_ns + want->timeout_ms * 1000000ULL : 0;
	r = id_new(b->id, sizeof(b->id));
	if (r < 0)
		err_sys(e, ERR_INTERNAL, r, "make an id");
	if (r == 0 && !want->name[0])
		snprintf(want->name, sizeof(want->name), "%s", b->id);
	if (r == 0)
		r = tenant_take(who->tenant, &quota, e);
	while (r == -EDQUOT && !want->origin.ready && pool_yield(s, who->tenant))
		r = tenant_take(who->tenant, &quota, e);
	if (r == 0) {
		r = box_list(b, e);
		b->counted = r == 0;
		if (r < 0)
			tenant_give(who->tenant, &quota);
	}
	if (r < 0) {
		b->want = NULL; /* the caller's still */
		box_unref(b);
		return r;
	}
	pool_joined(b);
	s->making++;
	op->box = b;
	box_ref(b);
	b->making = op;
	box_ref(b); /* the call's */
	want_spec(want, &spec);
	spec.tenant = who->tenant->number;
	wlink_call(s->warden, WARDEN_CREATE, 0, 0, &spec, on_created, b);
	return 0;
}

void box_create(struct service *s, const struct who *who, struct box_want *want, box_made_fn *fn, void *arg)
{
	struct box *there = box_by_key(s, who, want);
	struct box_op *op = op_new(there, who, NULL, arg);
	struct err e = { 0 };
	int r = 0;

	op->made = fn;
	if (there) {
		op->found = true;
		box_want_free(want);
		if (there->state == BOX_MAKING) {
			struct box_op **last = &there->making;

			while (*last)
				last = &(*last)->next;
			*last = op;
			return;
		}
		there->used_ns = clock_real_ns();
	} else {
		r = box_from_pool(s, who, want, &op->box, &e);
		if (r == 0) {
			r = begin(s, who, want, op, &e);
			if (r == 0)
				return;
		}
		if (r < 0)
			box_want_free(want);
	}
	tell(s, op, r < 0 ? r : 0, &e);
}

/* --- delete --- */

/*
 * The row is gone: from now on whoever finds the sandbox ends it, so the answer need not wait for that. The shorter the time between the two, the
 * fewer callers are left in doubt by a crash.
 */
static void on_unstored(void *arg)
{
	struct box_op *op = arg;
	struct box *b = op->box;

	if (b->handle)
		wlink_call(b->service->warden, WARDEN_DESTROY, b->handle, 0, NULL, NULL, NULL);
	b->service->ending--;
	leave(b);
	on_told(op);
}

void box_delete(struct box *b, const struct who *who, const char *kind, box_done_fn *fn, void *arg)
{
	struct box_op *op = op_new(b, who, fn, arg);

	op->kind = kind;
	b->state = BOX_ENDING;
	box_unlist(b);
	exec_lose_all(b);
	/* First the row: dying in between leaves a sandbox that nobody knows, and not one that seems to be lost. */
	op->r = boxes_delete(b->service->db, b->id, &op->err);
	if (op->r == 0)
		box_note(b, &op->who, op->kind);
	b->service->ending++;
	turn_after(b->service->turn, &op->wait, on_unstored, op);
}

void box_discard(struct box *b, const char *why)
{
	const struct who daemon = { .tenant = b->tenant };
	struct box_op *op = op_new(b, &daemon, NULL, NULL);
	struct audit_rec rec = who_rec(&daemon, "pool.drop");
	struct json *j;

	b->state = BOX_ENDING;
	exec_lose_all(b);
	op->r = boxes_delete(b->service->db, b->id, &op->err);
	rec.sandbox = b->id;
	j = audit_begin(b->service->audit, &rec);
	if (b->pool)
		jout_str(j, "pool", b->pool->name);
	jout_str(j, "why", why);
	audit_end(b->service->audit, NULL);
	make_room(b);
	b->service->ending++;
	turn_after(b->service->turn, &op->wait, on_unstored, op);
}

/* --- pause, resume --- */

static void on_frozen(void *arg, int r, const struct wlink_answer *a, const struct err *e)
{
	struct box_op *op = arg;
	struct box *b = op->box;
	bool pause = !strcmp(op->kind, "sandbox.pause");

	(void)a;
	if (r == 0 && (b->state == BOX_RUNNING || b->state == BOX_PAUSED)) {
		b->state = pause ? BOX_PAUSED : BOX_RUNNING;
		exec_clock(b, pause);
		box_reattach(b);
		r = box_store(b, &op->err);
		box_note(b, &op->who, op->kind);
		e = &op->err;
	} else if (r == 0) {
		r = err_set(&op->err, ERR_CONFLICT, -ESRCH, "the sandbox has ended meanwhile");
		e = &op->err;
	}
	tell(b->service, op, r, e);
}

static void freeze(struct box *b, const struct who *who, bool pause, box_done_fn *fn, void *arg)
{
	struct box_op *op = op_new(b, who, fn, arg);
	enum box_state want = pause ? BOX_PAUSED : BOX_RUNNING;
	struct err e = { 0 };

	op->kind = pause ? "sandbox.pause" : "sandbox.resume";
	if (b->state == want)
		tell(b->service, op, 0, NULL);
	else if (b->state == BOX_LOST)
		tell(b->service, op, lost(b, &e), &e);
	else
		wlink_call(b->service->warden, pause ? WARDEN_FREEZE : WARDEN_THAW, b->handle, 0, NULL, on_frozen, op);
}

void box_pause(struct box *b, const struct who *who, box_done_fn *fn, void *arg)
{
	freeze(b, who, true, fn, arg);
}

void box_resume(struct box *b, const struct who *who, box_done_fn *fn, void *arg)
{
	freeze(b, who, false, fn, arg);
}

/* --- the rest --- */

int box_update(struct box *b, const struct who *who, uint64_t timeout_ms, uint64_t idle_ms, const char *name,
	       struct kv *metadata, struct err *e)
{
	int r = b->state == BOX_LOST ? lost(b, e) : 0;

	if (r == 0 && name)
		r = box_rename(b, name, e);
	if (r < 0)
		return r;
	if (timeout_ms != UINT64_MAX) {
		b->want->timeout_ms = timeout_ms;
		b->expires_ns = timeout_ms ? clock_real_ns() + timeout_ms * 1000000ULL : 0;
	}
	if (idle_ms != UINT64_MAX)
		b->want->idle_ms = idle_ms;
	if (metadata) {
		kv_done(&b->want->metadata);
		b->want->metadata = *metadata;
		*metadata = (struct kv){ 0 };
	}
	service_soon(b->service);
	r = box_store(b, e);
	if (r == 0)
		box_note(b, who, "sandbox.update");
	return r;
}

static void on_stat(void *arg, int r, const struct wlink_answer *a, const struct err *e)
{
	struct box_op *op = arg;

	if (r == 0)
		op->box->stat = a->rep->stat;
	tell(op->box->service, op, r, e);
}

void box_stat(struct box *b, box_done_fn *fn, void *arg)
{
	struct who nobody = { .tenant = b->tenant };
	struct box_op *op = op_new(b, &nobody, fn, arg);
	struct err e = { 0 };

	if (b->handle)
		wlink_call(b->service->warden, WARDEN_STAT, b->handle, 0, NULL, on_stat, op);
	else
		tell(b->service, op, lost(b, &e), &e);
}

int box_ready(const struct box *b, struct err *e)
{
	if (b->state == BOX_RUNNING)
		return 0;
	if (b->state == BOX_PAUSED) {
		err_set(e, ERR_CONFLICT, -EBUSY, "sandbox '%s' is paused", b->want->name);
		err_remedy(e, "resume it first");
		return -EBUSY;
	}
	return lost(b, e);
}

static void on_group(void *arg, int r, const struct wlink_answer *a, const struct err *e)
{
	struct box *b = arg;

	if (r < 0 && r != -ESRCH)
		log_warn("sandbox %s: no group for an exec: %s", b->id, e ? e->msg : "the warden is gone");
	if (r == 0 && a->nfds == 1 && b->group < 0 && b->state != BOX_ENDING) {
		b->group = a->fds[0];
		b->group_no = a->rep->arg;
		a->fds[0] = -1;
	} else if (r == 0 && b->handle) {
		wlink_call(b->service->warden, WARDEN_GROUP_END, b->handle, a->rep->arg, NULL, NULL, NULL);
	}
	exec_group_came(b, r, e);
	box_unref(b);
}

static void end_group(struct box *b)
{
	if (b->ended_group && b->handle)
		wlink_call(b->service->warden, WARDEN_GROUP_END, b->handle, b->ended_group, NULL, NULL, NULL);
	b->ended_group = 0;
}

void box_flush(struct box *b)
{
	for (unsigned i = 0; i < b->nrelease; i++)
		alink_send(&b->link, FRAME_RELEASE, b->release[i], NULL, 0, NULL, 0);
	b->nrelease = 0;
	end_group(b);
}

void box_put_off(struct box *b, uint32_t exec, uint64_t group)
{
	if (b->nrelease == ARRAY_LEN(b->release))
		box_flush(b);
	b->release[b->nrelease++] = exec;
	if (group) {
		end_group(b);
		b->ended_group = group;
	}
	b->service->fresh++;
	service_soon(b->service);
}

void box_want_group(struct box *b)
{
	end_group(b); /* so that it can be had again */
	box_ref(b);
	wlink_call(b->service->warden, WARDEN_GROUP, b->handle, 0, NULL, on_group, b);
}
