/* How a sandbox comes into being. */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/sandbox/disk.h"
#include "service/sandbox/internal.h"
#include "service/sandbox/part.h"
#include "service/sandbox/system.h"
#include "service/template/pool.h"
#include "service/access/mount_may.h"
#include "service/internal.h"
#include "service/state/wall.h"
#include "service/link/warden_link.h"
#include "tier/tiers.h"

#include <sys/random.h>

/* --- pending calls --- */

/*
 * Wakes a warm process that was just restored. The client has its answer, and its next request takes a while to come.
 * Earlier, the process would occupy a processor that is needed for the answer.
 */
static void wake(const struct sandbox_op *op)
{
	struct sandbox *b = op->sandbox;

	if (op->r == 0 && !op->found && b->request->origin.reseeds && b->request->memory &&
	    !b->request->origin.pooled && !b->pooled)
		agent_link_send(&b->link, FRAME_WARM, FRAME_WARM_WAKE, NULL, 0, NULL, 0);
}

void sandbox_op_end(struct sandbox_op *op)
{
	const struct err *e = op->r < 0 ? &op->err : NULL;

	if (op->made) {
		op->made(op->arg, op->r < 0 ? NULL : op->sandbox, op->found, e);
		wake(op);
	} else if (op->done)
		op->done(op->arg, op->r, e);
	if (op->sandbox)
		sandbox_unref(op->sandbox);
	free(op);
}

static void on_told(void *arg)
{
	sandbox_op_end(arg);
}

void sandbox_tell(struct service *s, struct sandbox_op *op, int r, const struct err *e)
{
	op->r = r;
	if (e)
		op->err = *e;
	turn_after(s->turn, &op->wait, on_told, op);
}

struct sandbox_op *sandbox_op_new(struct sandbox *b, const struct who *who, sandbox_done_fn *done, void *arg)
{
	struct sandbox_op *op = calloc(1, sizeof(*op));

	if (!op)
		abort(); /* a few hundred bytes: without them nothing would work */
	op->sandbox = b;
	if (b) {
		sandbox_ref(b);
		op->handle = b->handle;
	}
	op->who = *who;
	op->done = done;
	op->arg = arg;
	return op;
}

int idem_note(struct service *s, const struct tenant *t, const char *key, const uint8_t body[32], const char *answer,
	      struct err *e)
{
	struct idem_row row = { .tenant = t->id, .key = key, .status = 201, .answer = answer };

	row.created_ns = clock_real_ns();
	memcpy(row.body, body, sizeof(row.body));
	return idem_put(s->db, &row, e);
}

int idem_answer(struct service *s, const struct tenant *t, const char *key, const uint8_t body[32], const char **ret,
		struct err *e)
{
	struct idem_row row;
	int r = idem_find(s->db, t->id, key, &row, e);

	if (r <= 0)
		return r;
	if (memcmp(row.body, body, sizeof(row.body)))
		return err_set(e, WHY_KEY_REUSED, -EEXIST, "this Idempotency-Key was used for another request");
	*ret = row.answer;
	return 1;
}

void sandbox_make_room(struct sandbox *b)
{
	sandbox_unlist(b);
	map_del(&b->service->sandboxes, b->id);
	tenant_give(b->tenant, &b->charged);
	b->charged = (struct tenant_quota){ 0 };
	sandbox_parts_left(b);
}

/* Takes it out of everything and lets go of it. */
void sandbox_leave(struct sandbox *b)
{
	sandbox_make_room(b);
	if (b->request->disk[0])
		disk_may_go(b->service, b->request->disk);
	sandbox_parts_ended(b);
	b->asleep = ASLEEP_NOT;
	agent_link_close(&b->link);
	sandbox_revive_over(b);
	sandbox_unref(b);
}

static void tell_makers(struct sandbox *b, int r, const struct err *e)
{
	struct sandbox_op *op;

	while ((op = b->making)) {
		b->making = op->next;
		sandbox_tell(b->service, op, r, e);
	}
}

/* It will not become ready. */
void sandbox_give_up(struct sandbox *b, int r, const struct err *e)
{
	const struct sandbox_maker *m = b->maker;
	struct service *s = b->service;

	sandbox_parts_lost(b, LOSS_DESTROYED);
	if (b->handle)
		warden_link_call(s->warden, WARDEN_DESTROY, b->handle, 0, NULL, NULL, NULL);
	b->handle = 0;
	sandbox_set_state(b, SANDBOX_ENDING);
	b->maker = NULL;
	if (m)
		m->failed(b->maker_arg, b, r, e);
	tell_makers(b, r, e);
	sandbox_leave(b);
}

