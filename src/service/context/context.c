/* The contexts of a sandbox: made, found, described, restarted, removed. */
#include "base/base.h"
#include "base/clock.h"
#include "service/context/struct.h"
#include "service/sandbox/part.h"
#include "service/state/event.h"
#include "service/state/wall.h"

#include <signal.h>

/* --- lifetime --- */

struct context *context_new(struct sandbox *b, const char *id, bool standard, struct context_spec *spec, struct err *e)
{
	struct context *c = calloc(1, sizeof(*c)), **p = &b->contexts;
	int r = 0;

	if (!c) {
		err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a context");
		return NULL;
	}
	if (id)
		snprintf(c->id, sizeof(c->id), "%s", id);
	else
		r = id_new(c->id, sizeof(c->id));
	if (r < 0) {
		free(c);
		err_sys(e, ERR_INTERNAL, r, "make an id");
		return NULL;
	}
	c->sandbox = b;
	c->standard = standard;
	c->spec = spec;
	c->made_ns = wall_now(b->service);
	c->in = (struct buf)BUF_INIT(KERNEL_FRAME_MAX + KERNEL_FRAME_HEAD + SCRATCH);
	c->said = (struct buf)BUF_INIT(16 * KIB);
	c->refs = 1; /* the list's */
	c->listed = true;
	sandbox_ref(b);
	while (*p)
		p = &(*p)->next;
	*p = c;
	return c;
}

void context_ref(struct context *c)
{
	c->refs++;
}

void context_unref(struct context *c)
{
	if (--c->refs)
		return;
	context_arm(c); /* without references there is nothing to wait for */
	buf_done(&c->in);
	buf_done(&c->said);
	context_spec_free(c->spec);
	sandbox_unref(c->sandbox);
	free(c);
}

void context_unlist(struct context *c)
{
	struct context **p = &c->sandbox->contexts;

	while (*p && *p != c)
		p = &(*p)->next;
	if (!*p)
		return;
	*p = c->next;
	c->next = NULL;
	c->listed = false;
	context_unref(c);
}

struct context *context_by_id(const struct sandbox *b, const char *id)
{
	struct context *c = id ? b->contexts : NULL;

	while (c && strcmp(c->id, id))
		c = c->next;
	return c;
}

const char *context_id(const struct context *c)
{
	return c->id;
}

void context_note(const struct context *c, const struct who *who, const char *kind)
{
	struct service *s = c->sandbox->service;
	struct audit_rec rec = who_rec(who, kind);
	char field[48];
	struct json *j;

	rec.tenant = c->sandbox->tenant->id;
	rec.sandbox = c->sandbox->id;
	j = audit_begin(s->audit, &rec);
	jout_str(j, "context", c->id);
	jout_str(j, "language", context_language_name(c->spec->language));
	if (c->spec->cwd)
		jout_str(j, "cwd", c->spec->cwd);
	audit_end(s->audit, NULL);
	snprintf(field, sizeof(field), "\"context\":\"%s\"", c->id);
	event_add(s, c->sandbox, kind, field);
	turn_dirty(s->turn);
}

/* --- making and finding --- */

static int has_room(const struct sandbox *b, struct err *e)
{
	unsigned n = 0;

	for (const struct context *c = b->contexts; c; c = c->next)
		n++;
	if (n < CONTEXTS_MAX)
		return 0;
	err_set(e, ERR_EXHAUSTED, -EAGAIN, "context limit reached (%u per sandbox)", CONTEXTS_MAX);
	err_remedy(e, "delete contexts that are not needed any more");
	return -EAGAIN;
}

int context_make(struct sandbox *b, const struct who *who, struct context_spec *spec, context_ready_fn *fn, void *arg,
		 struct err *e)
{
	struct context *c;
	int r = sandbox_ready(b, e);

	if (r == 0)
		r = has_room(b, e);
	if (r < 0)
		return r;
	c = context_new(b, NULL, false, spec, e);
	if (!c)
		return -ENOMEM;
	context_note(c, who, "context.create");
	task_open(c, who, fn, arg, false);
	tasks_go(c);
	return 0;
}

