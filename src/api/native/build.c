/*
 * POST /v1/images/build. The body is one line of JSON, which says what to build, and behind it the tar of the context. The
 * answer is one JSON object a line: what happens, and at the end {"type":"done"} or {"type":"error"}. Empty lines come when
 * nothing else does: only by writing do we notice that a client has closed its connection.
 */
#include "api/native/feed.h"
#include "api/native/native.h"
#include "base/base.h"
#include "service/image/build.h"
#include "service/image/operation.h"
#include "service/image/pull.h"
#include "service/state/json_read.h"

#define PULLS_MAX 32U /* for one build */
#define HEAD_MAX (4U * MIB)
#define SIGN_MS 2000 /* between empty lines */
#define UNREAD_MAX (32U * MIB) /* of events before the body has ended */

struct upload {
	struct call *c; /* NULL: the client is gone, and the call with it */
	struct api *api;
	struct build *build; /* NULL: not yet, or over */
	uv_timer_t *signs; /* of life, once the answer has begun */
	struct buf head;
	struct feed feed; /* the context */
	struct buf early; /* events until the answer may begin */
	bool headed, begun, over;
	bool pulling; /* an image that the Dockerfile names; the body waits meanwhile */
	unsigned pulled;
	struct err missing; /* why it is pulled, with the line of the Dockerfile */
};

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void upload_free(struct upload *u)
{
	feed_done(&u->feed);
	if (u->signs) {
		uv_timer_stop(u->signs);
		uv_close((uv_handle_t *)u->signs, free_handle);
	}
	buf_done(&u->head);
	buf_done(&u->early);
	free(u);
}

/* --- the answer --- */

static void on_sign(uv_timer_t *t)
{
	struct upload *u = t->data;

	if (u->c && u->c->q)
		http_write(u->c->q, "\n", 1);
}

static void on_drained(void *arg);

/* It begins when the body has ended, or there is no more to wait for. */
static void send_early(struct upload *u)
{
	if (!u->c || u->begun || !(u->feed.ended || u->over))
		return;
	u->begun = true;
	http_begin(u->c->q, 200, "application/x-ndjson", -1);
	http_set_drain(u->c->q, on_drained, u);
	if (u->early.len)
		http_write(u->c->q, u->early.data, u->early.len);
	buf_done(&u->early);
	u->signs = malloc(sizeof(*u->signs));
	if (!u->signs || uv_timer_init(u->api->loop, u->signs) < 0)
		abort();
	u->signs->data = u;
	uv_timer_start(u->signs, on_sign, SIGN_MS, SIGN_MS);
}

static void say(struct upload *u, const char *data, size_t len)
{
	if (!u->c)
		return;
	if (u->begun) {
		http_write(u->c->q, data, len);
		http_write(u->c->q, "\n", 1);
	} else if (buf_add(&u->early, data, len) == 0) {
		buf_addc(&u->early, '\n');
	}
}

static void on_event(void *arg, const struct buf *object)
{
	say(arg, buf_str(object), object->len);
}

static void last_word(struct upload *u, const struct image *i, const struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * MIB), image = BUF_INIT(16 * MIB);
	struct json j = JSON_INIT(&out), in = JSON_INIT(&image);

	jout_object(&j, NULL);
	jout_str(&j, "type", i ? "done" : "error");
	if (i) {
		image_write(i, &in);
		jout_raw(&j, "image", buf_str(&image), image.len);
	} else {
		dto_error(&j, "error", e, u->c->who.request_id);
	}
	jout_end(&j);
	if (jout_done(&j) == 0)
		say(u, buf_str(&out), out.len);
}

static void on_done(void *arg, const struct image *i, const struct err *e)
{
	struct upload *u = arg;
	struct call *c = u->c;

	u->build = NULL;
	u->over = true;
	feed_done(&u->feed);
	if (c) {
		send_early(u);
		last_word(u, i, e);
		c->gone = NULL;
		u->c = NULL;
		http_end(c->q);
		call_free(c);
	}
	upload_free(u);
}

/* A command waits for a client that does not read. */
static bool on_full(void *arg)
{
	const struct upload *u = arg;

	return u->c && u->begun && http_queued(u->c->q) > HTTP_HIGH;
}

static void on_drained(void *arg)
{
	struct upload *u = arg;

	if (u->build)
		build_read(u->build);
}

static const struct build_calls calls = { on_event, on_full, on_done };

static void on_gone(struct call *c)
{
	struct upload *u = c->data;

	u->c = NULL;
	u->feed.q = NULL;
	if (u->build)
		build_cancel(u->build);
	if (!u->pulling) /* else on_pulled does it: the image is of use for the next one */
		upload_free(u);
}

/* --- the body --- */

