/* The life of a call: its sandbox and exec, its body, and its answer. */
#include "api/api.h"
#include "base/base.h"
#include "base/id.h"
#include "base/str.h"
#include "service/exec/exec.h"

#define BODIES_MAX (256 * MIB) /* of a tenant: bodies of requests that have not come whole */
#define SMALL_ANSWER (64U * KIB)

static void on_gone(void *arg)
{
	struct call *c = arg;

	c->q = NULL;
	if (c->gone)
		c->gone(c);
	if (!c->pending)
		call_free(c);
}

int api_flag(const struct http_req *q, const char *name, bool *ret, struct err *e)
{
	const char *v = http_query(q, name);

	if (!v)
		return 0;
	if (!*v || !strcmp(v, "1") || !strcmp(v, "true"))
		*ret = true;
	else if (!strcmp(v, "0") || !strcmp(v, "false"))
		*ret = false;
	else
		return err_set(e, ERR_INVALID, -EINVAL, "%s: must be true or false (got '%.20s')", name, v);
	return 0;
}

int api_cursor(const char *text, uint64_t *ret_created_ns, const char **ret_id, struct err *e)
{
	const size_t n = strspn(text, "0123456789");
	char digits[20]; /* large enough for all values */

	if (n < sizeof(digits) && text[n] == '-' && id_valid(text + n + 1)) {
		memcpy(digits, text, n);
		digits[n] = '\0';
		if (parse_u64(digits, ret_created_ns, NULL) == 0) {
			*ret_id = text + n + 1;
			return 0;
		}
	}
	err_set(e, ERR_INVALID, -EINVAL, "cursor: must be `next` of the page before (got '%.40s')", text);
	return -EINVAL;
}

struct call *call_new(struct api *a, struct http_req *q, const struct route *r)
{
	struct call *c = calloc(1, sizeof(*c));

	if (!c)
		abort(); /* a few hundred bytes only */
	*c = (struct call){ .api = a, .q = q, .who = api_who(q), .route = r };
	http_set_gone(q, on_gone, c);
	return c;
}

/*
 * Whether the call does not count as use of its sandbox: a client that polls the state of a sandbox must not keep it
 * awake. A client that polls an exec waits for it to continue, which counts as use.
 */
static bool looks(const struct call *c)
{
	return !(c->route->flags & ROUTE_USES);
}

void call_enter_sandbox(struct call *c, struct sandbox *b)
{
	c->sandbox = b;
	sandbox_ref(b);
	if (looks(c))
		sandbox_look(b);
	else
		sandbox_use(b);
}

void call_leave_sandbox(struct call *c)
{
	if (c->sandbox && looks(c))
		sandbox_looked(c->sandbox);
	else if (c->sandbox)
		sandbox_rest(c->sandbox);
	if (c->sandbox)
		sandbox_unref(c->sandbox);
	c->sandbox = NULL;
}

void call_free(struct call *c)
{
	if (c->busy)
		map_del(&c->api->busy, c->busy);
	free(c->busy);
	buf_done(&c->answer);
	if (c->exec)
		exec_unref(c->exec);
	call_leave_sandbox(c);
	free(c);
}

void call_fail(struct call *c, const struct err *e)
{
	if (c->q && e->kind == ERR_EXHAUSTED)
		http_fail_retry(c->q, e, 1);
	else if (c->q)
		http_fail(c->q, e);
	call_free(c);
}

void call_fail_done(struct call *c, const struct err *e)
{
	struct err why = { 0 };

	if (!c->q || http_method(c->q) == HTTP_M_GET || http_method(c->q) == HTTP_M_HEAD) {
		call_fail(c, e);
		return;
	}
	err_set(&why, WHY_LIMIT, -EDQUOT, "it was done, and its answer cannot be returned: %.160s", e->msg);
	if (e->remedy[0])
		err_remedy(&why, "%s", e->remedy);
	call_fail(c, &why);
}