struct context *context_find(struct sandbox *b, const char *id, struct err *e)
{
	struct context *c = context_by_id(b, id);
	AUTO(json_decref) json_t *o = NULL;
	struct context_spec *spec = NULL;
	enum context_language l;

	if (c)
		return c;
	if (!context_language_parse(id, &l)) {
		err_set(e, WHY_CONTEXT_MISSING, -ENOENT, "no context '%.64s' in this sandbox", id);
		err_remedy(
			e,
			"GET …/contexts lists them; the default ones are called python, javascript, typescript, shell and r");
		return NULL;
	}
	c = context_by_id(b, context_language_name(l));
	if (c || has_room(b, e) < 0)
		return c;
	o = json_pack("{s:s}", "language", context_language_name(l));
	if (!o || context_spec_read(b, o, &spec, e) < 0)
		return NULL;
	c = context_new(b, context_language_name(l), true, spec, e);
	if (!c)
		context_spec_free(spec);
	return c;
}

int context_warm(struct sandbox *b, const char *language, context_ready_fn *fn, void *arg, struct err *e)
{
	const struct who daemon = { .tenant = b->tenant };
	struct context *c = context_find(b, language, e);

	if (!c)
		return -ENOMEM;
	c->preloads = true;
	task_open(c, &daemon, fn, arg, false);
	tasks_go(c);
	return 0;
}

int context_interrupt(struct context *c, const struct who *who, bool *ret_busy, struct err *e)
{
	int r = sandbox_ready(c->sandbox, e);

	if (r < 0)
		return r;
	*ret_busy = c->current && c->current->kind == TASK_EXECUTE;
	if (!*ret_busy)
		return 0;
	context_note(c, who, "context.interrupt");
	c->current->interrupted = true;
	task_interrupt(c->current);
	return 0;
}

/* Ends what runs, and its kernel. */
static void stop(struct context *c, const char *cause, const char *detail)
{
	struct context_task *t = c->current;

	kernel_leave(c, true);
	if (!t)
		return;
	t->end.cause = cause;
	t->end.lost = true;
	snprintf(t->end.detail, sizeof(t->end.detail), "%s", detail);
	task_end(t);
}

int context_restart(struct context *c, const struct who *who, context_ready_fn *fn, void *arg, struct err *e)
{
	int r = sandbox_ready(c->sandbox, e);

	if (r < 0)
		return r;
	context_ref(c);
	context_note(c, who, "context.restart");
	stop(c, "restarted", "the context was restarted in the meantime");
	task_open(c, who, fn, arg, true);
	tasks_go(c);
	context_unref(c);
	return 0;
}

static void end_all(struct context *c, const char *why)
{
	struct err e = { 0 };

	context_ref(c);
	c->proven = true; /* it is taken from the list here */
	stop(c, "deleted", why);
	err_set(&e, WHY_CONTEXT_ENDED, -ESRCH, "%s", why);
	tasks_fail(c, -ESRCH, &e);
	context_unlist(c);
	context_unref(c);
}

int context_delete(struct context *c, const struct who *who, struct err *e)
{
	int r = c->exec ? sandbox_ready(c->sandbox, e) : 0;

	if (r < 0)
		return r;
	context_note(c, who, "context.delete");
	end_all(c, "the context was deleted in the meantime");
	return 0;
}

/* --- what is seen of them --- */

static const char *state_name(const struct context *c)
{
	switch (c->state) {
	case CONTEXT_NONE:
		return "stopped";
	case CONTEXT_STARTING:
	case CONTEXT_SETTLING:
		return "starting";
	case CONTEXT_READY:
		return c->current ? "busy" : "idle";
	case CONTEXT_SYNCING:
		return "busy";
	}
	return "stopped";
}

static void write_fields(const char *id, bool standard, const struct context_spec *s, const char *state,
			 uint64_t made_ns, struct json *j)
{
	char when[32];

	jout_str(j, "id", id);
	jout_str(j, "language", context_language_name(s->language));
	jout_str(j, "cwd", s->cwd);
	jout_bool(j, "default", standard);
	jout_str(j, "state", state);
	jout_u64(j, "output_limit", s->output_limit);
	jout_u64(j, "result_limit", s->result_limit);
	if (made_ns)
		clock_iso(made_ns, when);
	jout_str(j, "created_at", made_ns ? when : NULL);
}

