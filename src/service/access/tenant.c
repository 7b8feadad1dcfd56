/* The list of tenants. */
#include "service/access/access.h"
#include "base/base.h"
#include "base/clock.h"
#include "service/access/internal.h"

struct tenant *tenant_first(struct access *x)
{
	return x->tenants;
}

struct tenant *tenant_next(const struct tenant *t)
{
	return t->next;
}

const char *tenant_id(const struct tenant *t)
{
	return t->id;
}

size_t *tenant_events(struct tenant *t)
{
	return &t->events;
}

struct tenant_calls *tenant_calls(struct tenant *t)
{
	return &t->calls;
}

bool tenant_gone(const struct tenant *t)
{
	return t->gone;
}

struct tenant_view tenant_view(const struct tenant *t)
{
	return (struct tenant_view){
		.id = t->id, .quota = t->quota, .used = t->used, .rate = t->rate, .created_ns = t->created_ns
	};
}

struct tenant *tenant_find(struct access *x, const char *id)
{
	struct tenant *t = x->tenants;

	while (t && strcmp(t->id, id))
		t = t->next;
	return t;
}

static bool small(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static int check_name(const char *id, struct err *e)
{
	size_t n = 0;

	while (n <= TENANT_NAME_MAX && (small(id[n]) || (n && (id[n] == '_' || id[n] == '-'))))
		n++;
	if (!n || n > TENANT_NAME_MAX || id[n])
		return err_set(e, ERR_INVALID, -EINVAL,
			       "'%.40s': the name of a tenant must be up to %d characters of a-z, 0-9, _ and -, "
			       "starting with a letter or digit",
			       id, TENANT_NAME_MAX);
	return 0;
}

static void link_tenant(struct access *x, struct tenant *t)
{
	t->next = NULL;
	*x->last_tenant = t;
	x->last_tenant = &t->next;
}

static int load_one(void *arg, const struct tenant_row *row)
{
	struct access *x = arg;
	struct tenant *t;

	if (check_name(row->id, NULL) < 0)
		return -EBADMSG;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	snprintf(t->id, sizeof(t->id), "%s", row->id);
	t->number = row->number;
	t->quota = (struct tenant_quota){ row->sandboxes,   row->cpu_milli,   row->memory,	     row->disk,
					  row->execs,	    row->checkpoints, row->checkpoint_bytes, row->secrets,
					  row->image_bytes, row->gpus };
	t->rate = (struct rate_rule){ row->rate_points, row->rate_window_ms, row->rate_block_ms };
	t->created_ns = row->created_ns;
	if (rate_check(&t->rate, NULL) < 0) {
		free(t);
		return -EBADMSG;
	}
	link_tenant(x, t);
	return 0;
}

int tenant_load(struct access *x, struct err *e)
{
	struct err why = { 0 };
	int r = tenants_each(x->db, load_one, x, &why);

	if (r < 0 && why.msg[0]) {
		if (e)
			*e = why;
		return r;
	}
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "load the tenants") : 0;
}

static int put(struct access *x, const struct tenant *t, const struct tenant_quota *q, const struct rate_rule *r,
	       struct err *e)
{
	return tenants_put(x->db,
			   &(struct tenant_row){
				   .id = t->id,
				   .number = t->number,
				   .sandboxes = q->sandboxes,
				   .cpu_milli = q->cpu_milli,
				   .memory = q->memory,
				   .disk = q->disk,
				   .execs = q->execs,
				   .checkpoints = q->checkpoints,
				   .checkpoint_bytes = q->checkpoint_bytes,
				   .secrets = q->secrets,
				   .image_bytes = q->image_bytes,
				   .gpus = q->gpus,
				   .rate_points = r->points,
				   .rate_window_ms = r->window_ms,
				   .rate_block_ms = r->block_ms,
				   .created_ns = t->created_ns,
			   },
			   e);
}

static void note(struct access *x, const char *kind, const struct tenant *t, const struct audit_rec *who)
{
	struct json *j = access_note(x, kind, who);
	const struct tenant_quota *q = &t->quota;

	jout_str(j, "id", t->id);
	jout_u64(j, "number", t->number);
	jout_object(j, "quotas");
	jout_u64(j, "sandboxes", q->sandboxes);
	jout_u64(j, "cpu_milli", q->cpu_milli);
	jout_u64(j, "memory", q->memory);
	jout_u64(j, "disk", q->disk);
	jout_u64(j, "execs", q->execs);
	jout_u64(j, "checkpoints", q->checkpoints);
	jout_u64(j, "checkpoint_bytes", q->checkpoint_bytes);
	jout_u64(j, "secrets", q->secrets);
	jout_u64(j, "image_bytes", q->image_bytes);
	jout_u64(j, "gpus", q->gpus);
	jout_end(j);
	access_note_rate(j, &t->rate);
	audit_end(x->audit, NULL);
}

int tenant_add(struct access *x, const char *id, const struct tenant_quota *quota, const struct rate_rule *rate,
	       const struct audit_rec *who, struct tenant **ret, struct err *e)
{
	AUTO_FREE struct tenant *t = NULL;
	int r = check_name(id, e);

	if (r < 0)
		return r;
	if (rate && (r = rate_check(rate, e)) < 0)
		return r;
	if (tenant_find(x, id))
		return err_set(e, WHY_NAME_TAKEN, -EEXIST, "tenant '%s' already exists", id);
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "tenant '%s'", id);
	snprintf(t->id, sizeof(t->id), "%s", id);
	if (quota)
		t->quota = *quota;
	if (rate)
		t->rate = *rate;
	t->created_ns = clock_real_ns();
	r = tenants_next(x->db, &t->number, e);
	if (r < 0)
		return r;
	r = put(x, t, &t->quota, &t->rate, e);
	if (r < 0)
		return r;
	note(x, "tenant.create", t, who);
	link_tenant(x, t);
	if (ret)
		*ret = t;
	(void)TAKE_PTR(t);
	return 0;
}

int tenant_set(struct access *x, struct tenant *t, const struct tenant_quota *quota, const struct rate_rule *rate,
	       const struct audit_rec *who, struct err *e)
{
	int r;

	if (rate && (r = rate_check(rate, e)) < 0)
		return r;
	r = put(x, t, quota ? quota : &t->quota, rate ? rate : &t->rate, e);
	if (r < 0)
		return r;
	if (quota)
		t->quota = *quota;
	if (rate)
		t->rate = *rate;
	note(x, "tenant.update", t, who);
	return 0;
}

int tenant_remove(struct access *x, struct tenant *t, const struct audit_rec *who, struct err *e)
{
	struct tenant **p = &x->tenants;
	int r;

	if (!strcmp(t->id, TENANT_DEFAULT))
		return err_set(e, WHY_IN_USE, -EBUSY, "tenant '%s' cannot be removed", t->id);
	if (t->used.sandboxes || t->used.checkpoints) {
		err_set(e, WHY_IN_USE, -EBUSY, "tenant '%s' has %s", t->id,
			t->used.sandboxes ? "sandboxes" : "checkpoints");
		err_remedy(e, "delete them first");
		return -EBUSY;
	}
	r = tenants_delete(x->db, t->id, e);
	if (r < 0)
		return r;
	note(x, "tenant.delete", t, who);
	token_drop_all(x, t, who);
	while (*p != t)
		p = &(*p)->next;
	*p = t->next;
	if (x->last_tenant == &t->next)
		x->last_tenant = p;
	t->gone = true;
	t->next = x->gone;
	x->gone = t;
	return 0;
}
