/* Finds out who a caller is, by token or socket. */
#include "service/access/access.h"
#include "base/base.h"
#include "service/access/internal.h"

static const char *const scopes[] = {
	[SCOPE_NONE] = "none",	     [SCOPE_READ] = "read",   [SCOPE_EXEC] = "exec",
	[SCOPE_SANDBOX] = "sandbox", [SCOPE_ADMIN] = "admin",
};

const char *scope_name(enum scope s)
{
	return (size_t)s < ARRAY_LEN(scopes) ? scopes[s] : scopes[SCOPE_NONE];
}

int scope_parse(const char *text, enum scope *ret, struct err *e)
{
	for (size_t i = SCOPE_READ; i < ARRAY_LEN(scopes); i++) {
		if (!strcmp(text, scopes[i])) {
			*ret = (enum scope)i;
			return 0;
		}
	}
	return err_set(e, ERR_INVALID, -EINVAL, "unknown scope '%.32s': must be read, exec, sandbox or admin", text);
}

struct json *access_note(struct access *x, const char *kind, const struct audit_rec *who)
{
	struct audit_rec r = { .kind = kind };

	if (who) {
		r.tenant = who->tenant;
		r.token = who->token;
		r.request_id = who->request_id;
	}
	return audit_begin(x->audit, &r);
}

void access_note_rate(struct json *j, const struct rate_rule *r)
{
	if (!r->points)
		return;
	jout_object(j, "rate");
	jout_u64(j, "points", r->points);
	jout_u64(j, "window_ms", r->window_ms);
	jout_u64(j, "block_ms", r->block_ms);
	jout_end(j);
}

int access_new(struct db *d, struct audit *a, struct access **ret, struct err *e)
{
	AUTO(access_free) struct access *x = calloc(1, sizeof(*x));
	int r;

	if (!x)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "access");
	x->db = d;
	x->audit = a;
	x->last_tenant = &x->tenants;
	x->last_token = &x->tokens;
	r = tenant_load(x, e);
	if (r < 0)
		return r;
	r = token_load(x, e);
	if (r < 0)
		return r;
	if (!tenant_find(x, TENANT_DEFAULT)) {
		r = tenant_add(x, TENANT_DEFAULT, NULL, NULL, NULL, NULL, e);
		if (r < 0)
			return r;
	}
	*ret = TAKE_PTR(x);
	return 0;
}

void access_free(struct access *x)
{
	struct tenant *t;

	if (!x)
		return;
	token_free_all(x);
	while ((t = x->tenants)) {
		x->tenants = t->next;
		free(t);
	}
	while ((t = x->gone)) {
		x->gone = t->next;
		free(t);
	}
	free(x->table);
	free(x);
}

struct audit_rec who_rec(const struct who *w, const char *kind)
{
	return (struct audit_rec){
		.kind = kind,
		.tenant = w->tenant ? w->tenant->id : NULL,
		.token = w->token[0] ? w->token : NULL,
		.request_id = w->request_id[0] ? w->request_id : NULL,
	};
}
