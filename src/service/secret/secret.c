/* The list of secrets. */
#include "service/secret/struct.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/checkpoint/struct.h"
#include "service/state/event.h"
#include "base/mask.h"
#include "service/secret/give.h"
#include "service/template/template.h"

#define KEY_SIZE (TENANT_NAME_MAX + NAME_MAX_LEN + 2)

static void map_key(const struct tenant *t, const char *name, char key[KEY_SIZE])
{
	snprintf(key, KEY_SIZE, "%s/%s", t->id, name);
}

static void drop_values(struct secret *c)
{
	struct secret_value *v;

	while ((v = c->values)) {
		c->values = v->next;
		free(v);
	}
}

static void secret_free(struct secret *c)
{
	drop_values(c);
	free(c->description);
	free(c);
}

struct secret *secret_any(struct service *s, const struct tenant *t, const char *name)
{
	char key[KEY_SIZE];

	map_key(t, name, key);
	return strlen(name) > NAME_MAX_LEN ? NULL : map_get(&s->secrets, key);
}

struct secret *secret_find(struct service *s, const struct tenant *t, const char *name, struct err *e)
{
	struct secret *c = secret_any(s, t, name);

	if (c && !c->gone)
		return c;
	err_set(e, WHY_SECRET_MISSING, -ENOENT, "no secret '%.64s'", name);
	err_remedy(e, "`cloche secret ls` (GET /v1/secrets) lists secrets; `cloche secret set %.64s` stores one", name);
	return NULL;
}

static void note(const struct secret *c, const struct who *who, const char *kind, const char *event)
{
	struct audit_rec rec = who_rec(who, kind);
	struct service *s = c->service;
	char fields[128];
	struct json *j;

	rec.tenant = c->tenant->id;
	j = audit_begin(s->audit, &rec);
	jout_str(j, "secret", c->name);
	jout_u64(j, "version", c->version);
	audit_end(s->audit, NULL);
	snprintf(fields, sizeof(fields), "\"secret\":\"%s\",\"version\":%llu", c->name, (unsigned long long)c->version);
	event_of(s, c->tenant, "", event, fields);
	turn_dirty(s->turn);
}

void secret_note_use(const struct secret *c, const struct who *who, const char *sandbox, const char *how)
{
	struct audit_rec rec = who_rec(who, "secret.use");
	struct json *j;

	rec.tenant = c->tenant->id;
	rec.sandbox = sandbox;
	j = audit_begin(c->service->audit, &rec);
	jout_str(j, "secret", c->name);
	jout_u64(j, "version", c->version);
	jout_str(j, "as", how);
	audit_end(c->service->audit, NULL);
	turn_dirty(c->service->turn);
}

/* --- values --- */

int secret_read_version(const struct secret *c, const struct secret_value *v, struct buf *ret, struct err *e)
{
	const struct vault_name n = { c->tenant->id, c->name, v->version };

	return vault_open(c->service->vault, &n, v->sealed, v->len, ret, e);
}

int secret_read(const struct secret *c, struct buf *ret, struct err *e)
{
	if (!c->values || c->values->version != c->version)
		return err_set(e, ERR_INTERNAL, -ENODATA, "secret '%s' has no value in the store", c->name);
	return secret_read_version(c, c->values, ret, e);
}

static struct secret_value *value_new(uint64_t version, const void *sealed, size_t len)
{
	struct secret_value *v = malloc(sizeof(*v) + len);

	if (!v)
		abort(); /* some kilobytes: without them nothing would work */
	v->next = NULL;
	v->version = version;
	v->len = len;
	memcpy(v->sealed, sealed, len);
	return v;
}

static int check_value(const char *value, size_t len, struct err *e)
{
	size_t n = len;

	while (n && (value[n - 1] == '\n' || value[n - 1] == '\r'))
		n--;
	if (n < MASK_VALUE_MIN) {
		err_set(e, WHY_BAD_FIELD, -EINVAL,
			"'value' must have at least %u bytes, without the final newline (got %zu)", MASK_VALUE_MIN, n);
		err_remedy(e, "a shorter value cannot be masked: it would match everywhere");
		return -EINVAL;
	}
	if (len > VAULT_VALUE_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "'value' must be at most %u KiB", VAULT_VALUE_MAX / 1024U);
	return 0;
}

/* --- places that may still contain a value --- */

static bool named_in(const char *config, const char *name)
{
	char text[NAME_MAX_LEN + 3];

	snprintf(text, sizeof(text), "\"%s\"", name);
	return config && strstr(config, text);
}

/* Rather yes than no: what only looks like its name keeps it, too. */
static bool still_shown(const struct secret *c)
{
	struct service *s = c->service;
	const struct checkpoint *p;
	const struct sandbox *b;
	size_t at = 0;

	while ((b = map_next(&s->sandboxes, &at)))
		if (b->tenant == c->tenant && secret_uses_have(&b->request->secrets, c->name))
			return true;
	at = 0;
	while ((p = map_next(&s->checkpoints, &at)))
		if (p->tenant == c->tenant && named_in(p->config, c->name))
			return true;
	return false;
}

