/* Changes of files as server-sent events, until the client or the watched file is gone. */
#include "api/native/file_call.h"
#include "base/base.h"

#include <sys/stat.h>

static const char *kind_name(uint32_t kind)
{
	switch ((enum file_event_kind)kind) {
	case FILE_EVENT_CREATED:
		return "created";
	case FILE_EVENT_MODIFIED:
		return "modified";
	case FILE_EVENT_REMOVED:
		return "removed";
	case FILE_EVENT_MOVED:
		return "moved";
	case FILE_EVENT_OVERFLOW:
		return "overflow";
	case FILE_EVENT_GONE:
		return "gone";
	}
	return "unknown";
}

static void on_entry(void *arg, const struct file_entry *x)
{
	struct file_call *f = arg;

	(void)x;
	if (f->begun)
		return;
	f->begun = true;
	sse_begin(f->c->q);
	sse_event(f->c->q, NULL, "watching", "{}", 2);
}

static void on_event(void *arg, const struct file_event *x)
{
	struct file_call *f = arg;
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&b);

	if (!f->begun)
		return;
	jout_object(&j, NULL);
	jout_str(&j, "path", x->path);
	jout_str(&j, "type",
		 S_ISDIR(x->type) ? "dir" :
		 S_ISREG(x->type) ? "file" :
		 S_ISLNK(x->type) ? "link" :
		 x->type	  ? "other" :
				    NULL);
	if (*x->to)
		jout_str(&j, "to", x->to);
	jout_end(&j);
	if (jout_done(&j) == 0)
		sse_event(f->c->q, NULL, kind_name(x->kind), b.data, b.len);
	/* When the client does not read, the worker waits, and the kernel then reports an overflow. */
	if (http_queued(f->c->q) > HTTP_HIGH)
		file_hold(f->op);
}

static void on_drain(void *arg)
{
	struct file_call *f = arg;

	if (f->op)
		file_go(f->op);
}

static void on_done(void *arg, int r, const struct file_end *x, unsigned flags, const struct err *e)
{
	struct file_call *f = arg;
	struct call *c = f->c;

	(void)r;
	(void)x;
	(void)flags;
	f->op = NULL;
	if (!f->begun) {
		file_call_fail(f, e);
		return;
	}
	http_end(c->q);
	c->q = NULL;
	c->gone = NULL;
	file_call_free(f);
	call_free(c);
}

static void on_stop(void *arg, enum stream_end why)
{
	struct file_call *f = arg;
	struct call *c = f->c;

	(void)why;
	file_cancel(f->op);
	f->op = NULL;
	c->gone = NULL;
	if (f->begun)
		http_end(c->q);
	else
		http_cut(c->q);
	c->q = NULL;
	file_call_free(f);
	call_free(c);
}

void watch_files(struct file_call *f)
{
	static const struct file_calls calls = { .entry = on_entry, .event = on_event, .done = on_done };
	struct file_request q = { 0 };
	bool recursive = false;
	struct err e = { 0 };

	if (api_flag(f->c->q, "recursive", &recursive, &e) < 0) {
		file_call_fail(f, &e);
		return;
	}
	http_set_drain(f->c->q, on_drain, f);
	if (file_call_begin(f, FILE_WATCH, recursive ? FILE_RECURSIVE : 0, &q, &calls) == 0)
		api_stream_add(f->c->api, &f->registered, &f->c->who, on_stop, f);
}
