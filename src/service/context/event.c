/*
 * What a kernel says of an execution, as its caller gets it: with the context's limits kept once more, since what is in the
 * sandbox can say anything, and with the values of secrets masked.
 */
#include "base/base.h"
#include "service/context/struct.h"

#define RESULTS_MAX 1000U
#define RESULTS_TIMES 4U /* all results of an execution, in the size of one */
#define TEXT_MAX (256U * 1024U) /* of a traceback; others are shorter */

const char *context_event_name(enum context_event_kind k)
{
	static const char *const names[] = {
		[CONTEXT_STDOUT] = "stdout", [CONTEXT_STDERR] = "stderr", [CONTEXT_RESULT] = "result",
		[CONTEXT_ERROR] = "error",   [CONTEXT_CLEAR] = "clear",
	};

	return names[k];
}

static void tell(struct context_task *t, struct context_event *ev, const struct buf *json)
{
	ev->json = buf_str(json);
	ev->len = json->len;
	if (!t->left && t->reader.event)
		t->reader.event(t->reader.arg, ev);
}

/* @inside: of a JSON string. */
static void tell_output(struct context_task *t, enum context_event_kind kind, const char *inside, size_t len)
{
	struct context_event ev = { .kind = kind };
	AUTO(buf_done) struct buf b = BUF_INIT(len + 64);

	if (!len || buf_adds(&b, "{\"text\":\"") < 0)
		return;
	ev.text_len = len;
	if (buf_add(&b, inside, len) < 0 || buf_adds(&b, "\"}") < 0)
		return;
	ev.text = b.data + strlen("{\"text\":\"");
	tell(t, &ev, &b);
}

/* @text: the characters themselves. */
static void tell_plain(struct context_task *t, enum context_event_kind kind, const struct buf *text)
{
	AUTO(buf_done) struct buf b = BUF_INIT(6 * text->len + 64);
	struct json j = JSON_INIT(&b);

	if (!text->len)
		return;
	jout_strn(&j, NULL, text->data, text->len);
	if (jout_done(&j) == 0)
		tell_output(t, kind, b.data + 1, b.len - 2);
}

static void output(struct context_task *t, enum context_event_kind kind, struct json_span s)
{
	AUTO(buf_done) struct buf text = BUF_INIT(KERNEL_FRAME_MAX), shown = BUF_INIT(2U * KERNEL_FRAME_MAX);
	const uint64_t limit = t->context->spec->output_limit, room = limit > t->output ? limit - t->output : 0;
	const size_t len = json_span_text_len(s);

	t->output += len;
	if (!t->mask && len <= room) {
		tell_output(t, kind, s.p + 1, s.len - 2);
		return;
	}
	if (room && json_span_text(s, room, &text) < 0)
		return;
	t->end.dropped += len - text.len;
	if (!t->mask)
		tell_plain(t, kind, &text);
	else if (mask_feed(&t->stream[kind == CONTEXT_STDERR], buf_str(&text), text.len, &shown) == 0)
		tell_plain(t, kind, &shown);
}

void task_flush(struct context_task *t)
{
	for (int i = 0; i < 2 && t->mask; i++) {
		AUTO(buf_done) struct buf shown = BUF_INIT(16 * MIB);

		if (mask_held(&t->stream[i]) && mask_end(&t->stream[i], &shown) == 0)
			tell_plain(t, i ? CONTEXT_STDERR : CONTEXT_STDOUT, &shown);
	}
}

/* Those members of the frame, as one object. */
static int pick(const struct context_task *t, const struct kernel_frame *f, const char *const *keys, struct buf *out)
{
	int r = buf_addc(out, '{');

	for (bool first = true; r == 0 && *keys; keys++) {
		const struct json_span v = kernel_frame_get(f, *keys);

		if (!v.p)
			continue;
		r = buf_addf(out, "%s\"%s\":", first ? "" : ",", *keys);
		if (r == 0)
			r = json_span_masked(v, t->mask, out);
		first = false;
	}
	return r < 0 ? r : buf_addc(out, '}');
}

