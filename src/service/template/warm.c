/* Makes warm images, and finds out when they are out of date. */
#include "service/template/warm.h"
#include "base/base.h"
#include "base/log.h"
#include "proto/warm.h"
#include "service/checkpoint/struct.h"
#include "service/context/context.h"
#include "service/exec/struct.h"
#include "service/state/json_read.h"
#include "service/template/struct.h"

#define TIMEOUT_MS 60000
#define TIMEOUT_MAX_MS 600000
#define TAIL 4096U
#define SEE_ALL "run the same command in an ordinary sandbox to see its whole output"

struct warming {
	struct service *s;
	json_t *spec;
	const char *ready; /* the text it prints when it is ready; NULL: it reports to the agent */
	uint64_t ms; /* it has so long */
	struct sandbox *sandbox; /* referenced */
	struct exec *exec; /* referenced */
	struct exec_sink sink;
	struct exec_watch watch;
	struct buf said[2]; /* the end of it */
	uv_timer_t *timer;
	bool sealing, over;
	bool asking; /* a context is being made: on_context() comes, and frees what is over by then */
	warm_fn *fn;
	void *arg;
};

static int read_spec(const json_t *warm, const char **ret_python, const json_t **ret_cmd, const char **ret_ready,
		     const char **ret_context, uint64_t *ret_ms, struct err *e)
{
	struct json_read j = JIN_INIT(warm, e);
	bool python, cmd, ready, context;

	*ret_ms = TIMEOUT_MS;
	python = json_read_str(&j, "python", ret_python, WARM_CODE_MAX);
	*ret_cmd = json_read_array(&j, "cmd", 256);
	cmd = *ret_cmd != NULL;
	ready = json_read_str(&j, "ready", ret_ready, WARM_READY_MAX);
	context = json_read_str(&j, "context", ret_context, 32);
	json_read_ms(&j, "timeout", ret_ms);
	if (j.r == 0 && (python + cmd + context != 1 || cmd != ready || (ready && !**ret_ready)))
		j.r = err_set(e, ERR_INVALID, -EINVAL, "must be {python}, {cmd, ready} or {context}");
	if (j.r == 0 && context && strcmp(*ret_context, "python") != 0)
		json_read_bad(&j, "context", "must be \"python\" (got '%.32s')", *ret_context);
	if (j.r == 0 && (!*ret_ms || *ret_ms > TIMEOUT_MAX_MS))
		json_read_bad(&j, "timeout", "must be more than 0 and at most 600 seconds");
	return json_read_end(&j);
}

int warm_check(const json_t *warm, struct err *e)
{
	const char *python = NULL, *ready = NULL, *context = NULL;
	const json_t *cmd = NULL;
	uint64_t ms;
	int r = read_spec(warm, &python, &cmd, &ready, &context, &ms, e);

	if (r < 0)
		return err_wrap(e, r, "'warm'");
	for (size_t i = 0; cmd && i < json_array_size(cmd); i++)
		if (!json_is_string(json_array_get(cmd, i)))
			return err_set(e, WHY_BAD_FIELD, -EINVAL, "'warm': 'cmd' must be an array of strings");
	if (cmd && !json_array_size(cmd))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'warm': 'cmd' must not be empty");
	return 0;
}

/* --- the end --- */

static void free_timer(uv_handle_t *h)
{
	free(h);
}

static void warming_free(struct warming *w)
{
	json_decref(w->spec);
	buf_done(&w->said[0]);
	buf_done(&w->said[1]);
	free(w);
}

static void finish(struct warming *w, const char *image, const struct err *e)
{
	if (w->over)
		return;
	w->over = true;
	exec_unwatch(&w->watch);
	if (w->exec) {
		exec_leave(w->exec, &w->sink);
		exec_unref(w->exec);
	}
	if (w->timer) {
		uv_timer_stop(w->timer);
		uv_close((uv_handle_t *)w->timer, free_timer);
	}
	if (w->sandbox) {
		if (w->sandbox->state == SANDBOX_RUNNING)
			sandbox_discard(w->sandbox, image ? "its image has been made" : "it did not become ready");
		sandbox_unref(w->sandbox);
	}
	w->fn(w->arg, image, e);
	if (!w->asking)
		warming_free(w);
}

