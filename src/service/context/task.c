/*
 * Calls on a context: they wait in line, one is with the kernel. Each has a time of its own; what is not over by then, or whose
 * caller is gone, is interrupted, and a kernel that ignores that is ended.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "service/context/struct.h"
#include "service/secret/give.h"
#include "service/state/event.h"
#include "service/state/turn.h"

#include <signal.h>

#define FRAME_MAX (64U * 1024U * 1024U)
#define CODE_NOTED 1024U /* bytes of code in the audit log */

static void task_free(struct context_task *t)
{
	*tenant_events(t->context->sandbox->tenant) -= t->counted;
	turn_cancel(&t->wait);
	turn_cancel(&t->begun);
	buf_done(&t->frame);
	buf_done(&t->reply);
	free(t->code);
	for (int i = 0; i < 2; i++)
		mask_stream_done(&t->stream[i]);
	mask_unref(t->mask);
	context_unref(t->context);
	free(t);
}

static struct context_task *task_new(struct context *c, enum task_kind kind, const struct who *who, struct err *e)
{
	struct context_task *t = calloc(1, sizeof(*t));

	if (!t) {
		err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a call");
		return NULL;
	}
	t->context = c;
	t->kind = kind;
	t->who = *who;
	t->frame = (struct buf)BUF_INIT(FRAME_MAX + KERNEL_FRAME_HEAD);
	t->reply = (struct buf)BUF_INIT(2U * KERNEL_FRAME_MAX);
	t->id = ++c->next_id;
	context_ref(c);
	return t;
}

static void enqueue(struct context *c, struct context_task *t, bool first)
{
	struct context_task **p = &c->queue;

	while (*p && !first)
		p = &(*p)->next;
	t->next = *p;
	*p = t;
	c->queued++;
}

static bool dequeue(struct context *c, struct context_task *t)
{
	struct context_task **p = &c->queue;

	while (*p && *p != t)
		p = &(*p)->next;
	if (!*p)
		return false;
	*p = t->next;
	t->next = NULL;
	c->queued--;
	return true;
}

/* --- the end --- */

static void note_end(struct context_task *t)
{
	struct context *c = t->context;
	struct service *s = c->sandbox->service;
	struct audit_rec rec = who_rec(&t->who, "context.execute");
	struct mask *m = sandbox_mask(c->sandbox);
	char fields[160];
	struct json *j;

	rec.tenant = c->sandbox->tenant->id;
	rec.sandbox = c->sandbox->id;
	j = audit_begin(s->audit, &rec);
	jout_str(j, "context", c->id);
	jout_str(j, "language", context_language_name(c->spec->language));
	mask_write(m, "code", t->code ? t->code : "", j);
	if (t->code_kept < t->code_len)
		jout_u64(j, "code_bytes", t->code_len);
	if (t->error[0])
		mask_write(m, "error_name", t->error, j);
	context_end_write(&t->end, j);
	audit_end(s->audit, NULL);
	snprintf(fields, sizeof(fields),
		 "\"context\":\"%s\",\"execution_count\":%llu,\"cause\":\"%s\",\"state\":\"%s\"", c->id,
		 (unsigned long long)t->end.count, t->end.cause, t->end.lost ? "lost" : "kept");
	event_add(s, c->sandbox, "context.executed", fields);
	turn_dirty(s->turn);
}

static void on_told(void *arg)
{
	struct context_task *t = arg;

	if (t->left) {
		;
	} else if (t->kind != TASK_OPEN) {
		t->end.failed = t->fail.msg[0] ? &t->fail : NULL;
		t->end.reply = t->reply.len ? t->reply.data : NULL;
		t->end.reply_len = t->reply.len;
		t->reader.end(t->reader.arg, &t->end);
	} else if (t->ready) {
		t->ready(t->ready_arg, t->fail.msg[0] ? NULL : t->context, t->fail.msg[0] ? &t->fail : NULL);
	}
	task_free(t);
}

void task_end(struct context_task *t)
{
	struct context *c = t->context;
	const uint64_t now = clock_mono_ns();

	if (t->over)
		return;
	t->over = true;
	task_flush(t);
	if (c->current == t) {
		c->current = NULL;
		c->kill_by = c->signal_by = 0;
		if (t->held && c->exec)
			exec_go(c->exec);
	} else {
		dequeue(c, t);
	}
	if (t->began_ns)
		t->end.wall_ms = (now - t->began_ns) / 1000000ULL;
	if (t->timed_out && t->end.has_limit)
		t->end.peak = t->end.wall_ms;
	/* Also where the kernel has refused it: code that runs can say so, too, and must not stay out of the audit log. */
	if (t->kind == TASK_EXECUTE && t->began_ns)
		note_end(t);
	turn_after(c->sandbox->service->turn, &t->wait, on_told, t);
	context_arm(c);
}

