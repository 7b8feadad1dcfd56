/* Creates, finds and ends sandboxes. */
#include "service/sandbox/sandbox.h"
#include "base/base.h"
#include "base/log.h"
#include "proto/link.h"
#include "proto/wire.h"
#include "service/sandbox/disk.h"
#include "service/sandbox/internal.h"
#include "service/sandbox/part.h"
#include "service/state/json_read.h"
#include "service/internal.h"
#include "service/state/wall.h"
#include "service/link/warden_link.h"
#include "tier/tiers.h"

#define BREAKS_MAX 3U

int sandbox_lost(const struct sandbox *b, struct err *e)
{
	const char *why = b->lost_to_oom ? "its memory was full, and its first process was killed for it" :
					   "its first process died";

	if (b->request->disk[0]) {
		err_set(e, WHY_SANDBOX_LOST, -ESRCH, "sandbox '%s' is lost: %s; its files are kept", b->request->name,
			why);
		err_remedy(e, "start it again (`cloche start`), copy its files, or delete it");
		return -ESRCH;
	}
	err_set(e, WHY_SANDBOX_LOST, -ESRCH, "sandbox '%s' is lost: %s%s", b->request->name, why,
		tier_is_machine(b->request->spec->flags) ? "" : "; its files were in memory and are lost");
	err_remedy(e, "delete it and create another%s, or restore it from a checkpoint",
		   b->lost_to_oom ? " with more memory or storage disk" : "");
	return -ESRCH;
}

void sandbox_ref(struct sandbox *b)
{
	b->refs++;
}

void sandbox_unref(struct sandbox *b)
{
	if (--b->refs)
		return;
	assert(!b->making && !b->execs);
	agent_link_close(&b->link);
	sandbox_drop_group(b);
	sandbox_parts_freed(b);
	sandbox_request_free(b->request);
	free(b->restored);
	free(b->memory_refused);
	free(b->cut);
	free(b);
}

void sandbox_use(struct sandbox *b)
{
	b->calls++;
	b->used_ns = wall_now(b->service);
}

void sandbox_rest(struct sandbox *b)
{
	b->calls--;
	b->used_ns = wall_now(b->service);
}

void sandbox_look(struct sandbox *b)
{
	b->calls++;
}

void sandbox_looked(struct sandbox *b)
{
	b->calls--;
}

/* --- what is stored --- */

static bool is_halted(const struct sandbox *b)
{
	return b->state == SANDBOX_PAUSED || b->state == SANDBOX_HIBERNATED;
}

/*
 * The time of its last use; of a paused or hibernated one, that of the call which did it. The time of its execs is
 * stopped since then (exec_load), however often its row is written meanwhile.
 */
static uint64_t stored_use(struct sandbox *b)
{
	if (!is_halted(b))
		b->paused_ns = 0;
	else if (!b->paused_ns)
		b->paused_ns = b->used_ns;
	return b->paused_ns ? b->paused_ns : b->used_ns;
}

static int store(struct sandbox *b, bool insert, struct err *e)
{
	AUTO(buf_done) struct buf spec = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&spec);
	struct sandbox_row row = {
		.id = b->id,
		.tenant = b->tenant->id,
		.name = b->request->name,
		.key = b->request->key[0] ? b->request->key : NULL,
		.handle = b->opened ? 0 : b->handle,
		.state = b->pooled ? "pooled" : sandbox_state_name(b->state),
		.created_ns = b->created_ns,
		.expires_ns = b->expires_ns,
		.used_ns = stored_use(b),
		.next_exec = b->next_exec,
	};
	char layers[LAYERS_TEXT];

	layers_text(b->request->spec, b->request->image_layers, layers);
	row.layers = layers;
	row.tree = b->tree;
	row.checkpoint = b->request->checkpoint;
	row.restored = b->restored;
	row.asleep = b->state == SANDBOX_PAUSED && b->idle_paused ? SANDBOX_ROW_IDLE : b->asleep;
	jout_object(&j, NULL);
	sandbox_request_write(b->request, &j);
	sandbox_origin_write(b->request, &j);
	sandbox_parts_store(b, &j);
	jout_end(&j);
	if (jout_done(&j) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to store a sandbox");
	row.spec = spec.data;
	return insert ? sandboxes_insert_pending(b->service->db, &row, e) : sandboxes_update(b->service->db, &row, e);
}

int sandbox_store(struct sandbox *b, struct err *e)
{
	return store(b, false, e);
}

int sandbox_store_new(struct sandbox *b, struct err *e)
{
	return store(b, true, e);
}

/* --- coming into being, and passing --- */