static void refuse(struct upload *u, const struct err *e)
{
	struct call *c = u->c;

	c->gone = NULL;
	u->c = NULL;
	upload_free(u);
	call_fail(c, e);
}

static void say_pull(struct upload *u, const char *image)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * KIB);
	struct json j = JSON_INIT(&out);

	jout_object(&j, NULL);
	jout_str(&j, "type", "pull");
	jout_str(&j, "image", image);
	jout_end(&j);
	say(u, buf_str(&out), out.len);
}

static void on_pulled(void *arg, struct image *i, bool news, const struct err *e);

/* @missing is pulled, then it is started again. */
static int pull(struct upload *u, const char *missing, struct err *e)
{
	struct image_pull_plan plan = { 0 };
	struct operation *o;
	struct oci_name name;
	int r;

	if (u->pulled++ == PULLS_MAX)
		return err_set(e, WHY_IMAGE_NEEDED, -E2BIG,
			       "the Dockerfile names more than %u images that are not here", PULLS_MAX);
	r = oci_name_parse(missing, &name, e);
	plan.name = &name;
	if (r == 0)
		r = image_pull(u->api->s, &u->c->who, &plan, on_pulled, u, &o, e);
	if (r < 0)
		return r;
	u->pulling = true;
	if (!u->feed.ended)
		http_body_pause(u->c->q);
	say_pull(u, missing);
	return 0;
}

/* The first line is complete. False: it has been answered, and @u is gone. */
static bool start(struct upload *u, const char *text, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct build_begun begun = { .stream = -1 };
	struct err e = { 0 };
	int r = json_read_begin(text, len, &o, &e);

	u->headed = true;
	if (r == 0)
		r = build_start(u->api->s, &u->c->who, o, &calls, u, &begun, &e);
	if (r == -ENOENT && begun.missing[0]) {
		u->missing = e;
		r = pull(u, begun.missing, &e);
	}
	u->build = begun.build;
	if (r == 0 && begun.operation)
		http_set(u->c->q, "X-Cloche-Operation", operation_id(begun.operation));
	if (r < 0)
		refuse(u, &e);
	else if (begun.stream >= 0)
		feed_open(&u->feed, begun.stream);
	else if (!u->pulling)
		feed_stop(&u->feed);
	return r == 0;
}

static void on_pulled(void *arg, struct image *i, bool news, const struct err *e)
{
	struct upload *u = arg;
	struct err why = { 0 };

	(void)news;
	u->pulling = false;
	if (!u->c) {
		upload_free(u);
		return;
	}
	if (!i) {
		err_set(&why, err_what(e), -e->errnum, "%.100s; %.130s", u->missing.msg, e->msg);
		err_remedy(&why, "%s", e->remedy);
		refuse(u, &why);
		return;
	}
	if (!start(u, buf_str(&u->head), u->head.len) || u->pulling)
		return;
	if (!u->feed.ended)
		http_body_resume(u->c->q);
	send_early(u);
}

static void on_body(void *arg, const char *p, size_t len)
{
	struct upload *u = arg;
	const char *nl;
	struct err e = { 0 };

	if (u->headed) {
		feed_add(&u->feed, p, len);
		return;
	}
	nl = memchr(p, '\n', len);
	if (buf_add(&u->head, p, nl ? (size_t)(nl - p) : len) < 0) {
		err_set(&e, ERR_TOO_LARGE, -E2BIG, "the first line of the body is longer than 4 MiB");
		refuse(u, &e);
		return;
	}
	if (nl && start(u, buf_str(&u->head), u->head.len))
		feed_add(&u->feed, nl + 1, len - (size_t)(nl + 1 - p));
}

static void on_body_end(void *arg)
{
	struct upload *u = arg;

	feed_end(&u->feed);
	if (!u->headed && !start(u, buf_str(&u->head), u->head.len))
		return;
	if (!u->pulling)
		send_early(u);
}

void post_images_build(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct upload *u = calloc(1, sizeof(*u));

	if (!u)
		abort();
	*u = (struct upload){ .c = c, .api = c->api, .head = BUF_INIT(HEAD_MAX), .early = BUF_INIT(UNREAD_MAX) };
	feed_init(&u->feed, c->api->loop, q);
	c->data = u;
	c->gone = on_gone;
	http_stream_body(q, on_body, on_body_end, u);
}

void delete_build_cache(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4096);
	struct call *c = call_new(arg, q, r);
	struct json j = JSON_INIT(&out);
	struct build_forgotten gone;
	struct err e = { 0 };

	if (build_cache_forget(c->api->s, &c->who, &gone, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	jout_object(&j, NULL);
	jout_u64(&j, "steps", gone.steps);
	jout_u64(&j, "layers", gone.layers);
	jout_u64(&j, "bytes", gone.bytes);
	jout_end(&j);
	call_stored(c, 200, jout_done(&j) == 0 ? &out : NULL);
}