/* Of the audit record. */
static const char *kind_made(const struct sandbox *b)
{
	if (!b->pooled)
		return "sandbox.create";
	if (b->request->origin.run)
		return "run.sandbox";
	if (b->request->origin.work)
		return "image.work";
	return b->request->origin.pool[0] ? "pool.fill" : "template.fill";
}

int sandbox_enter(struct sandbox *b, const struct who *who, struct err *e)
{
	const bool group_later = b->maker && b->maker->group_later;
	int r;

	sandbox_set_state(b, SANDBOX_RUNNING);
	sandbox_restored(b);
	r = sandbox_store_new(b, e);
	/* In the same transaction, so that a repeated request finds either both or nothing. */
	if (r == 0 && b->request->idem[0]) {
		r = idem_note(b->service, b->tenant, b->request->idem, b->request->idem_body, b->id, e);
		if (r < 0)
			sandboxes_delete(b->service->db, b->id, NULL);
	}
	if (r < 0) {
		sandbox_set_state(b, SANDBOX_MAKING);
		return r;
	}
	sandbox_parts_entered(b);
	sandbox_revive(b);
	r = sandbox_parts_start(b, e); /* behind execs that continue, which have their numbers already */
	if (r < 0) {
		sandbox_parts_lost(b, LOSS_UNDONE);
		sandboxes_delete(b->service->db, b->id, NULL);
		if (b->request->idem[0])
			idem_delete(b->service->db, b->tenant->id, b->request->idem, NULL);
		sandbox_set_state(b, SANDBOX_MAKING);
		return r;
	}
	b->maker = NULL;
	if (b->request->memory && !b->group_uid)
		b->group_uid = 1 + USER_ID; /* there may be a warm process in it */
	if (b->request->memory && b->group < 0 && !group_later)
		sandbox_ask_for_group(b); /* the first exec is likely to come soon */
	sandbox_note_state(b, who, kind_made(b));
	sandbox_parts_noted(b, who);
	return 0;
}

static void on_revived(void *arg, struct sandbox *b)
{
	(void)arg;
	tell_makers(b, 0, NULL);
}

static void agent_up(struct sandbox *b)
{
	struct err e = { 0 };
	int r;

	if (b->maker) {
		b->maker->up(b->maker_arg, b);
		return;
	}
	r = sandbox_enter(b, &b->making->who, &e);
	if (r < 0)
		sandbox_give_up(b, r, &e);
	else
		sandbox_when_revived(b, on_revived, NULL);
}

static void on_given(struct sandbox *b, int r, const struct err *e)
{
	if (b->state != SANDBOX_MAKING)
		return;
	if (r < 0)
		sandbox_give_up(b, r, e);
	else
		agent_up(b);
}

/* Nothing is asked of it before it has its secrets. */
void sandbox_up(struct sandbox *b)
{
	if (!sandbox_parts_prepare(b, on_given))
		agent_up(b);
}

/* --- create --- */

/* How machines run is known for sure once one was made. */
static void on_machines(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct service *s = arg;

	(void)e;
	if (r < 0 || a->rep->arg == MSG_MACHINES_UNKNOWN)
		return;
	s->o.kvm = a->rep->arg == MSG_MACHINES_KVM;
	snprintf(s->accel_why, sizeof(s->accel_why), "%.159s", a->rep->msg);
	s->o.accel_why = s->accel_why;
}

static void on_created(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sandbox *b = arg;
	const struct sandbox_spec *spec = b->request->spec;
	struct err why = { 0 };

	sandbox_parts_answered(b);
	if (tier_is_machine(spec->flags))
		warden_link_call(b->service->warden, WARDEN_MACHINES, 0, 0, NULL, on_machines, b->service);
	if (e)
		why = *e;
	if (r == 0 && b->state != SANDBOX_MAKING) { /* given up meanwhile */
		warden_link_call(b->service->warden, WARDEN_DESTROY, a->rep->handle, 0, NULL, NULL, NULL);
		r = -ECANCELED;
	} else if (r == 0) {
		b->handle = a->rep->handle;
		sandbox_parts_made(b, a);
		if (a->nfds > 2 && a->rep->arg) {
			b->group = a->fds[2];
			b->group_no = a->rep->arg;
			a->fds[2] = -1;
		}
		r = sandbox_attach(b, a->fds[0], &a->rep->receipt, &why);
		if (r == 0) {
			a->fds[0] = -1;
			sandbox_revive_ask(b);
		}
	} else if (!why.msg[0]) {
		err_set(&why, WHY_SERVICE_LOST, r, "the warden has ended");
	} else {
		r = sandbox_parts_refused(b, r, &why);
	}
	if (r < 0 && b->state == SANDBOX_MAKING)
		sandbox_give_up(b, r, &why);
	sandbox_unref(b);
}

