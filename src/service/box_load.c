/* Sandboxes found again, from their rows. */
#include "base/base.h"
#include "base/clock.h"
#include "service/box_impl.h"
#include "service/jin.h"
#include "service/pool.h"

struct box *box_load(struct service *s, const struct box_row *row, struct err *e)
{
	AUTO(json_decref) json_t *spec = NULL;
	struct tenant *t = tenant_find(s->access, row->tenant);
	struct tenant_quota quota;
	struct box *b;
	int r = jin_parse(row->spec, strlen(row->spec), &spec, e);

	if (r < 0)
		return NULL;
	if (!t) {
		err_set(e, ERR_INTERNAL, -ENOENT, "its tenant '%s' is not there", row->tenant);
		return NULL;
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
		return NULL;
	}
	*b = (struct box){ .service = s, .tenant = t, .refs = 1, .group = -1, .up = true, .found = true };
	b->handle = row->handle;
	b->created_ns = row->created_ns;
	b->expires_ns = row->expires_ns;
	b->used_ns = clock_real_ns();
	b->next_exec = row->next_exec;
	b->paused_ns = row->used_ns;
	b->pooled = !strcmp(row->state, "pooled");
	b->state = !strcmp(row->state, "paused") ? BOX_PAUSED : !strcmp(row->state, "lost") ? BOX_LOST : BOX_RUNNING;
	snprintf(b->id, sizeof(b->id), "%s", row->id);
	r = box_want_load(&s->o, spec, &b->want, e);
	if (r == 0)
		r = box_list(b, e);
	if (r < 0) {
		box_unref(b);
		return NULL;
	}
	quota = box_quota(b->want);
	tenant_force(t, &quota);
	b->counted = true;
	pool_joined(b);
	return b;
}
