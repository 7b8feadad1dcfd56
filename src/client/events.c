/* `cloche events`. */
#include "client/client.h"
#include "base/base.h"
#include "base/clock.h"
#include "client/show.h"
#include "client/sse.h"
#include "client/text.h"

#define QUIET_MS 400 /* no more of what was kept comes after such a silence */

static const struct option options[] = {
	{ "follow", no_argument, NULL, 'f' },
	{ NULL, 0, NULL, 0 },
};

static const char help[] = "usage: cloche events [options] [SANDBOX]\n"
			   "\n"
			   "Prints the events of all sandboxes, or of one, that the daemon still has.\n"
			   "\n"
			   "  -f, --follow        continue with new events\n";

struct events {
	bool json;
	uint64_t last_ns;
	struct sse sse;
};

static void print_line(const char *event, const json_t *v)
{
	static const char *const shown[] = {
		"time", "sandbox", "exec", "type", "event", "kind", "id", "seq", "tenant"
	};
	AUTO(buf_done) struct buf line = BUF_INIT(64 * KIB), rest = BUF_INIT(64 * KIB);
	const char *time = show_str(v, "time"), *id = show_str(v, "sandbox");
	void *it;

	for (it = json_object_iter((json_t *)(uintptr_t)v); it;
	     it = json_object_iter_next((json_t *)(uintptr_t)v, it)) {
		bool skip = false;

		for (size_t i = 0; i < ARRAY_LEN(shown); i++)
			skip = skip || !strcmp(json_object_iter_key(it), shown[i]);
		if (skip || json_is_null(json_object_iter_value(it)))
			continue;
		buf_addf(&rest, " %s=", json_object_iter_key(it));
		show_dump(json_object_iter_value(it), SHOW_LINE, &rest);
	}
	text_escape(&line, *time ? time : "-", *time ? strlen(time) : 1);
	buf_adds(&line, "  ");
	text_escape(&line, event, strlen(event));
	for (size_t n = strlen(event); n < 16; n++)
		buf_addc(&line, ' ');
	buf_adds(&line, "  ");
	text_escape(&line, id, strlen(id));
	if (*show_str(v, "exec")) {
		buf_addc(&line, ' ');
		text_escape(&line, show_str(v, "exec"), strlen(show_str(v, "exec")));
	}
	text_escape(&line, buf_str(&rest), rest.len);
	puts(buf_str(&line));
}

static int on_event(void *arg, const struct sse *s)
{
	struct events *ev = arg;
	AUTO_JSON json_t *v = json_loadb(s->data.data, s->data.len, JSON_REJECT_DUPLICATES, NULL);

	if (!json_is_object(v))
		return 0;
	if (ev->json) {
		if (!json_object_get(v, "event"))
			json_object_set_new(v, "event", json_string(s->event));
		show_json(v, SHOW_LINE, NULL);
	} else {
		print_line(s->event, v);
	}
	/* With --follow, events must appear at once, also through a pipe. */
	return fflush(stdout) ? -errno : 0;
}

static int on_bytes(void *arg, const void *data, size_t len)
{
	struct events *ev = arg;

	ev->last_ns = clock_mono_ns();
	return sse_feed(&ev->sse, data, len);
}

static int run(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	AUTO(call_free) struct call *call = NULL;
	struct events ev = { 0 };
	struct call_spec spec = { .method = "GET",
				  .accept = "text/event-stream",
				  .header = "Last-Event-ID: 0",
				  .sink = on_bytes,
				  .arg = &ev };
	bool follow = false;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0)
		follow = true;
	if (r == 0 && !a->help)
		r = args_count(a, 0, 1, "SANDBOX", e);
	if (r < 0 || a->help)
		return r;
	ev.json = a->json;
	r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = a->nrest ? url_add(&path, "/v1/sandboxes/%s/events", a->rest[0]) : url_add(&path, "/v1/events");
	if (r < 0)
		return r;
	spec.path = buf_str(&path);
	sse_init(&ev.sse, on_event, &ev);
	r = call_start(c, &spec, &call, e);
	if (r == 0)
		r = call_head(call, e);
	ev.last_ns = clock_mono_ns();
	while (r == 0 && !call_ended(call) && (follow || clock_mono_ns() - ev.last_ns < QUIET_MS * 1000000ULL))
		r = conn_turn(c, follow ? 1000 : 50, e);
	if (r == 0 && call_ended(call))
		r = call_wait(call, e);
	sse_done(&ev.sse);
	return r;
}

const struct command cmd_events = {
	.name = "events",
	.text = "print events of sandboxes",
	.help = help,
	.letters = "f",
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
