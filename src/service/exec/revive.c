/* Execs that continue from a memory image, in their own sandbox or in another. */
#include "base/base.h"
#include "base/log.h"
#include "service/exec/internal.h"
#include "service/state/json_read.h"
#include "service/secret/give.h"
#include "service/state/wall.h"

int exec_save(const struct sandbox *b, uint64_t since_ns, struct buf *to)
{
	struct json j = JSON_INIT(to);
	uint64_t now = wall_now(b->service);

	jout_object(&j, NULL);
	jout_array(&j, "execs");
	for (const struct exec *x = b->execs; x; x = x->next) {
		if (x->ended_ns && x->ended_ns < since_ns)
			continue;
		jout_object(&j, NULL);
		jout_str(&j, "id", x->was[0] ? x->was : x->id);
		jout_u64(&j, "number", x->number);
		jout_u64(&j, "ran_ns", now > x->started_ns ? now - x->started_ns : 0);
		jout_object(&j, "spec");
		exec_request_write_kept(x->request, sandbox_mask(b), &j);
		jout_end(&j);
		jout_end(&j);
	}
	jout_end(&j);
	jout_end(&j);
	return jout_done(&j);
}

/* Of the sandbox's list, and of everything else. */
static void drop(struct exec *x)
{
	const struct tenant_quota one = { .execs = 1 };
	struct sandbox *b = x->sandbox;

	exec_unlist(x);
	if (x->stored)
		execs_delete(b->service->db, x->id, NULL);
	x->stored = false;
	x->draining = false;
	if (!x->ended_ns) {
		tenant_give(b->tenant, &one);
		b->running--;
		b->service->running_execs--;
		if (!x->request->resident)
			sandbox_rest(b);
		exec_timer_stop(x);
	}
	stream_close(&x->stream[EXEC_OUT]);
	stream_close(&x->stream[EXEC_ERR]);
	exec_unref(x);
}

static struct exec *by_number(const struct sandbox *b, uint32_t number)
{
	struct exec *x = b->execs;

	while (x && x->number != number)
		x = x->next;
	return x;
}

static int revive(struct sandbox *b, const json_t *o, struct err *e)
{
	const char *id = json_string_value(json_object_get(o, "id"));
	uint32_t number = (uint32_t)json_integer_value(json_object_get(o, "number"));
	uint64_t ran = (uint64_t)json_integer_value(json_object_get(o, "ran_ns")), now = wall_now(b->service);
	char *spec = json_dumps(json_object_get(o, "spec"), JSON_COMPACT);
	struct exec_row row = { .sandbox = b->id, .number = number, .spec = spec };
	struct exec *x = by_number(b, number);
	char own[ID_SIZE];
	int r;

	if (!spec || !id || !id_valid(id) || !number) {
		free(spec);
		return err_set(e, ERR_INTERNAL, -EBADMSG, "the execs of a checkpoint cannot be read");
	}
	if (x)
		drop(x);
	/* The new id is unique, and output of the former exec stays separate. The exec is found by both ids. */
	r = id_new(own, sizeof(own));
	row.id = own;
	row.started_ns = now > ran ? now - ran : now;
	if (r == 0)
		r = exec_load(b, &row, e);
	free(spec);
	if (r < 0)
		return r;
	x = b->execs;
	x->stored = false;
	x->revived = true;
	memcpy(x->was, id, ID_SIZE);
	return exec_store(x, NULL, e);
}

int exec_revive(struct sandbox *b, const char *saved, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	const json_t *list;
	int r = json_read_begin(saved, strlen(saved), &o, e);

	list = r == 0 ? json_object_get(o, "execs") : NULL;
	for (size_t i = 0; r == 0 && i < json_array_size(list); i++)
		r = revive(b, json_array_get(list, i), e);
	return r;
}

static int by_value(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

void exec_revived(struct sandbox *b)
{
	struct exec *next;
	struct err e = { 0 };

	/* The i-th of the image is in group i + 1. */
	qsort(b->held, b->nheld, sizeof(b->held[0]), by_value);
	for (struct exec *x = b->execs; x; x = next) {
		uint64_t group = 0;

		next = x->next;
		if (x->revived && !x->seen_in_sync) {
			drop(x);
			continue;
		}
		x->revived = false;
		for (unsigned i = 0; i < b->nheld; i++)
			if (b->held[i] == x->number)
				group = i + 1;
		if (!group)
			continue;
		x->group_no = group;
		if (x->stored && execs_group(b->service->db, x->id, x->group_no, &e) < 0)
			log_warn("exec %s: %s", x->id, e.msg);
	}
}

int exec_again(struct sandbox *b, const json_t *spec, char ret_id[ID_SIZE], struct err *e)
{
	const struct who daemon = { .tenant = b->tenant };
	struct exec_request *w = NULL;
	struct exec *x = NULL;
	int r = exec_request_read(b, spec, &w, e);

	if (r < 0)
		return r;
	json_decref(w->again); /* the sandbox has it in its list already */
	w->again = NULL;
	r = exec_new(b, &daemon, w, NULL, &x, e);
	if (r < 0)
		return r;
	memcpy(ret_id, x->id, ID_SIZE);
	exec_unref(x);
	return 0;
}

/* A row of an exec cannot be changed, but be replaced. */
void exec_store_times(struct sandbox *b)
{
	struct err e = { 0 };

	for (struct exec *x = b->execs; x; x = x->next)
		if (x->stored && !x->ended_ns && x->request->timeout_ms &&
		    (execs_delete(b->service->db, x->id, &e) < 0 || exec_store(x, NULL, &e) < 0))
			log_warn("exec '%s': cannot store its time after the clock was set: %s", x->id, e.msg);
}