void tasks_fail(struct context *c, int r, const struct err *e)
{
	struct context_task *t;

	(void)r;
	context_ref(c);
	while ((t = c->current ? c->current : c->queue)) {
		t->fail = *e;
		mask_err(sandbox_mask(c->sandbox), &t->fail);
		task_end(t);
	}
	if (!c->proven && !c->standard)
		context_unlist(c);
	context_unref(c);
}

/* --- running --- */

static void on_begun(void *arg)
{
	struct context_task *t = arg;

	if (!t->left && t->reader.begun)
		t->reader.begun(t->reader.arg);
}

static void task_begin(struct context *c, struct context_task *t)
{
	t->began_ns = clock_mono_ns();
	t->deadline_ns = t->timeout_ms ? t->began_ns + t->timeout_ms * 1000000ULL : 0;
	t->mask = mask_ref(sandbox_mask(c->sandbox));
	for (int i = 0; i < 2 && t->mask; i++)
		mask_stream_init(&t->stream[i], t->mask);
	c->current = t;
	t->heeds = t->kind != TASK_EXECUTE;
	t->oom_base = c->sandbox->stat.group.oom_kills;
	c->count += t->kind == TASK_EXECUTE;
	if (t->reader.begun)
		turn_after(c->sandbox->service->turn, &t->begun, on_begun, t);
	kernel_send(c, &t->frame); /* if that fails, it has ended, or is about to */
	if (c->current == t)
		buf_done(&t->frame);
	context_arm(c);
}

void tasks_go(struct context *c)
{
	struct context_task *t;
	struct err e = { 0 };

	context_ref(c);
	while (!c->current && (t = c->queue)) {
		if (c->state == CONTEXT_NONE) {
			int r = kernel_start(c, &e);

			if (r < 0)
				tasks_fail(c, r, &e);
			break;
		}
		if (c->state != CONTEXT_READY || (exec_interrupting(c->exec) && clock_mono_ns() < c->rest_until))
			break;
		if (t->kind == TASK_OPEN) {
			task_end(t);
			continue;
		}
		dequeue(c, t);
		task_begin(c, t);
	}
	context_arm(c);
	context_unref(c);
}

static bool is_node(const struct context *c)
{
	return c->spec->language == CONTEXT_JAVASCRIPT || c->spec->language == CONTEXT_TYPESCRIPT;
}

void task_interrupt(struct context_task *t)
{
	struct context *c = t->context;

	if (c->current != t || !c->exec)
		return;
	if (!t->heeds) {
		t->signal = true;
		c->signal_by = clock_mono_ns() + HEED_MS * 1000000ULL;
		context_arm(c);
		return;
	}
	/*
	 * Node changes its handlers when a cell begins, and when it reaches its first await: a signal that comes in between is
	 * lost, or ends the process. Most cells are there soon, or much later.
	 */
	if (is_node(c) && clock_mono_ns() < t->heeds_ns + NODE_MS * 1000000ULL) {
		t->signal = true;
		c->signal_by = t->heeds_ns + NODE_MS * 1000000ULL;
		context_arm(c);
		return;
	}
	t->signal = is_node(c) && t->signals++ < AGAIN_MAX;
	c->signal_by = t->signal ? clock_mono_ns() + AGAIN_MS * 1000000ULL : 0;
	c->rest_until = clock_mono_ns() + REST_MS * 1000000ULL;
	exec_interrupt(c->exec, NULL);
	context_arm(c);
}

void task_heeds(struct context_task *t)
{
	if (!t->heeds)
		t->heeds_ns = clock_mono_ns();
	t->heeds = true;
	if (t->signal)
		task_interrupt(t);
}

/* --- time --- */