bool sandbox_gone(struct sandbox *b)
{
	struct err e = { 0 };
	int r;

	if (b->opened) {
		sandbox_close(b);
		return false;
	}
	if (!b->handle || b->state == SANDBOX_LOST || b->state == SANDBOX_ENDING)
		return false;
	b->handle = 0;
	if (b->state == SANDBOX_MAKING) { /* its agent died, and the warden before it could say so */
		r = err_set(&e, WHY_SANDBOX_LOST, -ESRCH, "the sandbox ended before it was ready");
		sandbox_give_up(b, r, &e);
	} else if (b->request->disk[0] && !b->pooled) {
		sandbox_stopped(b, "none of its processes is running");
	} else {
		sandbox_lose(b, "the warden has no such sandbox");
	}
	return true;
}

void sandbox_lose(struct sandbox *b, const char *why)
{
	struct who nobody = { .tenant = b->tenant };

	if (b->state == SANDBOX_LOST || b->state == SANDBOX_ENDING)
		return;
	if (b->pooled) { /* it was never handed out, so it is not reported as lost */
		sandbox_discard(b, why);
		return;
	}
	if (!sandbox_set_state(b, SANDBOX_LOST))
		return;
	log_warn("sandbox %s is lost: %s", b->id, why);
	agent_link_close(&b->link);
	sandbox_parts_lost(b, LOSS_LOST);
	sandbox_revive_over(b);
	if (b->handle)
		warden_link_call(b->service->warden, WARDEN_DESTROY, b->handle, 0, NULL, NULL, NULL);
	b->handle = 0;
	sandbox_store(b, NULL);
	sandbox_note_state(b, &nobody, "sandbox.lost");
}

/* --- the agent's frames --- */

static void on_ready(struct sandbox *b, const struct frame *f)
{
	struct wire_in r = { f->payload, f->payload + f->len, false };
	uint32_t version = wire_get_u32(&r), abi = wire_get_u32(&r);

	if (!r.bad && version == FRAME_VERSION)
		b->receipt.landlock_abi = abi;
}

static void on_failed(struct sandbox *b, const struct frame *f)
{
	struct err e = { 0 };
	int r = link_error(f, "make the sandbox", &e, NULL);

	if (b->state == SANDBOX_MAKING)
		sandbox_give_up(b, r, &e);
	else
		sandbox_lose(b, "the agent failed");
}

static void on_frame(void *arg, int r, const struct frame *f, int *fds, size_t nfds)
{
	struct sandbox *b = arg;
	struct err e = { 0 };

	sandbox_ref(b);
	if (r < 0 && b->state == SANDBOX_MAKING) {
		r = err_set(&e, WHY_SANDBOX_LOST, r, "the agent died before the sandbox was ready");
		sandbox_give_up(b, r, &e);
	} else if (r < 0 && b->opened) {
		sandbox_close(b);
	} else if (r == -EPIPE && b->breaks++ < BREAKS_MAX) {
		/* Dead, or it closed a socket that was not read for too long: the warden knows which. */
		b->found = true;
		b->synced = false;
		sandbox_reattach(b);
		service_soon(b->service);
	} else if (r < 0) {
		sandbox_lose(b, r == -EPIPE ? "its first process has ended" : "protocol error from its agent");
	} else if (f->type == FRAME_SYNCED) {
		b->breaks = 0;
		if (b->service->commands->synced(b)) {
			sandbox_revive_over(b);
			sandbox_parts_reached(b);
		}
	} else if (f->id) {
		b->service->commands->frame(b, f, fds, nfds);
	} else if (f->type == FRAME_READY) {
		on_ready(b, f);
	} else if (f->type == FRAME_UP && b->state == SANDBOX_MAKING) {
		struct wire_in in = { f->payload, f->payload + f->len, false };

		if (f->len)
			b->fresh |= wire_get_u32(&in);
		sandbox_up(b);
	} else if (f->type == FRAME_FAILED) {
		on_failed(b, f);
	}
	/* Its frames are usually there already: then all of them are stored at once. */
	if (b->reviving && b->link.poll)
		b->link.short_read = false;
	sandbox_unref(b);
}

