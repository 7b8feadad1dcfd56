/*
 * Keeps warm contexts. Each kind (tenant, image, language) has one memory image, made after the first run of that kind, and up to
 * `warm_contexts` sandboxes made from it ahead. They are hidden, never used twice, end ten minutes after the last run, and give
 * way to sandboxes that callers make.
 */
#include "service/run/warm_context.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/checkpoint/restore.h"
#include "service/checkpoint/struct.h"
#include "service/image/image.h"
#include "service/sandbox/internal.h"
#include "service/sandbox/part.h"
#include "service/sandbox/struct.h"
#include "service/template/template.h"

#include <poll.h>

#define KINDS_MAX 16U /* of all tenants */
#define KINDS_TENANT 4U
#define READY_MAX 16U
#define SOON_MS 5 /* after a run: its answer has the processor first */
#define FAILED_NS (60ULL * 1000000000) /* an image that could not be made is tried again */
#define IDLE_NS (600ULL * 1000000000)
#define EXECS_MIN 16U /* of a tenant's quota: a kernel that waits counts for it */
#define IDLE_MS 60000 /* how often idle ones are looked for */

struct warm_kind {
	struct warm_kind *next;
	struct service *s;
	struct tenant *tenant;
	char *key;
	json_t *create; /* without limits */
	char language[16];
	struct checkpoint *image; /* referenced, or NULL */
	struct work_sandbox *maker; /* in which an image is made */
	enum { NOT_MAKING, MAKING_SANDBOX, MAKING_CONTEXT, MAKING_IMAGE } making;
	bool gone; /* freed as soon as nothing calls back */
	struct work_sandbox *ready[READY_MAX];
	unsigned nready;
	struct work_sandbox *filler; /* in the making */
	bool filling;
	uint64_t used_ns, again_ns; /* monotonic */
};

struct warm_contexts {
	struct service *s;
	struct warm_kind *kinds;
	uv_timer_t timer;
};

static void on_time(uv_timer_t *t);

static struct warm_contexts *keeper(struct service *s)
{
	struct warm_contexts *w = s->warm_contexts;

	if (w || !s->o.warm_contexts || s->draining)
		return w;
	w = calloc(1, sizeof(*w));
	if (!w)
		abort(); /* a few hundred bytes only */
	w->s = s;
	uv_timer_init(s->loop, &w->timer);
	uv_unref((uv_handle_t *)&w->timer);
	w->timer.data = w;
	s->warm_contexts = w;
	return w;
}

/* --- what fits --- */

