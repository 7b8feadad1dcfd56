/* Differences as JSON: assembled by a worker thread, since texts are compared on the way. */
#include "api/native/checkpoints.h"
#include "base/base.h"
#include "base/str.h"
#include "proto/change.h"
#include "service/checkpoint/compare.h"
#include "service/file/text_diff.h"

#include <sys/stat.h>

#define ENTRIES_MAX 10000U
#define TEXT_MAX (32U << 20) /* bytes of all texts in one answer */

struct diff {
	struct call *c;
	uv_work_t work;
	char from[96], to[96];
	struct buf stream, out;
	bool text;
	int r;
	struct err e;
	/* State of the present entry */
	struct change_entry x;
	struct buf old, now, hunks;
	bool open;
};

static const char *type_name(uint32_t mode)
{
	return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "dir" : S_ISLNK(mode) ? "link" : "other";
}

static void put_path(struct json *j, const char *path)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *p = (const uint8_t *)path;
	size_t n = strlen(path), at = 0;
	char text[CHANGE_PATH_MAX * 4 / 3 + 8];

	jout_str(j, "path", path);
	if (text_is(path, n))
		return;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v =
			(uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);

		text[at++] = digits[v >> 18];
		text[at++] = digits[v >> 12 & 63];
		text[at++] = i + 1 < n ? digits[v >> 6 & 63] : '=';
		text[at++] = i + 2 < n ? digits[v & 63] : '=';
	}
	jout_strn(j, "path_base64", text, at);
}

static int put_text(struct diff *d, struct json *j)
{
	const struct change_entry *x = &d->x;
	bool had = x->what != CHANGE_ADDED && S_ISREG(x->old_mode), has = x->what != CHANGE_REMOVED && S_ISREG(x->mode);
	int r;

	if (!(x->flags & CHANGE_TEXT) || (!had && !has) || !text_is(buf_str(&d->old), d->old.len) ||
	    !text_is(buf_str(&d->now), d->now.len))
		return 0;
	buf_clear(&d->hunks);
	r = buf_addf(&d->hunks, "--- %s%s\n+++ %s%s\n", had ? "a" : "/dev/null", had ? x->path : "",
		     has ? "b" : "/dev/null", has ? x->path : "");
	if (r == 0)
		r = text_diff(buf_str(&d->old), d->old.len, buf_str(&d->now), d->now.len, &d->hunks);
	if (r == 0)
		jout_strn(j, "text", buf_str(&d->hunks), d->hunks.len);
	return r == -E2BIG ? 0 : r;
}

static int put_entry(struct diff *d, struct json *j)
{
	static const char *const names[] = { "", "added", "changed", "removed" };
	const struct change_entry *x = &d->x;
	char mode[8];
	int r = 0;

	if (!d->open)
		return 0;
	d->open = false;
	jout_object(j, NULL);
	put_path(j, x->path);
	jout_str(j, "change", names[x->what]);
	jout_str(j, "type", type_name(x->mode ? x->mode : x->old_mode));
	if (x->what == CHANGE_REMOVED)
		jout_null(j, "size");
	else
		jout_u64(j, "size", x->size);
	if (x->what == CHANGE_ADDED)
		jout_null(j, "old_size");
	else
		jout_u64(j, "old_size", x->old_size);
	if (x->mode) {
		snprintf(mode, sizeof(mode), "%04o", x->mode & 07777);
		jout_str(j, "mode", mode);
	}
	if (x->old_mode) {
		snprintf(mode, sizeof(mode), "%04o", x->old_mode & 07777);
		jout_str(j, "old_mode", mode);
	}
	if (d->text && d->out.len < TEXT_MAX)
		r = put_text(d, j);
	jout_end(j);
	return r;
}

static int take_data(struct diff *d, const struct change_frame *f)
{
	struct buf *b = f->type == CHANGE_OLD ? &d->old : &d->now;
	const uint8_t *p;
	uint64_t offset;
	char *room;
	size_t len;

	if (change_data_decode(f, &offset, &p, &len) < 0 || offset < b->len || offset > DIFF_TEXT_MAX)
		return -EBADMSG;
	if (offset > b->len) { /* a hole */
		size_t gap = (size_t)offset - b->len;

		room = buf_room(b, gap);
		if (!room)
			return -ENOMEM;
		memset(room, 0, gap);
		buf_added(b, gap);
	}
	return buf_add(b, p, len);
}