/* No caller waits for it. */
static bool is_ahead(const struct sandbox_request *w)
{
	return w->origin.ready && (!w->origin.run || w->origin.ahead);
}

static int room_for(struct service *s, const struct sandbox_request *request, struct err *e)
{
	int r = s->draining ? err_set(e, WHY_STOPPING, -ESHUTDOWN, "the daemon is stopping") : service_room(s, e);

	if (r < 0)
		return r;
	while (s->o.sandboxes_max && s->sandboxes.count >= s->o.sandboxes_max && !is_ahead(request))
		if (!sandbox_parts_yield(s, NULL))
			break;
	if (!s->o.sandboxes_max || s->sandboxes.count < s->o.sandboxes_max)
		return 0;
	err_set(e, ERR_EXHAUSTED, -EDQUOT, "this host has %zu sandboxes, which is the limit", s->sandboxes.count);
	err_remedy(e, "delete some, or raise sandboxes_max in the configuration");
	return -EDQUOT;
}

struct tenant_quota sandbox_quota(const struct sandbox_request *w)
{
	const struct spec_limits *l = &w->spec->limits;
	struct tenant_quota q = {
		.sandboxes = 1, .cpu_milli = l->cpu_milli, .memory = l->memory, .disk = l->disk, .gpus = w->gpu_count
	};

	/* A machine of a checkpoint: besides what it writes there is its memory as it was, as long as it lives. */
	if (tier_is_machine(w->spec->flags) && w->spec->layers > w->image_layers)
		q.memory = l->memory > UINT64_MAX / 2 ? UINT64_MAX : 2 * l->memory;
	return q;
}

int sandbox_count(struct sandbox *b, struct err *e)
{
	const struct tenant_quota quota = sandbox_quota(b->request);
	int r = tenant_take(b->tenant, &quota, e);

	while (r == -EDQUOT && sandbox_parts_yield(b->service, b->tenant))
		r = tenant_take(b->tenant, &quota, e);
	if (r == 0)
		b->charged = quota;
	return r;
}

/* In the lists, and counted. One that is to take another's place has neither name nor key, and is not counted. */
static int claim(struct sandbox *b, const struct sandbox_plan *p, struct err *e)
{
	struct tenant_quota quota = sandbox_quota(b->request);
	int r;

	if (is_ahead(b->request) && b->request->origin.run)
		quota = (struct tenant_quota){ 0 }; /* the daemon's own idea: it counts when it is used */
	if (p->hidden)
		quota = (struct tenant_quota){ .memory = p->counted ? quota.memory : 0,
					       .disk = p->counted ? quota.disk : 0 };
	r = p->hidden && !p->counted ? 0 : tenant_take(b->tenant, &quota, e);
	while (r == -EDQUOT && !is_ahead(b->request) && sandbox_parts_yield(b->service, b->tenant))
		r = tenant_take(b->tenant, &quota, e);
	if (r < 0)
		return r;
	if (!p->hidden)
		r = sandbox_list(b, e);
	else if (map_put(&b->service->sandboxes, b->id, b) < 0)
		r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	if (r < 0)
		tenant_give(b->tenant, &quota);
	else
		b->charged = quota;
	return r;
}

/* Forks of one sandbox have its tree, and a sandbox that continues keeps its own. */
static int tree_new(const struct sandbox_plan *p, uint64_t *ret)
{
	uint64_t tree = p->like ? p->like->tree : p->tree;
	ssize_t n = 0;

	if (!tree)
		n = getrandom(&tree, sizeof(tree), 0);
	*ret = (tree & INT64_MAX) ? tree & INT64_MAX : 1;
	return n < 0 ? -errno : 0;
}