/* Only ever outside of the frames' own callbacks. */
void sandbox_move(struct sandbox *b, struct sandbox *from)
{
	agent_link_close(&b->link);
	agent_link_move(&b->link, &from->link, b);
	sandbox_drop_group(b);
	b->group = TAKE_FD(from->group);
	b->group_code = TAKE_FD(from->group_code);
	b->group_uid = from->group_uid;
	b->group_no = from->group_no;
	b->ended_group = 0;
	b->nrelease = 0;
	b->handle = from->handle;
	from->handle = 0;
	b->receipt = from->receipt;
	b->fresh = from->fresh;
	b->stat = from->stat;
	b->synced = true;
	b->let_go = b->hands_off = b->ask_again = false;
	b->found = b->attaching = b->lost_to_oom = false;
	b->breaks = 0;
	b->paused_ns = 0;
	sandbox_parts_moved(b, from);
}

static void on_counted(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sandbox *b = arg;

	(void)e;
	if (r == 0)
		b->stat = a->rep->stat;
	sandbox_unref(b);
}

int sandbox_attach(struct sandbox *b, int sock, const struct msg_receipt *receipt, struct err *e)
{
	uint32_t abi = b->receipt.landlock_abi;

	/* What the limits stopped so far is not to be blamed on the next exec. */
	if (b->found) {
		sandbox_ref(b);
		warden_link_call_first(b->service->warden, WARDEN_STAT, b->handle, 0, on_counted, b);
	}
	msg_get_receipt(receipt, &b->receipt);
	b->fresh |= b->receipt.restored;
	b->receipt.landlock_abi = abi;
	agent_link_close(&b->link);
	return agent_link_open(&b->link, b->service->loop, sock, on_frame, b, e);
}

/* Its agent is dead, and the last counters say whether the memory limit did it: then so do its execs' verdicts. */
static void on_last_stat(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sandbox_op *op = arg;
	struct sandbox *b = op->sandbox;

	(void)e;
	if (b->handle == op->handle && (b->state == SANDBOX_RUNNING || b->state == SANDBOX_PAUSED)) {
		b->attaching = false;
		b->lost_to_oom = r == 0 && a->rep->stat.group.oom_kills;
		if (r == 0)
			b->stat = a->rep->stat;
		sandbox_lose(b, b->lost_to_oom ? "its memory was full, and its first process was killed for it" :
						 "its first process has ended");
	}
	free(op);
	sandbox_unref(b);
}

static void on_reattached(void *arg, int r, const struct warden_link_answer *w, const struct err *e)
{
	struct sandbox_op *op = arg;
	struct sandbox *b = op->sandbox;
	const struct who nobody = { .tenant = b->tenant };
	struct err why = { 0 };
	bool same = b->handle == op->handle;

	free(op);
	if (same)
		b->attaching = false;
	if (e)
		why = *e;
	if (!same || (b->state != SANDBOX_RUNNING && b->state != SANDBOX_PAUSED)) {
		sandbox_unref(b);
		return;
	}
	if (r == 0 && w->nfds && !b->link.poll) {
		r = sandbox_attach(b, w->fds[0], &w->rep->receipt, &why);
		if (r == 0) {
			w->fds[0] = -1;
			b->service->commands->sync(b);
		}
	}
	/* No room for us with an agent that does not run yet: the next tick tries again. */
	if (r == -EAGAIN) {
		service_soon(b->service);
	} else if (r == -EPIPE || r == -ESRCH) {
		b->attaching = true;
		warden_link_call(b->service->warden, WARDEN_STAT, b->handle, 0, NULL, on_last_stat,
				 sandbox_op_new(b, &nobody, NULL, NULL));
	} else if (r < 0) {
		sandbox_lose(b, why.msg);
	}
	sandbox_unref(b);
}

void sandbox_reattach(struct sandbox *b)
{
	const struct who nobody = { .tenant = b->tenant };

	if (b->attaching || b->link.poll || !b->found || b->state != SANDBOX_RUNNING)
		return;
	b->attaching = true;
	warden_link_call(b->service->warden, WARDEN_ATTACH, b->handle, 0, NULL, on_reattached,
			 sandbox_op_new(b, &nobody, NULL, NULL));
}

static void on_group(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sandbox_op *op = arg;
	struct sandbox *b = op->sandbox;
	bool same = b->handle == op->handle;
	uint32_t uid = op->uid;

	free(op);
	if (!same) { /* of a sandbox that is not this one any more */
		if (b->group < 0 && b->handle && b->state != SANDBOX_ENDING)
			sandbox_ask_for_group(b);
		sandbox_unref(b);
		return;
	}

	if (r < 0 && r != -ESRCH)
		log_warn("sandbox %s: cannot make a control group for an exec: %s", b->id,
			 e ? e->msg : "the warden has ended");
	if (r == 0 && a->nfds && b->group < 0 && b->state != SANDBOX_ENDING) {
		b->group = a->fds[0];
		b->group_no = a->rep->arg;
		a->fds[0] = -1;
		if (a->nfds == 2 && uid == b->group_uid)
			b->group_code = TAKE_FD(a->fds[1]);
	} else if (r == 0 && b->handle) {
		warden_link_call(b->service->warden, WARDEN_GROUP_END, b->handle, a->rep->arg, NULL, NULL, NULL);
	}
	b->service->commands->group(b, r, e);
	sandbox_unref(b);
}