/* Adds a frame; 1 after the last. */
static int take(struct diff *d, const struct change_frame *f, struct json *j)
{
	struct change_end end;
	int r;

	if (f->type == CHANGE_OLD || f->type == CHANGE_DATA)
		return d->open ? take_data(d, f) : -EBADMSG;
	r = put_entry(d, j);
	if (r < 0)
		return r;
	buf_clear(&d->old);
	buf_clear(&d->now);
	if (f->type == CHANGE_ENTRY) {
		d->open = true;
		return change_entry_decode(f, &d->x);
	}
	if (change_end_decode(f, &end) < 0)
		return -EBADMSG;
	if (end.errnum)
		return err_set(&d->e, end.kind < ERR_KIND_COUNT ? (enum err_kind)end.kind : ERR_INTERNAL,
			       -(int)end.errnum, "compare: %s", end.msg);
	jout_end(j);
	jout_bool(j, "truncated", end.truncated);
	jout_u64(j, "added", end.added);
	jout_u64(j, "changed", end.changed);
	jout_u64(j, "removed", end.removed);
	return 1;
}

/* Runs in a worker thread: uses only @w. */
static void run(uv_work_t *w)
{
	struct diff *d = w->data;
	struct json j = JSON_INIT(&d->out);
	struct change_frame f;
	size_t at = 0;
	long n = 0;
	int r = 0;

	jout_object(&j, NULL);
	jout_str(&j, "from", d->from);
	jout_str(&j, "to", d->to);
	jout_array(&j, "entries");
	while (r == 0 && (n = change_decode((const uint8_t *)buf_str(&d->stream) + at, d->stream.len - at, &f)) > 0) {
		at += (size_t)n;
		r = take(d, &f, &j);
	}
	jout_end(&j);
	if (r == 1)
		r = jout_done(&j);
	else if (r == 0)
		r = -EBADMSG; /* the stream was cut */
	d->r = r;
	if (r < 0 && !d->e.msg[0]) {
		if (r == -E2BIG)
			err_set(&d->e, ERR_TOO_LARGE, r, "the list of differences does not fit into one answer");
		else if (r == -EBADMSG && n == 0)
			err_set(&d->e, WHY_SERVICE_LOST, r, "the comparison has ended before it was complete");
		else
			err_sys(&d->e, r == -ENOMEM ? WHY_NO_RESOURCES : WHY_SERVICE_LOST, r,
				"the list of changes cannot be read");
	}
}

static void done(uv_work_t *w, int status)
{
	struct diff *d = w->data;
	struct call *c = d->c;
	struct buf out = d->out;

	(void)status;
	buf_done(&d->stream);
	buf_done(&d->old);
	buf_done(&d->now);
	buf_done(&d->hunks);
	if (d->r < 0) {
		buf_done(&out);
		call_fail(c, &d->e);
	} else {
		call_json(c, 200, &out);
	}
	free(d);
}

static void on_list(void *arg, struct buf *stream, const struct err *e)
{
	struct diff *d = arg;

	if (!stream) {
		call_fail(d->c, e);
		free(d);
		return;
	}
	d->stream = *stream;
	*stream = (struct buf){ 0 };
	d->out = (struct buf)BUF_INIT(API_ANSWER_MAX);
	d->old = d->now = (struct buf)BUF_INIT(DIFF_TEXT_MAX + CHANGE_DATA_MAX);
	d->hunks = (struct buf)BUF_INIT(4 * DIFF_TEXT_MAX);
	d->work.data = d;
	uv_queue_work(d->c->api->loop, &d->work, run, done);
}

static void start(struct call *c, const struct state *to)
{
	const char *from = http_query(c->q, "from");
	struct compare_request w = { .to = *to, .max = ENTRIES_MAX };
	struct err e = { 0 };
	struct diff *d;
	bool text = false;
	int r = api_flag(c->q, "text", &text, &e);

	if (r == 0)
		r = call_room(c, 0, &e);
	if (r == 0)
		r = state_find(c->api->s, &c->who, from && *from ? from : "image", &w.from, &e);
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		abort();
	d->c = c;
	d->text = text;
	w.flags = d->text ? DIFF_TEXT : 0;
	snprintf(d->from, sizeof(d->from), "%s%s",
		 w.from.sandbox	   ? "sandbox:" :
		 w.from.checkpoint ? "checkpoint:" :
				     "image",
		 w.from.sandbox	   ? sandbox_id(w.from.sandbox) :
		 w.from.checkpoint ? checkpoint_view(w.from.checkpoint).id :
				     "");
	snprintf(d->to, sizeof(d->to), "%s:%s", to->sandbox ? "sandbox" : "checkpoint",
		 to->sandbox ? sandbox_id(to->sandbox) : checkpoint_view(to->checkpoint).id);
	c->pending = true;
	r = compare_list(c->api->s, &w, on_list, d, &e);
	if (r < 0) {
		free(d);
		call_fail(c, &e);
	}
}

void get_sandbox_diff(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		start(c, &(struct state){ .sandbox = c->sandbox });
}

void get_checkpoint_diff(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct checkpoint *cp = call_checkpoint(c);

	if (cp)
		start(c, &(struct state){ .checkpoint = cp });
}
