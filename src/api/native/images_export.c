/* Images as one file, and sandboxes as images. */
#include "api/native/checkpoints.h"
#include "api/native/native.h"
#include "base/base.h"
#include "service/image/commit.h"
#include "service/image/export.h"
#include "service/state/json_read.h"

#define CHUNK (256U * 1024U)

struct download {
	struct call *c;
	struct image_export *export;
	bool sending;
	char buf[CHUNK];
};

static void download_end(struct download *d)
{
	d->c->gone = NULL;
	d->c->data = NULL;
	image_export_free(d->export);
	free(d);
}

static void on_gone(struct call *c)
{
	download_end(c->data);
}

/* Sends as much as the client takes; called again when it has taken that. */
static void send_more(void *arg)
{
	struct download *d = arg;
	struct call *c = d->c;
	ssize_t n = 1;

	if (d->sending)
		return;
	d->sending = true;
	while (http_queued(c->q) <= HTTP_HIGH && (n = image_export_read(d->export, d->buf, sizeof(d->buf))) > 0)
		http_write(c->q, d->buf, (size_t)n);
	d->sending = false;
	if (n > 0)
		return;
	download_end(d);
	if (n < 0)
		http_cut(c->q);
	else
		http_end(c->q);
	c->q = NULL;
	call_free(c);
}

static void on_ready(void *arg, struct image_export *x, const struct err *e)
{
	struct download *d = arg;
	struct call *c = d->c;

	if (!x) {
		struct err why = *e;

		download_end(d);
		call_fail(c, &why);
		return;
	}
	http_set(c->q, "Content-Disposition", "attachment; filename=\"image.tar\"");
	http_begin(c->q, 200, "application/x-tar", (int64_t)image_export_size(x));
	http_set_drain(c->q, send_more, d);
	send_more(d);
}

void get_image_export(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct image *i = call_image(c);
	struct err e = { 0 };
	struct download *d;

	if (!i)
		return;
	d = calloc(1, sizeof(*d));
	if (!d)
		abort();
	d->c = c;
	if (image_export(i, &c->who, on_ready, d, &d->export, &e) < 0) {
		free(d);
		call_fail(c, &e);
		return;
	}
	c->data = d;
	c->gone = on_gone;
}

/* --- commit --- */

static void commit_gone(struct call *c)
{
	image_commit_cancel(c->data);
	c->data = NULL;
}

static void on_committed(void *arg, struct image *i, const struct err *e)
{
	struct call *c = arg;

	c->data = NULL;
	c->gone = NULL;
	c->pending = true;
	if (i) {
		call_audited(c);
		call_image_json(c, 201, i);
	} else {
		call_fail(c, e);
	}
}

static void commit_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct image_commit_request w = { .sandbox = c->sandbox };
	struct image_commit *x;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		json_read_str(&j, "name", &w.name, 511);
		json_read_str(&j, "comment", &w.comment, 1024);
		r = json_read_end(&j);
		if (r == 0 && !w.name)
			r = err_set(&e, WHY_BAD_FIELD, -EINVAL, "'name' is missing: what the image is to be called");
	}
	if (r == 0 && !w.sandbox) {
		w.checkpoint = call_checkpoint(c);
		if (!w.checkpoint)
			return;
	}
	if (r == 0)
		r = image_commit(c->api->s, &c->who, &w, on_committed, c, &x, &e);
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	c->data = x;
	c->gone = commit_gone;
}

void post_sandbox_commit(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		call_body(c, commit_body);
}

void post_checkpoint_commit(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), commit_body);
}