static int forget(struct secret *c, struct err *e)
{
	char key[KEY_SIZE];
	int r = secrets_delete(c->service->db, c->tenant->id, c->name, e);

	if (r < 0)
		return r;
	map_key(c->tenant, c->name, key);
	map_del(&c->service->secrets, key);
	secret_free(c);
	return 0;
}

void secrets_sweep(struct service *s)
{
	struct secret *c;
	size_t at = 0;

	while ((c = map_next(&s->secrets, &at)))
		if (c->gone && !still_shown(c))
			forget(c, NULL);
}

/* --- change --- */

static int store(const struct secret *c, const char *description, uint64_t version, bool gone, struct err *e)
{
	struct secret_row row = {
		.tenant = c->tenant->id,
		.name = c->name,
		.description = description ? description : "",
		.version = version,
		.gone = gone,
		.created_ns = c->created_ns,
		.updated_ns = c->updated_ns,
	};

	return secrets_put(c->service->db, &row, e);
}

/* Values that are older than what is kept. */
static void prune(struct secret *c)
{
	struct secret_value **p = &c->values, *v;
	unsigned n = 0;

	while (*p && n < SECRET_VERSIONS) {
		p = &(*p)->next;
		n++;
	}
	while ((v = *p)) {
		*p = v->next;
		secret_values_delete(c->service->db, c->tenant->id, c->name, v->version, NULL);
		free(v);
	}
}

/* A new value, in the store and here. */
static int turn_over(struct secret *c, const void *value, size_t len, const char *description, struct err *e)
{
	const struct vault_name n = { c->tenant->id, c->name, c->version + 1 };
	AUTO(buf_done) struct buf sealed = BUF_INIT(VAULT_VALUE_MAX + VAULT_OVERHEAD);
	struct secret_value *v;
	int r = vault_seal(c->service->vault, &n, value, len, &sealed, e);

	if (r == 0)
		r = store(c, description, n.version, false, e);
	if (r == 0)
		r = secret_values_put(c->service->db,
				      &(struct secret_value_row){ .tenant = n.tenant,
								  .name = n.name,
								  .version = n.version,
								  .sealed = sealed.data,
								  .len = sealed.len },
				      e);
	if (r < 0) {
		/* As it was before: a secret without its value would be useless. */
		if (c->values)
			store(c, c->description, c->version, c->gone, NULL);
		else
			secrets_delete(c->service->db, c->tenant->id, c->name, NULL);
		return r;
	}
	vault_in_use(c->service->vault);
	v = value_new(n.version, sealed.data, sealed.len);
	v->next = c->values;
	c->values = v;
	c->version = n.version;
	c->gone = false;
	prune(c);
	return 0;
}

static unsigned count(struct service *s, const struct tenant *t)
{
	const struct secret *c;
	unsigned n = 0;
	size_t at = 0;

	while ((c = map_next(&s->secrets, &at)))
		n += c->tenant == t && !c->gone;
	return n;
}

static int take(struct service *s, struct tenant *t, struct err *e)
{
	const struct tenant_quota one = { .secrets = 1 };

	if (count(s, t) >= SECRETS_MAX)
		return err_set(e, WHY_LIMIT, -EDQUOT, "tenant '%s' has reached its limit of %u secrets", t->id,
			       SECRETS_MAX);
	return tenant_take(t, &one, e);
}

static struct secret *secret_new(struct service *s, struct tenant *t, const char *name)
{
	struct secret *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	*c = (struct secret){ .service = s, .tenant = t, .gone = true };
	snprintf(c->name, sizeof(c->name), "%s", name);
	c->created_ns = c->updated_ns = clock_real_ns();
	return c;
}

static int describe(struct secret *c, const char *description, struct err *e)
{
	char *copy;

	if (!description)
		return 0;
	copy = *description ? strdup(description) : NULL;
	if (*description && !copy)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a secret");
	free(c->description);
	c->description = copy;
	return 0;
}