static void result(struct context_task *t, const struct kernel_frame *f)
{
	static const char *const keys[] = { "mime",	  "is_main", "metadata",  "data",	    "chart",
					    "display_id", "update",  "truncated", "truncated_data", NULL };
	const uint64_t limit = t->context->spec->result_limit;
	AUTO(buf_done) struct buf b = BUF_INIT(2U * KERNEL_FRAME_MAX);
	struct context_event ev = { .kind = CONTEXT_RESULT };
	size_t len = 0;

	for (const char *const *k = keys; *k; k++)
		len += kernel_frame_get(f, *k).len;
	/* Base64, and what has to be escaped, is longer than what it says; the kernel keeps the limit itself. */
	if (!json_span_is_object(kernel_frame_get(f, "mime")) || len > 3 * limit + 64 * KIB ||
	    t->results >= RESULTS_MAX || t->result_bytes + len > (RESULTS_TIMES + 2) * (limit + 64 * KIB) ||
	    pick(t, f, keys, &b) < 0) {
		t->end.left_out++;
		return;
	}
	t->results++;
	t->result_bytes += len;
	tell(t, &ev, &b);
}

static void put_text(struct context_task *t, const struct kernel_frame *f, const char *key, size_t most, struct json *j)
{
	AUTO(buf_done) struct buf text = BUF_INIT(MIB), shown = BUF_INIT(4 * MIB);
	const struct json_span s = kernel_frame_get(f, key);

	if (json_span_is_text(s))
		json_span_text(s, most, &text);
	if (mask_text(t->mask, buf_str(&text), text.len, &shown) == 0)
		jout_strn(j, key, buf_str(&shown), shown.len);
}

static void error(struct context_task *t, const struct kernel_frame *f)
{
	AUTO(buf_done) struct buf b = BUF_INIT(8 * MIB), name = BUF_INIT(KIB);
	struct context_event ev = { .kind = CONTEXT_ERROR };
	struct json j = JSON_INIT(&b);
	uint64_t n;

	if (t->error[0])
		return; /* there is one at most */
	jout_object(&j, NULL);
	put_text(t, f, "name", 1024, &j);
	put_text(t, f, "value", 66U * 1024U, &j);
	put_text(t, f, "traceback", TEXT_MAX + 4096, &j);
	if (kernel_frame_u64(f, "line", &n))
		jout_u64(&j, "line", n);
	if (kernel_frame_u64(f, "column", &n))
		jout_u64(&j, "column", n);
	jout_end(&j);
	if (json_span_is_text(kernel_frame_get(f, "name")))
		json_span_text(kernel_frame_get(f, "name"), sizeof(t->error) - 1, &name);
	snprintf(t->error, sizeof(t->error), "%s", *buf_str(&name) ? buf_str(&name) : "Error");
	if (jout_done(&j) == 0)
		tell(t, &ev, &b);
}

static void clear(struct context_task *t, const struct kernel_frame *f)
{
	struct context_event ev = { .kind = CONTEXT_CLEAR };
	AUTO(buf_done) struct buf b = BUF_INIT(64);

	buf_addf(&b, "{\"wait\":%s}", kernel_frame_true(f, "wait") ? "true" : "false");
	tell(t, &ev, &b);
}

/* The members of its `usage`. */
static void measured(struct context_task *t, const struct kernel_frame *f)
{
	struct json_span s = kernel_frame_get(f, "usage");
	struct kernel_frame u;
	char text[256];

	if (!json_span_is_object(s) || s.len >= sizeof(text))
		return;
	memcpy(text, s.p, s.len);
	if (kernel_frame_read(text, s.len, &u) < 0)
		return;
	t->end.measured = kernel_frame_u64(&u, "cpu_ms", &t->end.cpu_ms) &&
			  kernel_frame_u64(&u, "memory_peak", &t->end.memory_peak);
}

static void end(struct context_task *t, const struct kernel_frame *f)
{
	struct context_end *e = &t->end;
	const char *variables;
	uint64_t dropped = 0;

	e->lost = kernel_frame_is(f, "state", "lost");
	variables = e->lost ? "lost" : "kept";
	kernel_frame_u64(f, "execution_count", &e->count);
	if (kernel_frame_u64(f, "dropped", &dropped))
		e->dropped += dropped;
	measured(t, f);
	if (t->timed_out) {
		e->cause = "timeout";
		e->has_limit = true;
		e->limit = t->timeout_ms;
		snprintf(e->detail, sizeof(e->detail),
			 "it ran longer than its timeout of %g s and was interrupted; the variables are %s",
			 (double)t->timeout_ms / 1000, variables);
	} else if (kernel_frame_is(f, "status", "ok")) {
		e->cause = "ok";
		snprintf(e->detail, sizeof(e->detail), "it ran to its end");
	} else if (t->interrupted) {
		e->cause = "interrupted";
		snprintf(e->detail, sizeof(e->detail), "it was interrupted; the variables are %s", variables);
	} else {
		e->cause = "error";
		snprintf(e->detail, sizeof(e->detail), "the code ended with an error%s",
			 e->lost ? "; the variables are lost" : "");
	}
}