void context_write(const struct context *c, const char *key, struct json *j)
{
	struct context_spec shown = *c->spec;

	if (!shown.cwd)
		shown.cwd = c->sandbox->request->spec->workdir;
	jout_object(j, key);
	write_fields(c->id, c->standard, &shown, state_name(c), c->made_ns, j);
	jout_end(j);
}

/* The default ones of these are there before they are used. */
static void write_standard(struct sandbox *b, enum context_language l, struct json *j)
{
	const struct context *c = context_by_id(b, context_language_name(l));
	AUTO(json_decref) json_t *o = json_object();
	struct context_spec *s = NULL;
	struct err e = { 0 };

	if (c) {
		context_write(c, NULL, j);
		return;
	}
	if (!o || context_spec_read(b, o, &s, &e) < 0)
		return;
	s->language = l;
	s->cwd = strdup(b->request->spec->workdir);
	jout_object(j, NULL);
	write_fields(context_language_name(l), true, s, "stopped", 0, j);
	jout_end(j);
	context_spec_free(s);
}

void contexts_write(struct sandbox *b, struct json *j)
{
	write_standard(b, CONTEXT_PYTHON, j);
	write_standard(b, CONTEXT_JAVASCRIPT, j);
	for (const struct context *c = b->contexts; c; c = c->next)
		if (!c->standard || (c->spec->language != CONTEXT_PYTHON && c->spec->language != CONTEXT_JAVASCRIPT))
			context_write(c, NULL, j);
}

void context_end_write(const struct context_end *end, struct json *j)
{
	if (end->count)
		jout_u64(j, "execution_count", end->count);
	else
		jout_null(j, "execution_count");
	jout_object(j, "verdict");
	jout_str(j, "cause", end->cause ? end->cause : "lost");
	jout_str(j, "detail", end->detail);
	jout_str(j, "state", end->lost ? "lost" : "kept");
	if (end->has_limit) {
		jout_u64(j, "limit", end->limit);
		jout_u64(j, "peak", end->peak);
	} else {
		jout_null(j, "limit");
		jout_null(j, "peak");
	}
	if (end->oom_kills)
		jout_u64(j, "oom_kills", end->oom_kills);
	jout_end(j);
	jout_object(j, "truncated");
	jout_u64(j, "output_dropped", end->dropped);
	jout_u64(j, "results_dropped", end->left_out);
	jout_end(j);
	jout_object(j, "usage");
	jout_u64(j, "wall_ms", end->wall_ms);
	if (end->measured) {
		jout_u64(j, "cpu_ms", end->cpu_ms);
		jout_u64(j, "memory_peak", end->memory_peak);
	} else {
		jout_null(j, "cpu_ms");
		jout_null(j, "memory_peak");
	}
	jout_end(j);
}

/* --- a part of its sandbox --- */

static void on_ended(struct sandbox *b)
{
	while (b->contexts)
		end_all(b->contexts, "the sandbox has ended");
}

/* Its agent can be talked to again, or it was paused. */
static void on_reached(struct sandbox *b)
{
	struct context *next;

	for (struct context *c = b->contexts; c; c = next) {
		const struct exec *x = exec_first(b);

		next = c->next;
		context_clock(c, b->state != SANDBOX_RUNNING);
		while (x && x != c->exec)
			x = exec_next(x);
		if (c->exec && !x && b->state == SANDBOX_RUNNING) /* its agent does not know it any more */
			kernel_gone(c);
	}
}

static void on_lost(struct sandbox *b, enum sandbox_loss how)
{
	if (how == LOSS_ASLEEP)
		for (struct context *c = b->contexts; c; c = c->next)
			context_clock(c, true);
	if (how == LOSS_DELETED)
		on_ended(b);
}

static void on_moved(struct sandbox *b, struct sandbox *from)
{
	(void)from;
	for (struct context *c = b->contexts; c; c = c->next)
		context_clock(c, false);
}

const struct sandbox_part context_part = {
	.name = "context",
	.found = context_found,
	.reached = on_reached,
	.moved = on_moved,
	.lost = on_lost,
	.ended = on_ended,
};