int sandbox_begin(struct service *s, const struct sandbox_plan *p, struct sandbox **ret, struct err *e)
{
	struct sandbox_request *request = p->request;
	struct sandbox_spec spec;
	struct sandbox *b;
	int r = p->hidden && !s->draining ? 0 : room_for(s, request, e);

	if (r == 0)
		r = mounts_may(&s->o, p->tenant, request->spec, e);
	request->replaces = p->like;
	if (r == 0)
		r = sandbox_parts_check(s, p->tenant, request, e);
	request->replaces = NULL;
	if (r < 0)
		return r;
	b = calloc(1, sizeof(*b));
	if (!b)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	*b = (struct sandbox){ .service = s,
			       .tenant = p->tenant,
			       .request = request,
			       .refs = 1,
			       .group = -1,
			       .group_code = -1,
			       .next_exec = 1 };
	b->maker = p->maker;
	b->maker_arg = p->arg;
	b->restored = TAKE_PTR(request->restored);
	b->synced = true;
	b->pooled = request->origin.ready;
	b->created_ns = b->used_ns = wall_now(b->service);
	b->expires_ns = request->timeout_ms ? b->created_ns + request->timeout_ms * 1000000ULL : 0;
	r = id_new(b->id, sizeof(b->id));
	/* A disk that no request asked for is not kept. */
	if (r == 0 && request->spec->flags & SPEC_DISK && !tier_is_machine(request->spec->flags) && !request->disk[0] &&
	    (!p->hidden || p->like))
		r = id_new(request->disk, sizeof(request->disk));
	if (r == 0 && request->disk[0] && !request->disk_again)
		disk_may_go(s, request->disk); /* until it is made */
	if (r == 0)
		r = tree_new(p, &b->tree);
	if (r < 0)
		err_sys(e, ERR_INTERNAL, r, "make an id");
	if (r == 0)
		r = sandbox_parts_begin(b, p, e);
	if (r == 0 && !request->name[0])
		snprintf(request->name, sizeof(request->name), "%s", b->id);
	if (r == 0)
		r = claim(b, p, e);
	if (r < 0) {
		request->restored = TAKE_PTR(b->restored);
		b->request = NULL; /* the caller's still */
		sandbox_unref(b);
		return r;
	}
	sandbox_ref(b); /* the call's */
	request_spec(request, &spec);
	spec.tenant = p->shared ? 0 : p->tenant->number;
	if (request->memory)
		spec.flags |= SPEC_MEMORY | (p->many ? SPEC_MANY : 0);
	if (p->once)
		spec.flags |= SPEC_ONCE;
	if (request->disk[0])
		memcpy(spec.disk, request->disk, ID_SIZE);
	if (request->disk_again)
		spec.flags |= SPEC_DISK_AGAIN;
	sandbox_parts_begun(b, p, &spec);
	warden_link_call(s->warden, WARDEN_CREATE, 0, 0, &spec, on_created, b);
	*ret = b;
	return 0;
}

static void on_key_started(void *arg, int r, const struct err *e)
{
	struct sandbox_op *op = arg;

	sandbox_tell(op->sandbox->service, op, r, e);
}

void sandbox_create(struct service *s, const struct who *who, struct sandbox_request *request, sandbox_made_fn *fn,
		    void *arg)
{
	struct sandbox *there = sandbox_by_key(s, who, request);
	struct sandbox_op *op;
	struct err e = { 0 };
	int r = 0;

	if (!there && sandbox_parts_ahead(s, who, request, &(struct sandbox_creation){ sandbox_create, fn, arg }))
		return;
	op = sandbox_op_new(there, who, NULL, arg);
	op->made = fn;
	if (!is_ahead(request))
		s->called_ns = clock_mono_ns();
	if (there) {
		op->found = true;
		sandbox_request_free(request);
		if (there->state == SANDBOX_MAKING) {
			struct sandbox_op **last = &there->making;

			while (*last)
				last = &(*last)->next;
			*last = op;
			return;
		}
		there->used_ns = wall_now(there->service);
		if (there->state == SANDBOX_STOPPED) {
			sandbox_start(there, who, on_key_started, op);
			return;
		}
	} else {
		r = service_room(s, &e);
		if (r == 0)
			r = sandbox_parts_check(s, who->tenant, request, &e);
		if (r == 0)
			r = sandbox_parts_take(s, who, request, &op->sandbox, &e);
		if (r == 0) {
			r = sandbox_begin(s, &(struct sandbox_plan){ .tenant = who->tenant, .request = request },
					  &there, &e);
			if (r == 0) {
				op->sandbox = there;
				sandbox_ref(there);
				there->making = op;
				return;
			}
		}
		if (r < 0)
			sandbox_request_free(request);
	}
	sandbox_tell(s, op, r < 0 ? r : 0, &e);
}