/* An execution that ended with an error, while the warden is asked. The task may be over before the answer comes. */
struct judged {
	struct context *context;
	uint64_t id;
};

static void on_stat(void *arg, int r, const struct err *e)
{
	struct judged *w = arg;
	struct context *c = w->context;
	struct context_task *t = c->current;
	struct context_end *end = t ? &t->end : NULL;
	const uint64_t kills = c->sandbox->stat.group.oom_kills, memory = c->sandbox->request->spec->limits.memory;

	(void)e;
	if (t && t->id == w->id && t->judging) {
		if (r == 0 && kills > t->oom_base) {
			end->oom_kills = kills - t->oom_base;
			snprintf(end->detail, sizeof(end->detail),
				 "the code ended with an error, and the memory limit of %lluM killed %s%s",
				 (unsigned long long)(memory >> 20),
				 end->oom_kills == 1 ? "a process of the sandbox" : "processes of the sandbox",
				 end->lost ? "; the variables are lost" : "");
		}
		task_end(t);
		tasks_go(c);
	}
	context_unref(c);
	free(w);
}

/* Whether the end waits for the warden's answer. What ends well costs no question. */
static bool judge(struct context_task *t)
{
	struct context *c = t->context;
	struct judged *w;

	if (t->left || strcmp(t->end.cause, "error") != 0 || !c->sandbox->request->spec->limits.memory)
		return false;
	w = malloc(sizeof(*w));
	if (!w)
		return false;
	*w = (struct judged){ .context = c, .id = t->id };
	t->judging = true;
	context_ref(c);
	sandbox_stat(c->sandbox, on_stat, w);
	return true;
}

static void reply(struct context_task *t, const struct kernel_frame *f)
{
	static const char *const keys[] = { "matches", "start", "end",	 "status", "indent",
					    "found",   "mime",	"cells", NULL };
	AUTO(buf_done) struct buf text = BUF_INIT(KIB);
	struct json_span s = kernel_frame_get(f, "message");

	if (kernel_frame_is(f, "type", "reply")) {
		t->end.cause = "ok";
		if (pick(t, f, keys, &t->reply) == 0)
			return;
		err_set(&t->fail, ERR_EXHAUSTED, -ENOMEM, "no memory for the answer");
		return;
	}
	if (json_span_is_text(s))
		json_span_text(s, 200, &text);
	err_set(&t->fail, ERR_INVALID, -EINVAL, "the context refuses that: %s", buf_str(&text));
	t->end.cause = "error";
	snprintf(t->end.detail, sizeof(t->end.detail), "%s", t->fail.msg);
}

/* What is not of the execution under way is dropped: threads print after their cell as well. */
void context_event(struct context *c, const struct kernel_frame *f)
{
	struct context_task *t = c->current;
	uint64_t id;

	if (!t || t->judging || !kernel_frame_u64(f, "id", &id) || id != t->id)
		return;
	if (kernel_frame_is(f, "type", "refused") || (kernel_frame_is(f, "type", "reply") && t->kind != TASK_EXECUTE)) {
		reply(t, f);
		task_end(t);
		tasks_go(c);
	} else if (t->kind != TASK_EXECUTE) {
		return;
	} else if (kernel_frame_is(f, "type", "begun")) {
		task_heeds(t);
	} else if (kernel_frame_is(f, "type", "stdout") || kernel_frame_is(f, "type", "stderr")) {
		const struct json_span s = kernel_frame_get(f, "text");

		if (json_span_is_text(s))
			output(t, kernel_frame_is(f, "type", "stderr") ? CONTEXT_STDERR : CONTEXT_STDOUT, s);
	} else if (kernel_frame_is(f, "type", "result")) {
		result(t, f);
	} else if (kernel_frame_is(f, "type", "error")) {
		error(t, f);
	} else if (kernel_frame_is(f, "type", "clear")) {
		clear(t, f);
	} else if (kernel_frame_is(f, "type", "end")) {
		end(t, f);
		if (judge(t))
			return;
		task_end(t);
		tasks_go(c);
	}
}