void call_json(struct call *c, int status, struct buf *b)
{
	size_t len = b->len;
	char *data, *fit;

	data = buf_take(b);
	/* A buffer that has grown is up to twice as large as its content, and it may be read late. */
	fit = data && len > SMALL_ANSWER ? realloc(data, len + 1) : NULL;
	data = fit ? fit : data;
	if (c->q && data)
		http_send_take(c->q, status, "application/json", data, len);
	else
		free(data);
	if (c->q && !data)
		http_cut(c->q);
	call_free(c);
}

void call_empty(struct call *c, int status)
{
	if (c->q)
		http_send(c->q, status, NULL, NULL, 0);
	call_free(c);
}

/*
 * An answer above the limit by itself waits until no other one is pending. Small ones are sent while there is any room.
 */
int call_room(const struct call *c, size_t more, struct err *e)
{
	const size_t unsent = tenant_calls(c->who.tenant)->unsent;

	if (!unsent || unsent + (more > SMALL_ANSWER ? more : 0) <= API_UNSENT_MAX)
		return 0;
	err_set(e, ERR_EXHAUSTED, -EAGAIN, "too many unread answers (%zu bytes are waiting to be read)", unsent);
	err_remedy(e, "read the answers to earlier requests first");
	return -EAGAIN;
}

void call_list(struct call *c, struct json *j)
{
	struct err e = { 0 };

	if (jout_done(j) == 0 && call_room(c, j->buf->len, &e) == 0) {
		call_json(c, 200, j->buf);
		return;
	}
	if (e.msg[0]) {
		call_fail(c, &e);
		return;
	}
	err_set(&e, ERR_EXHAUSTED, -E2BIG, "the answer is too large");
	err_remedy(&e, "request less at once, with `limit`");
	call_fail(c, &e);
}

static void on_stored(void *arg)
{
	struct call *c = arg;

	call_audited(c);
	if (c->answer.len)
		call_json(c, c->status, &c->answer);
	else
		call_empty(c, c->status);
}

void call_stored(struct call *c, int status, struct buf *b)
{
	c->status = status;
	if (b) {
		c->answer = *b;
		*b = (struct buf){ 0 };
	}
	c->pending = true;
	turn_after(c->api->turn, &c->wait, on_stored, c);
}

int call_sandbox(struct call *c)
{
	const char *id = router_param(c->route, c->q, "id");
	struct err e = { 0 };
	struct sandbox *b = sandbox_find(c->api->s, &c->who, id, &e);

	if (!b) {
		call_fail(c, &e);
		return -ENOENT;
	}
	call_enter_sandbox(c, b);
	return 0;
}

int call_exec(struct call *c)
{
	struct err e = { 0 };
	struct exec *x;
	int r = call_sandbox(c);

	if (r < 0)
		return r;
	x = exec_find(c->sandbox, router_param(c->route, c->q, "x"), &e);
	if (!x) {
		call_fail(c, &e);
		return -ENOENT;
	}
	exec_ref(x);
	c->exec = x;
	return 0;
}

static void on_body(void *arg, const char *data, size_t len)
{
	struct call *c = arg;

	c->body(c, data, len);
}

void call_read_body(struct call *c, size_t max, void (*done)(void *arg, const char *data, size_t len), void *arg)
{
	if (c->who.scope != SCOPE_ADMIN)
		http_body_share(c->q, &tenant_calls(c->who.tenant)->bodies, BODIES_MAX);
	http_read_body(c->q, max, done, arg);
}

void call_body(struct call *c, void (*fn)(struct call *c, const char *data, size_t len))
{
	c->body = fn;
	call_read_body(c, API_BODY_MAX, on_body, c);
}

void call_audited(struct call *c)
{
	const struct audit_head *h = audit_head(c->api->audit);

	if (c->q && http_method(c->q) != HTTP_M_GET && http_method(c->q) != HTTP_M_HEAD)
		http_setf(c->q, "X-Cloche-Audit", "%llu:%s", (unsigned long long)h->seq, h->hash);
}