static void on_time(uv_timer_t *timer)
{
	struct context *c = timer->data;
	const uint64_t now = clock_mono_ns();
	struct context_task *t = c->current;
	char why[240];

	context_ref(c);
	if (c->start_by && now >= c->start_by) {
		kernel_end(c, "lost",
			   c->state == CONTEXT_SYNCING ? "it does not answer" : "it did not become ready in time");
	} else if (t && c->kill_by && now >= c->kill_by) {
		if (t->timed_out)
			snprintf(why, sizeof(why), "it ran longer than its timeout of %g s, and ignored the interrupt",
				 (double)t->timeout_ms / 1000);
		else
			snprintf(why, sizeof(why), "its caller has disconnected, and it ignored the interrupt");
		t->end.has_limit = t->timed_out;
		t->end.limit = t->timeout_ms;
		kernel_end(c, t->timed_out ? "timeout" : "interrupted", why);
	} else if (t && c->signal_by && now >= c->signal_by) {
		task_heeds(t);
	} else if (t && t->deadline_ns && now >= t->deadline_ns && !c->kill_by) {
		t->timed_out = true;
		c->kill_by = now + GRACE_MS * 1000000ULL;
		task_interrupt(t);
		exec_go(c->exec); /* what is behind output that nobody takes has to come */
		t->held = false;
	} else {
		tasks_go(c);
	}
	context_arm(c);
	context_unref(c);
}

static void on_timer_closed(uv_handle_t *h)
{
	free(h);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a && (!b || a < b) ? a : b;
}

static uint64_t due(const struct context *c)
{
	const struct context_task *t = c->current;

	if (t)
		return sooner(sooner(c->start_by, c->signal_by), c->kill_by ? c->kill_by : t->deadline_ns);
	if (!c->start_by && c->queue && c->state == CONTEXT_READY && exec_interrupting(c->exec))
		return c->rest_until;
	return c->start_by;
}

void context_arm(struct context *c)
{
	const uint64_t at = c->stopped_ns || !c->refs ? 0 : due(c), now = clock_mono_ns();

	if (!at && c->timer) {
		uv_timer_stop(c->timer);
		uv_close((uv_handle_t *)c->timer, on_timer_closed);
		c->timer = NULL;
	}
	if (!at)
		return;
	if (!c->timer) {
		c->timer = malloc(sizeof(*c->timer));
		if (!c->timer)
			abort(); /* without it a limit would not be kept */
		uv_timer_init(c->sandbox->service->loop, c->timer);
		c->timer->data = c;
	}
	uv_timer_start(c->timer, on_time, at > now ? (at - now + 999999) / 1000000 : 1, 0);
}

void context_clock(struct context *c, bool stop)
{
	const uint64_t now = clock_mono_ns();
	uint64_t *times[] = { &c->start_by, &c->kill_by, &c->rest_until, &c->signal_by,
			      c->current ? &c->current->deadline_ns : NULL };

	if (stop == (c->stopped_ns != 0))
		return;
	for (size_t i = 0; i < ARRAY_LEN(times) && !stop; i++)
		if (times[i] && *times[i])
			*times[i] += now - c->stopped_ns;
	c->stopped_ns = stop ? now : 0;
	context_arm(c);
}

/* --- from callers --- */

static int may_wait(const struct context *c, struct err *e)
{
	if (c->queued < CONTEXT_QUEUE_MAX)
		return 0;
	err_set(e, ERR_EXHAUSTED, -EAGAIN, "context '%s' has %u calls that wait", c->id, c->queued);
	err_remedy(e, "wait for their answers, or use another context");
	return -EAGAIN;
}

/* Code that waits, or that the kernel does not read, stays in memory. */
static int count_frame(struct context_task *t, struct err *e)
{
	size_t *events = tenant_events(t->context->sandbox->tenant);

	if (t->frame.len > FRAME_FREE && *events + t->frame.len > FRAMES_MAX) {
		err_set(e, ERR_EXHAUSTED, -EAGAIN,
			"calls that are not over, and what contexts send, would have more than %u MiB of the tenant",
			FRAMES_MAX >> 20);
		err_remedy(e, "wait for the answers of earlier calls");
		return -EAGAIN;
	}
	t->counted = t->frame.len;
	*events += t->counted;
	return 0;
}

/* Of a context that is only made when it is used. */
static int begin(struct context *c, struct context_task *t, struct context_task **ret, struct err *e)
{
	int r = sandbox_ready(c->sandbox, e);

	/* It may have been deleted while the request came: nobody would ever find its kernel. */
	if (r == 0 && !c->listed)
		r = err_set(e, WHY_CONTEXT_ENDED, -ESRCH, "the context was deleted in the meantime");
	if (r == 0)
		r = may_wait(c, e);
	if (r == 0)
		r = count_frame(t, e);
	if (r < 0) {
		task_free(t);
		return r;
	}
	enqueue(c, t, false);
	*ret = t;
	tasks_go(c);
	return 0;
}