/* Its last words are the reason, as a rule. */
static void fail(struct warming *w, const char *why, const char *remedy)
{
	const struct buf *b = &w->said[w->said[EXEC_ERR].len ? EXEC_ERR : EXEC_OUT];
	struct err e = { 0 };
	const char *text = buf_str(b);
	size_t n = b->len, most = 200 - strlen(why), from;

	while (n && strchr(" \n\r\t", text[n - 1]))
		n--;
	from = n > most ? n - most : 0;
	if (from && memchr(text + from, '\n', n - from)) /* whole lines, if there are some */
		from = (size_t)((const char *)memchr(text + from, '\n', n - from) + 1 - text);
	err_set(&e, WHY_START_FAILED, -ECHILD, "the warm process %s%s%s%.*s", why, n ? ": " : "", from ? "…" : "",
		(int)(n - from), text + from);
	err_remedy(&e, "%s", remedy);
	finish(w, NULL, &e);
}

/* Servers that log to stderr, and programs that keep what they write to a pipe, wait here for nothing. */
static void on_time(uv_timer_t *t)
{
	struct warming *w = t->data;
	const struct buf *b = &w->said[EXEC_ERR];
	const char *remedy = "increase the time (--warm-timeout, `timeout`), or do less in the warm code";
	char why[128];

	if (w->ready)
		snprintf(why, sizeof(why), "did not become ready in time: no '%.40s' on its stdout in %g s", w->ready,
			 (double)w->ms / 1000);
	else
		snprintf(why, sizeof(why), "did not become ready in time: its code is still running after %g s",
			 (double)w->ms / 1000);
	if (w->ready && b->len && memmem(b->data, b->len, w->ready, strlen(w->ready)))
		remedy = "it printed this to stderr, but only stdout counts: end its line with `2>&1`";
	else if (w->ready && !w->said[EXEC_OUT].len)
		remedy = "print this text to stdout, unbuffered (`python3 -u`, `stdbuf -oL`), stderr with `2>&1`; or "
			 "increase the time (--warm-timeout, `timeout`)";
	fail(w, why, remedy);
}

/* --- the image --- */

static void on_sealed(void *arg, struct checkpoint *c, const struct err *e)
{
	struct warming *w = arg;
	struct err why = { 0 };
	char id[ID_SIZE];

	if (!c) {
		why = *e;
		err_wrap(&why, 0, "image the warm process");
		finish(w, NULL, &why);
	} else if (w->exec && exec_has_exited(w->exec)) { /* the image may be without it */
		memcpy(id, c->id, sizeof(id));
		warm_drop(w->s, id);
		fail(w, "ended after it was ready", SEE_ALL);
	} else {
		finish(w, c->id, NULL);
	}
}

static void seal(struct warming *w)
{
	struct checkpoint_request request = { .memory = MEMORY_YES, .name = WARM_NAME, .label = "" };
	const struct who daemon = { .tenant = w->sandbox->tenant };

	if (w->sealing || w->over)
		return;
	w->sealing = true;
	uv_timer_stop(w->timer);
	checkpoint_make(w->sandbox, &daemon, &request, on_sealed, w);
}

/* --- the process --- */

static void on_data(void *arg, enum exec_stream s, const char *p, size_t len)
{
	struct warming *w = arg;
	struct buf *b = &w->said[s];

	for (size_t n; len && !w->over; p += n, len -= n) {
		n = len < TAIL ? len : TAIL;
		if (buf_add(b, p, n) < 0)
			buf_clear(b);
		if (s == EXEC_OUT && w->ready && b->len && memmem(b->data, b->len, w->ready, strlen(w->ready)))
			seal(w);
		if (b->len > TAIL)
			buf_drop(b, b->len - TAIL);
	}
}

static void on_change(void *arg, struct exec *x)
{
	struct warming *w = arg;
	char why[64];

	if (x->warm && !exec_over(x))
		seal(w);
	if (!exec_over(x) || w->over || w->sealing)
		return;
	if (x->failed) {
		finish(w, NULL, &x->fail);
		return;
	}
	snprintf(why, sizeof(why), "ended with %d before it was ready", x->verdict.exit_code);
	fail(w, why, SEE_ALL);
}

static void on_context(void *arg, struct context *c, const struct err *e)
{
	struct warming *w = arg;

	w->asking = false;
	if (w->over)
		warming_free(w);
	else if (c)
		seal(w);
	else
		finish(w, NULL, e);
}