int secret_put(struct service *s, const struct who *who, struct tenant *t, const char *name, const void *value,
	       size_t len, const char *description, struct secret **ret, bool *ret_created, struct err *e)
{
	const struct tenant_quota one = { .secrets = 1 };
	struct secret *c, *fresh = NULL;
	char key[KEY_SIZE];
	bool added;
	int r = name_check(name, e);

	if (r == 0)
		r = check_value(value, len, e);
	if (r < 0)
		return r;
	c = secret_any(s, t, name);
	added = !c || c->gone;
	r = c ? secrets_fit(c, len, e) : 0;
	if (r < 0)
		return r;
	if (!c)
		c = fresh = secret_new(s, t, name);
	r = added ? take(s, t, e) : 0;
	if (r == 0) {
		uint64_t was = c->updated_ns, born = c->created_ns;

		c->updated_ns = clock_real_ns();
		if (added)
			c->created_ns = c->updated_ns;
		map_key(t, name, key);
		if (fresh && map_put(&s->secrets, key, c) < 0)
			abort();
		r = turn_over(c, value, len, description ? description : c->description, e);
		if (r == 0)
			r = describe(c, description, e);
		if (r < 0) {
			c->updated_ns = was;
			c->created_ns = born;
			if (fresh)
				map_del(&s->secrets, key);
			if (added)
				tenant_give(t, &one);
		}
	}
	if (r < 0) {
		if (fresh)
			secret_free(fresh);
		return r;
	}
	note(c, who, added ? "secret.set" : "secret.rotate", added ? "secret.set" : "secret.rotated");
	if (c->values->next)
		secrets_changed(c);
	secrets_sweep(s);
	*ret = c;
	*ret_created = added;
	return 0;
}

static int remove_one(void *x, const struct who *who, struct err *e)
{
	struct secret *c = x;
	const struct tenant_quota one = { .secrets = 1 };
	bool shown = still_shown(c);
	struct tenant *t = c->tenant;
	int r;

	c->updated_ns = clock_real_ns();
	r = shown ? store(c, c->description, c->version, true, e) : 0;
	if (r < 0)
		return r;
	note(c, who, "secret.delete", "secret.deleted");
	c->gone = true;
	if (shown)
		secrets_changed(c);
	else
		r = forget(c, e);
	if (r == 0)
		tenant_give(t, &one);
	return r;
}

/* --- shown --- */

static void write_time(struct json *j, const char *key, uint64_t ns)
{
	char when[32];

	clock_iso(ns, when);
	jout_str(j, key, when);
}

static void write_one(const void *x, struct json *j)
{
	const struct secret *c = x;

	jout_object(j, NULL);
	jout_str(j, "name", c->name);
	jout_str(j, "tenant", c->tenant->id);
	jout_u64(j, "version", c->version);
	jout_u64(j, "size", c->values ? c->values->len - VAULT_OVERHEAD : 0);
	jout_str(j, "description", c->description);
	write_time(j, "created_at", c->created_ns);
	write_time(j, "updated_at", c->updated_ns);
	jout_end(j);
}

static void *find(struct service *s, const struct tenant *t, const char *name, struct err *e)
{
	return secret_find(s, t, name, e);
}

static struct named next(const struct service *s, size_t *at)
{
	struct secret *c = map_next(&s->secrets, at);

	return c ? (struct named){ c, c->tenant, c->gone ? NULL : c->name } : (struct named){ 0 };
}

const struct named_kind secret_kind = {
	.plural = "secrets",
	.find = find,
	.next = next,
	.write = write_one,
	.remove = remove_one,
};

void secrets_forget(struct service *s, const struct tenant *t)
{
	struct secret *c;
	size_t at = 0;
	char key[KEY_SIZE];

	while ((c = map_next(&s->secrets, &at))) {
		if (c->tenant != t)
			continue;
		map_key(t, c->name, key);
		map_del(&s->secrets, key);
		secret_free(c);
	}
}

/* --- found again --- */

static int on_secret(void *arg, const struct secret_row *row)
{
	struct service *s = arg;
	struct tenant *t = tenant_find(s->access, row->tenant);
	const struct tenant_quota one = { .secrets = 1 };
	char key[KEY_SIZE];
	struct secret *c;

	if (!t || name_check(row->name, NULL) < 0) {
		log_error("secret %s/%s cannot be read from the store and is not touched", row->tenant, row->name);
		return 0;
	}
	c = secret_new(s, t, row->name);
	c->version = row->version;
	c->gone = row->gone;
	c->created_ns = row->created_ns;
	c->updated_ns = row->updated_ns;
	if (*row->description && !(c->description = strdup(row->description)))
		abort();
	map_key(t, c->name, key);
	if (map_put(&s->secrets, key, c) < 0)
		abort();
	if (!c->gone)
		tenant_force(t, &one);
	return 0;
}

/* Older ones come first. */
static int on_value(void *arg, const struct secret_value_row *row)
{
	struct service *s = arg;
	struct tenant *t = tenant_find(s->access, row->tenant);
	struct secret *c = t ? secret_any(s, t, row->name) : NULL;
	struct secret_value *v;

	vault_in_use(s->vault);
	if (!c)
		return 0;
	v = value_new(row->version, row->sealed, row->len);
	v->next = c->values;
	c->values = v;
	return 0;
}

int secrets_load(struct service *s, struct err *e)
{
	int r = secrets_each(s->db, on_secret, s, e);

	return r < 0 ? r : secret_values_each(s->db, on_value, s, e);
}