static void end_group(struct sandbox *b)
{
	if (b->ended_group && b->handle)
		warden_link_call(b->service->warden, WARDEN_GROUP_END, b->handle, b->ended_group, NULL, NULL, NULL);
	b->ended_group = 0;
}

void sandbox_flush(struct sandbox *b)
{
	agent_link_release(&b->link, b->release, b->nrelease);
	b->nrelease = 0;
	end_group(b);
}

void sandbox_put_off(struct sandbox *b, uint32_t exec, uint64_t group)
{
	if (b->nrelease == ARRAY_LEN(b->release))
		sandbox_flush(b);
	b->release[b->nrelease++] = exec;
	if (group) {
		end_group(b);
		b->ended_group = group;
	}
	b->service->fresh++;
	service_soon(b->service);
}

void sandbox_ask_for_group(struct sandbox *b)
{
	const struct who nobody = { .tenant = b->tenant };
	struct sandbox_op *op = sandbox_op_new(b, &nobody, NULL, NULL);

	op->uid = b->group_uid;
	/* One that has ended can be had again. */
	warden_link_group(b->service->warden, b->handle, b->group_uid, b->ended_group, on_group, op);
	b->ended_group = 0;
}

void sandbox_drop_group(struct sandbox *b)
{
	fd_close(b->group);
	fd_close(b->group_code);
	b->group = b->group_code = -1;
}

/* --- found again --- */

struct sandbox *sandbox_load(struct service *s, const struct sandbox_row *row, struct err *e)
{
	AUTO(json_decref) json_t *spec = NULL;
	AUTO(json_decref) json_t *fields = NULL;
	struct tenant *t = tenant_find(s->access, row->tenant);
	struct sandbox *b;
	int r = json_read_begin(row->spec, strlen(row->spec), &spec, e);

	if (r < 0)
		return NULL;
	if (!t) {
		err_set(e, ERR_INTERNAL, -ENOENT, "its tenant '%s' does not exist", row->tenant);
		return NULL;
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
		return NULL;
	}
	*b = (struct sandbox){ .service = s, .tenant = t, .refs = 1, .group = -1, .group_code = -1, .found = true };
	b->handle = row->handle;
	b->created_ns = row->created_ns;
	b->expires_ns = row->expires_ns;
	b->used_ns = wall_now(b->service);
	b->next_exec = row->next_exec;
	b->tree = row->tree ? row->tree : b->created_ns & INT64_MAX; /* of a time before networks: one of its own */
	b->pooled = !strcmp(row->state, "pooled");
	sandbox_load_state(b, row->state);
	b->paused_ns = is_halted(b) ? row->used_ns : 0;
	snprintf(b->id, sizeof(b->id), "%s", row->id);
	fields = sandbox_parts_take_fields(s, spec);
	r = sandbox_request_load(&s->o, spec, &b->request, e);
	if (r == 0)
		r = layers_parse(row->layers, b->request->spec, &b->request->image_layers, e);
	if (r == 0 && *row->checkpoint)
		snprintf(b->request->checkpoint, sizeof(b->request->checkpoint), "%s", row->checkpoint);
	if (r == 0 && *row->restored && !(b->restored = strdup(row->restored)))
		r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	if (r == 0 && !fields)
		r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	if (r == 0)
		r = sandbox_parts_load(b, fields, e);
	if (r == 0)
		r = sandbox_list(b, e);
	if (r < 0) {
		sandbox_unref(b);
		return NULL;
	}
	b->charged = sandbox_quota(b->request);
	b->idle_paused = b->state == SANDBOX_PAUSED && row->asleep == SANDBOX_ROW_IDLE;
	if (b->state == SANDBOX_HIBERNATED && b->request->spec->layers) {
		b->asleep = row->asleep == ASLEEP_MEMORY ? ASLEEP_MEMORY : ASLEEP_FILES;
		b->charged.memory = b->charged.cpu_milli = b->charged.gpus = 0;
	}
	if (b->state == SANDBOX_STOPPED)
		b->charged.memory = b->charged.cpu_milli = b->charged.gpus = 0;
	tenant_force(t, &b->charged);
	sandbox_parts_loaded(b);
	return b;
}