static void begin_timer(struct warming *w)
{
	w->timer = malloc(sizeof(*w->timer));
	if (!w->timer)
		abort();
	uv_timer_init(w->s->loop, w->timer);
	w->timer->data = w;
	uv_timer_start(w->timer, on_time, w->ms, 0);
}

static int start(struct warming *w, struct err *e)
{
	const struct who daemon = { .tenant = w->sandbox->tenant };
	const char *python = NULL, *ready = NULL, *context = NULL;
	AUTO(exec_request_free) struct exec_request *x = NULL;
	AUTO(json_decref) json_t *o = NULL;
	struct sandbox_request own = *w->sandbox->request;
	const json_t *cmd = NULL;
	int r = read_spec(w->spec, &python, &cmd, &ready, &context, &w->ms, e);

	if (r < 0)
		return r;
	if (context) {
		begin_timer(w);
		r = context_warm(w->sandbox, context, on_context, w, e);
		w->asking = r == 0;
		return r;
	}
	w->ready = ready;
	own.exec_timeout_ms = 0;
	if (python)
		o = json_pack("{s:[s,s,s,s]}", "cmd", "python3", "-c", warm_runner_python(), python);
	else
		o = json_pack("{s:O}", "cmd", json_object_get(w->spec, "cmd"));
	if (!o)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a command");
	r = exec_request_parse(&w->s->o, &own, o, &x, e);
	if (r < 0)
		return r;
	x->way = python ? EXEC_WARM : EXEC_PROGRAM;
	x->background = x->resident = true;
	begin_timer(w);
	w->sink = (struct exec_sink){ .data = on_data, .arg = w };
	r = exec_new(w->sandbox, &daemon, TAKE_PTR(x), &w->sink, &w->exec, e);
	if (r == 0)
		exec_watch(w->exec, &w->watch, on_change, w);
	return r;
}

static void on_sandbox(void *arg, struct sandbox *b, bool found, const struct err *e)
{
	struct warming *w = arg;
	struct err why = { 0 };

	(void)found;
	if (!b) {
		finish(w, NULL, e);
		return;
	}
	w->sandbox = b;
	sandbox_ref(b);
	if (start(w, &why) < 0)
		finish(w, NULL, &why);
}

void warm_make(struct service *s, struct tenant *t, struct sandbox_request *request, json_t *warm, warm_fn *fn,
	       void *arg)
{
	const struct who daemon = { .tenant = t };
	struct warming *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	*w = (struct warming){ .s = s, .spec = json_incref(warm), .fn = fn, .arg = arg };
	w->said[0] = w->said[1] = (struct buf)BUF_INIT(4U * TAIL);
	request->origin.ready = true; /* of no pool: a restart of the daemon ends it */
	sandbox_create(s, &daemon, request, on_sandbox, w);
}

/* --- what is left --- */

void warm_drop(struct service *s, const char *image)
{
	struct checkpoint *c = *image ? map_get(&s->checkpoints, image) : NULL;
	struct err e = { 0 };
	const struct who daemon = { .tenant = c ? c->tenant : NULL };

	if (c && checkpoint_remove(c, &daemon, &e) < 0)
		log_warn("cannot remove warm image %s: %s", image, e.msg);
}

void warm_sweep(struct service *s)
{
	struct checkpoint *c;
	size_t at = 0;

	while ((c = map_next(&s->checkpoints, &at)))
		if (checkpoint_hidden(c) && !template_on(s, c->id))
			warm_drop(s, c->id);
}

bool warm_only(struct service *s, const struct tenant *t)
{
	struct checkpoint *c;
	uint64_t n = 0;
	size_t at = 0;

	while ((c = map_next(&s->checkpoints, &at)))
		n += c->tenant == t && checkpoint_hidden(c);
	return strcmp(t->id, TENANT_DEFAULT) && t->used.checkpoints == n;
}

void warm_clear(struct service *s, const struct tenant *t)
{
	struct template *x;
	size_t at = 0;

	while ((x = map_next(&s->templates, &at))) {
		char image[ID_SIZE];

		if (x->tenant != t)
			continue;
		memcpy(image, x->image, sizeof(image));
		x->image[0] = '\0';
		warm_drop(s, image);
	}
}
