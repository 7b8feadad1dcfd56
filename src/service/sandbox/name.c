/* How a sandbox is found: by its id, or by a name or key within its tenant. */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/sandbox/internal.h"
#include "service/internal.h"
#include "service/state/wall.h"

static void scoped(const struct tenant *t, const char *name, char *to, size_t size)
{
	snprintf(to, size, "%s/%s", t->id, name);
}

void sandbox_unlist(struct sandbox *b)
{
	struct service *s = b->service;
	char key[256];

	scoped(b->tenant, b->request->name, key, sizeof(key));
	if (map_get(&s->names, key) == b)
		map_del(&s->names, key);
	scoped(b->tenant, b->request->key, key, sizeof(key));
	if (b->request->key[0] && map_get(&s->keys, key) == b)
		map_del(&s->keys, key);
}

static int taken(const char *name, struct err *e)
{
	err_set(e, WHY_NAME_TAKEN, -EEXIST, "the name '%s' is already in use", name);
	err_remedy(e, "use another name, or delete that sandbox; a key (--key, `key`) is get-or-create");
	return -EEXIST;
}

int sandbox_list(struct sandbox *b, struct err *e)
{
	struct service *s = b->service;
	char key[256];
	int r;

	scoped(b->tenant, b->request->name, key, sizeof(key));
	if (map_get(&s->names, key))
		return taken(b->request->name, e);
	r = map_put(&s->sandboxes, b->id, b);
	if (r == 0)
		r = map_put(&s->names, key, b);
	scoped(b->tenant, b->request->key, key, sizeof(key));
	if (r == 0 && b->request->key[0])
		r = map_put(&s->keys, key, b);
	if (r < 0) {
		sandbox_unlist(b);
		map_del(&s->sandboxes, b->id);
		return err_set(e, ERR_EXHAUSTED, r, "no memory for a sandbox");
	}
	service_soon(s);
	return 0;
}

/* One that is dead stays to be looked at until it is deleted, under its id; its key, and a name asked for with it, are free. */
static void sandbox_yield_key(struct sandbox *b, const struct sandbox_request *request)
{
	struct err e = { 0 };
	char key[256];

	scoped(b->tenant, b->request->key, key, sizeof(key));
	map_del(&b->service->keys, key);
	b->request->key[0] = '\0';
	if (!strcmp(request->name, b->request->name) && strcmp(b->request->name, b->id) != 0 &&
	    sandbox_rename(b, b->id, &e) < 0)
		log_warn("sandbox %s: %s", b->id, e.msg);
	if (sandbox_store(b, &e) < 0)
		log_warn("sandbox %s: %s", b->id, e.msg);
}

struct sandbox *sandbox_by_key(struct service *s, const struct who *who, const struct sandbox_request *request)
{
	const struct who daemon = { .tenant = who->tenant };
	char key[256];
	struct sandbox *b;

	scoped(who->tenant, request->key, key, sizeof(key));
	b = request->key[0] ? map_get(&s->keys, key) : NULL;
	if (!b || b->state == SANDBOX_MAKING)
		return b;
	if (b->state == SANDBOX_LOST) {
		sandbox_yield_key(b, request);
		return NULL;
	}
	if (b->expires_ns && b->expires_ns <= wall_now(s)) { /* the next tick would have ended it */
		sandbox_delete(b, &daemon, "sandbox.expire", NULL, NULL);
		return NULL;
	}
	return b;
}

struct sandbox *sandbox_find(struct service *s, const struct who *who, const char *id, struct err *e)
{
	struct sandbox *b = map_get(&s->sandboxes, id);
	char key[256];

	if (b && b->tenant != who->tenant && who->scope != SCOPE_ADMIN)
		b = NULL;
	if (!b) {
		scoped(who->tenant, id, key, sizeof(key));
		b = map_get(&s->names, key);
	}
	if (!b || !sandbox_seen(b)) {
		err_set(e, WHY_SANDBOX_MISSING, -ENOENT, "no sandbox '%.64s'", id);
		err_remedy(e, "`cloche ls` (GET /v1/sandboxes) lists the sandboxes");
		return NULL;
	}
	s->called_ns = clock_mono_ns();
	return b;
}

int sandbox_name_free(struct service *s, const struct tenant *t, const char *name, struct err *e)
{
	char key[256];

	scoped(t, name, key, sizeof(key));
	if (name[0] && map_get(&s->names, key))
		return taken(name, e);
	return 0;
}

int sandbox_rename(struct sandbox *b, const char *name, struct err *e)
{
	struct service *s = b->service;
	char key[256], old[256];
	int r = name_check(name, e);

	if (r < 0 || !strcmp(name, b->request->name))
		return r;
	scoped(b->tenant, name, key, sizeof(key));
	if (map_get(&s->names, key))
		return taken(name, e);
	if (map_put(&s->names, key, b) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a name");
	scoped(b->tenant, b->request->name, old, sizeof(old));
	map_del(&s->names, old);
	snprintf(b->request->name, sizeof(b->request->name), "%s", name);
	return 0;
}