static bool is_limit(const char *name)
{
	static const char *const names[] = { "cpus", "memory", "disk", "inodes", "pids", "nofile" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/*
 * What such a create says besides limits; NULL: an image cannot serve it. Secrets and the network's own variables are part of
 * a process's environment, which an image has already.
 */
static json_t *plain(struct service *s, const struct tenant *t, const json_t *create, const char *language)
{
	json_t *walk = (json_t *)(uintptr_t)create, *v, *o;
	const char *name;

	if (strcmp(language, "python") != 0)
		return NULL;
	o = json_object();
	json_object_foreach(walk, name, v)
	{
		if (is_limit(name))
			continue;
		if (strcmp(name, "image") != 0 || !json_is_string(v)) {
			json_decref(o);
			return NULL;
		}
		if (strcmp(json_string_value(v), "host") != 0)
			json_object_set_new(o, name, json_string(image_current(s, t, json_string_value(v))));
	}
	return o;
}

static json_t *limits_of(const json_t *create)
{
	json_t *walk = (json_t *)(uintptr_t)create, *v, *o = json_object();
	const char *name;

	json_object_foreach(walk, name, v) if (is_limit(name)) json_object_set(o, name, v);
	return o;
}

static struct warm_kind *kind_find(struct service *s, const struct tenant *t, const json_t *create,
				   const char *language)
{
	AUTO(json_decref) json_t *o = s->warm_contexts ? plain(s, t, create, language) : NULL;
	struct warm_kind *k = s->warm_contexts ? s->warm_contexts->kinds : NULL;

	while (k && (!o || k->tenant != t || strcmp(k->language, language) != 0 || !json_equal(k->create, o)))
		k = k->next;
	return k;
}

/* --- the end of a kind --- */

static void kind_free(struct warm_kind *k)
{
	struct warm_kind **p = &k->s->warm_contexts->kinds;

	if (k->making || k->filling) {
		k->gone = true;
		return;
	}
	while (*p != k)
		p = &(*p)->next;
	*p = k->next;
	if (k->image)
		checkpoint_unref(k->image);
	json_decref(k->create);
	free(k);
}

static void drop_ready(struct warm_kind *k)
{
	while (k->nready)
		work_sandbox_free(k->ready[--k->nready]);
}

static void drop_image(struct warm_kind *k)
{
	drop_ready(k);
	if (k->image)
		checkpoint_unref(k->image);
	k->image = NULL;
}

static void kind_drop(struct warm_kind *k)
{
	drop_image(k);
	/* Freed here, the work calls back no more. */
	work_sandbox_free(k->maker);
	work_sandbox_free(k->filler);
	k->maker = k->filler = NULL;
	k->filling = false;
	if (k->making == MAKING_SANDBOX)
		k->making = NOT_MAKING;
	kind_free(k);
}

/* --- an image --- */

static void again_in(struct warm_kind *k, uint64_t ns)
{
	k->again_ns = clock_mono_ns() + ns;
}

static void soon(struct warm_contexts *w, uint64_t ms)
{
	if (!uv_is_active((uv_handle_t *)&w->timer) || uv_timer_get_due_in(&w->timer) > ms)
		uv_timer_start(&w->timer, on_time, ms, 0);
}

static void image_over(struct warm_kind *k, struct checkpoint *c, const struct err *e)
{
	k->making = NOT_MAKING;
	work_sandbox_free(TAKE_PTR(k->maker));
	if (k->gone) {
		kind_free(k);
		return;
	}
	if (c) {
		checkpoint_ref(c);
		k->image = c;
	} else {
		log_warn("no warm %s context for tenant %s: %s", k->language, k->tenant->id, e->msg);
		again_in(k, FAILED_NS);
	}
	soon(k->s->warm_contexts, SOON_MS);
}

static void on_sealed(void *arg, struct checkpoint *c, const struct err *e)
{
	struct err why = { 0 };

	if (c && !c->memory) {
		err_set(&why, WHY_START_FAILED, -EIO, "its memory cannot be carried: %s",
			c->refused ? c->refused : "unknown");
		c = NULL;
		e = &why;
	}
	image_over(arg, c, e);
}

static void on_context(void *arg, struct context *c, const struct err *e)
{
	struct warm_kind *k = arg;
	struct sandbox *b = k->gone || !k->maker ? NULL : work_sandbox_get(k->maker);
	struct err why = { 0 };

	if (e)
		why = *e;
	else if (!b)
		err_set(&why, WHY_CONTEXT_ENDED, -ESRCH, "its sandbox has ended");
	if (!c || !b) {
		image_over(k, NULL, &why);
		return;
	}
	k->making = MAKING_IMAGE;
	checkpoint_make_for_fork(b, &(struct who){ .tenant = k->tenant }, MEMORY_YES, NETWORK_DROP, on_sealed, k);
}

static void on_maker(void *arg, struct sandbox *b, const struct err *e)
{
	struct warm_kind *k = arg;
	struct err why = { 0 };

	k->making = MAKING_CONTEXT;
	if (b && context_warm(b, k->language, on_context, k, &why) == 0)
		return;
	image_over(k, NULL, b ? &why : e);
}

static void make_image(struct warm_kind *k)
{
	struct who daemon = { .tenant = k->tenant };
	struct sandbox_request *w = NULL;
	struct err e = { 0 };

	if (request_from(k->s, &daemon, k->create, &w, &e) < 0) {
		log_warn("no warm %s context for tenant %s: %s", k->language, k->tenant->id, e.msg);
		again_in(k, FAILED_NS);
		return;
	}
	k->making = MAKING_SANDBOX;
	w->origin.run = w->origin.ahead = true;
	k->maker = work_sandbox_make(k->s, &daemon, w, on_maker, k);
}

/* --- ready ones --- */

static void on_filled(void *arg, struct sandbox *b, const struct err *e)
{
	struct warm_kind *k = arg;

	k->filling = false;
	if (b && k->nready < READY_MAX) {
		k->ready[k->nready++] = TAKE_PTR(k->filler);
	} else {
		if (!b) { /* of no use on this host as it is now, or there is no room */
			log_info("no warm %s context for tenant %s: %s", k->language, k->tenant->id, e->msg);
			again_in(k, FAILED_NS);
			if (e->kind == ERR_REFUSED)
				drop_image(k);
		}
		work_sandbox_free(TAKE_PTR(k->filler));
	}
	soon(k->s->warm_contexts, SOON_MS);
}

static int image_request(struct warm_kind *k, const json_t *limits, bool admin, struct sandbox_request **ret,
			 struct err *e)
{
	int r = checkpoint_ready(k->image, e);

	if (r == 0)
		r = restore_request(k->image, limits, admin, ret, e);
	if (r == 0)
		(*ret)->origin.run = (*ret)->origin.reseeds = true;
	return r;
}

static void fill(struct warm_kind *k)
{
	const struct who daemon = { .tenant = k->tenant };
	struct sandbox_request *w = NULL;
	struct err e = { 0 };

	if (image_request(k, NULL, true, &w, &e) < 0) {
		drop_image(k);
		again_in(k, FAILED_NS);
		return;
	}
	w->origin.ahead = true;
	k->filling = true;
	k->filler = work_sandbox_make(k->s, &daemon, w, on_filled, k);
}

/* Whether there is something to do for it. */
static void kind_tend(struct warm_kind *k, uint64_t now)
{
	if (now - k->used_ns > IDLE_NS) {
		kind_drop(k);
		return;
	}
	if (k->making || k->filling || k->gone || now < k->again_ns || k->s->draining)
		return;
	if (!k->image)
		make_image(k);
	else if (k->nready < k->s->o.warm_contexts && k->nready < READY_MAX)
		fill(k);
}

static void on_time(uv_timer_t *t)
{
	struct warm_contexts *w = t->data;
	const uint64_t now = clock_mono_ns();
	struct warm_kind *next;

	for (struct warm_kind *k = w->kinds; k; k = next) {
		next = k->next;
		kind_tend(k, now);
	}
	if (w->kinds)
		soon(w, IDLE_MS);
}

/* --- from runs --- */

/* Its first process may have died a moment ago. */
static bool lives(const struct sandbox *b)
{
	struct pollfd p = { .fd = b->link.sock, .events = POLLRDHUP };

	return b->link.poll && poll(&p, 1, 0) >= 0 && !(p.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL));
}

struct work_sandbox *warm_context_take(struct service *s, const struct tenant *t, const json_t *create,
				       const char *language)
{
	struct warm_kind *k = kind_find(s, t, create, language);
	AUTO(json_decref) json_t *limits = limits_of(create);

	if (!k || k->gone || json_object_size(limits))
		return NULL;
	k->used_ns = clock_mono_ns();
	while (k->nready) {
		struct work_sandbox *w = k->ready[0];
		struct sandbox *b = work_sandbox_get(w);
		struct err e = { 0 };

		memmove(k->ready, k->ready + 1, --k->nready * sizeof(struct work_sandbox *));
		if (b && lives(b) && sandbox_count(b, &e) == 0)
			return w;
		work_sandbox_free(w);
	}
	return NULL;
}

int warm_context_request(struct service *s, const struct who *who, const json_t *create, const char *language,
			 struct sandbox_request **ret)
{
	struct warm_kind *k = kind_find(s, who->tenant, create, language);
	AUTO(json_decref) json_t *limits = limits_of(create);
	struct sandbox_request *w = NULL;
	struct err e = { 0 };

	if (!k || !k->image || k->gone)
		return 0;
	k->used_ns = clock_mono_ns();
	if (image_request(k, limits, who->scope == SCOPE_ADMIN, &w, &e) < 0)
		return 0; /* what is wrong with the limits, a cold one says */
	/* With less room than that it would end for its memory before the code begins. */
	if (w->spec->limits.memory &&
	    w->spec->limits.memory < k->image->memory_size + k->image->memory_size / 2 + 32 * MIB) {
		sandbox_request_free(w);
		return 0;
	}
	*ret = w;
	return 1;
}

void warm_context_bad(struct service *s, const struct tenant *t, const json_t *create, const char *language)
{
	struct warm_kind *k = kind_find(s, t, create, language);

	if (k && !k->making)
		drop_image(k);
}

static struct warm_kind *kind_new(struct warm_contexts *w, struct tenant *t, const json_t *create, const char *language)
{
	struct warm_kind *k, *oldest = NULL;
	unsigned all = 0, own = 0;

	for (k = w->kinds; k; k = k->next) {
		all++;
		own += k->tenant == t;
	}
	for (k = w->kinds; k; k = k->next)
		if (!k->gone && (own < KINDS_TENANT || k->tenant == t) && (!oldest || k->used_ns < oldest->used_ns))
			oldest = k;
	if (oldest && (all >= KINDS_MAX || own >= KINDS_TENANT))
		kind_drop(oldest);
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	*k = (struct warm_kind){ .s = w->s, .tenant = t, .create = plain(w->s, t, create, language), .next = w->kinds };
	snprintf(k->language, sizeof(k->language), "%s", language);
	if (!k->create) {
		free(k);
		return NULL;
	}
	w->kinds = k;
	return k;
}

void warm_context_used(struct service *s, struct tenant *t, const json_t *create, const char *language)
{
	struct warm_contexts *w = keeper(s);
	struct warm_kind *k = kind_find(s, t, create, language);

	if (!w || s->draining || (t->quota.execs && t->quota.execs < EXECS_MIN))
		return;
	if (!k)
		k = kind_new(w, t, create, language);
	if (!k || k->gone)
		return;
	k->used_ns = clock_mono_ns();
	soon(w, SOON_MS);
}

void warm_contexts_drop(struct service *s, const struct tenant *t)
{
	struct warm_kind *next;

	for (struct warm_kind *k = s->warm_contexts ? s->warm_contexts->kinds : NULL; k; k = next) {
		next = k->next;
		if (!t || k->tenant == t)
			kind_drop(k);
	}
}

bool warm_context_yield(struct service *s, const struct tenant *t)
{
	/* of a tenant's own quota they take nothing */
	struct warm_kind *k = t || !s->warm_contexts ? NULL : s->warm_contexts->kinds;

	for (; k; k = k->next) {
		again_in(k, IDLE_MS * 1000000ULL);
		if (k->nready) {
			work_sandbox_free(k->ready[--k->nready]);
			return true;
		}
		if (k->maker && k->making != MAKING_SANDBOX) {
			work_sandbox_free(TAKE_PTR(k->maker)); /* what it does fails, and says so */
			return true;
		}
	}
	return false;
}

const struct sandbox_part run_part = {
	.name = "run",
	.yield = warm_context_yield,
};