static int make_frame(struct context_task *t, struct buf *body, struct json *j, struct err *e)
{
	jout_end(j);
	if (jout_done(j) < 0 || kernel_frame_make(&t->frame, body) < 0)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "the request takes more than 64 MiB");
	return 0;
}

static void put_json(const json_t *o, const char *key, struct json *j)
{
	char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

	if (text)
		jout_raw(j, key, text, strlen(text));
	free(text);
}

int context_execute(struct context *c, const struct who *who, const struct context_request *request,
		    const struct context_reader *reader, struct context_task **ret, struct err *e)
{
	struct context_task *t;
	AUTO(buf_done) struct buf body = BUF_INIT(FRAME_MAX);
	struct json j = JSON_INIT(&body);
	size_t n = request->code_len;
	int r;

	if (n > CONTEXT_CODE_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "'code' has %zu bytes, and at most %u are allowed", n,
			       CONTEXT_CODE_MAX);
	t = task_new(c, TASK_EXECUTE, who, e);
	if (!t)
		return -ENOMEM;
	t->reader = *reader;
	t->timeout_ms = request->timeout_ms;
	t->code_len = n;
	t->code_kept = utf8_whole(request->code, n < CODE_NOTED ? n : CODE_NOTED);
	t->code = strndup(request->code, t->code_kept);
	jout_object(&j, NULL);
	jout_str(&j, "type", "execute");
	jout_u64(&j, "id", t->id);
	jout_strn(&j, "code", request->code, n);
	put_json(request->env, "env", &j);
	r = make_frame(t, &body, &j, e);
	if (r < 0) {
		task_free(t);
		return r;
	}
	return begin(c, t, ret, e);
}

int context_ask(struct context *c, const struct who *who, const char *type, json_t *members,
		const struct context_reader *reader, struct context_task **ret, struct err *e)
{
	AUTO(json_decref) json_t *o = members;
	AUTO(buf_done) struct buf body = BUF_INIT(FRAME_MAX);
	struct json j = JSON_INIT(&body);
	struct context_task *t = task_new(c, TASK_ASK, who, e);
	const char *key;
	json_t *v;
	int r;

	if (!t)
		return -ENOMEM;
	t->reader = *reader;
	t->timeout_ms = ASK_MS;
	jout_object(&j, NULL);
	jout_str(&j, "type", type);
	jout_u64(&j, "id", t->id);
	json_object_foreach(o, key, v) put_json(v, key, &j);
	r = make_frame(t, &body, &j, e);
	if (r < 0) {
		task_free(t);
		return r;
	}
	return begin(c, t, ret, e);
}

struct context_task *task_open(struct context *c, const struct who *who, context_ready_fn *fn, void *arg, bool first)
{
	struct context_task *t = task_new(c, TASK_OPEN, who, NULL);

	if (!t)
		abort(); /* a few hundred bytes only */
	t->ready = fn;
	t->ready_arg = arg;
	enqueue(c, t, first);
	return t;
}

void context_task_hold(struct context_task *t)
{
	if (t->context->current != t || t->held || t->timed_out || !t->context->exec)
		return;
	t->held = true;
	exec_hold(t->context->exec);
}

void context_task_go(struct context_task *t)
{
	if (!t->held)
		return;
	t->held = false;
	if (t->context->current == t && t->context->exec)
		exec_go(t->context->exec);
}

void context_task_interrupt(struct context_task *t)
{
	if (t->over)
		return;
	t->interrupted = true;
	context_note(t->context, &t->who, "context.interrupt");
	if (t->context->current == t) {
		task_interrupt(t);
		return;
	}
	t->end.cause = "interrupted";
	snprintf(t->end.detail, sizeof(t->end.detail), "it was interrupted before it began");
	task_end(t);
}

void context_task_leave(struct context_task *t)
{
	struct context *c = t->context;

	t->left = true;
	if (t->over)
		return;
	if (c->current != t) {
		dequeue(c, t);
		task_free(t);
		return;
	}
	context_ref(c);
	if (!c->kill_by)
		c->kill_by = clock_mono_ns() + GRACE_MS * 1000000ULL;
	task_interrupt(t);
	context_task_go(t);
	context_arm(c);
	context_unref(c);
}
