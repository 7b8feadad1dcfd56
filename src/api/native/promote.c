/* Brings the changes of a fork back to its parent. */
#include "service/checkpoint/promote.h"
#include "api/native/native.h"
#include "base/base.h"
#include "service/state/json_read.h"

static void answer(struct call *c, int status, struct json *j)
{
	struct err e = { 0 };

	if (jout_done(j) == 0) {
		call_audited(c);
		call_json(c, status, j->buf);
		return;
	}
	err_set(&e, ERR_EXHAUSTED, -ENOMEM, "the answer is too large");
	call_fail(c, &e);
}

static void on_promoted(void *arg, const struct promote_result *x, const struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	struct json j = JSON_INIT(&out);
	struct call *c = arg;

	if (!x) {
		call_fail(c, e);
		return;
	}
	jout_object(&j, NULL);
	if (e) {
		dto_error(&j, "error", e, c->who.request_id);
	} else {
		jout_u64(&j, "added", x->added);
		jout_u64(&j, "changed", x->changed);
		jout_u64(&j, "removed", x->removed);
	}
	jout_raw(&j, "conflicts", x->conflicts, strlen(x->conflicts));
	jout_end(&j);
	answer(c, e ? 409 : 200, &j);
}

static void body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct promote_request w = { .into = c->sandbox };
	const char *from = NULL;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		if (!json_read_str(&j, "from", &from, 128))
			json_read_bad(&j, "from", "must be the id or name of a fork");
		json_read_bool(&j, "force", &w.force);
		r = json_read_end(&j);
	}
	if (r == 0) {
		w.from = sandbox_find(c->api->s, &c->who, from, &e);
		r = w.from ? 0 : -ENOENT;
	}
	if (r == 0) {
		c->pending = true;
		r = promote_start(&w, &c->who, on_promoted, c, &e);
	}
	if (r < 0)
		call_fail(c, &e);
}

void post_promote(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		call_body(c, body);
}
