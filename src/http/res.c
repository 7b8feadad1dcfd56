/* One answer: its head, its body, its end. */
#include "http/conn.h"

#include <stdarg.h>
#include <strings.h>

#include "base/base.h"
#include "base/json.h"

#define ERROR_MAX 4096U

static const char *status_text(int status)
{
	static const struct {
		int status;
		const char *text;
	} texts[] = {
		{ 101, "Switching Protocols" },
		{ 200, "OK" },
		{ 201, "Created" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 206, "Partial Content" },
		{ 304, "Not Modified" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 411, "Length Required" },
		{ 412, "Precondition Failed" },
		{ 413, "Content Too Large" },
		{ 414, "URI Too Long" },
		{ 415, "Unsupported Media Type" },
		{ 416, "Range Not Satisfiable" },
		{ 417, "Expectation Failed" },
		{ 422, "Unprocessable Content" },
		{ 426, "Upgrade Required" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
		{ 505, "HTTP Version Not Supported" },
		{ 507, "Insufficient Storage" },
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (texts[i].status == status)
			return texts[i].text;
	return "Status";
}

/* ---- head ------------------------------------------------------------------------------------------------------- */

static bool value_fit(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return false;
	return true;
}

void http_set(struct http_req *q, const char *name, const char *value)
{
	size_t before = q->set.len;

	if (!value_fit(value))
		return;
	if (buf_adds(&q->set, name) < 0 || buf_adds(&q->set, ": ") < 0 || buf_adds(&q->set, value) < 0 ||
	    buf_adds(&q->set, "\r\n") < 0)
		buf_cut(&q->set, before);
}

void http_setf(struct http_req *q, const char *name, const char *fmt, ...)
{
	char value[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	http_set(q, name, value);
}

/* Whether the connection can serve another request after this one, as far as is known when its head is sent. */
static bool keeps(const struct http_req *q)
{
	if (!q->keep || q->conn->server->draining || q->until_close)
		return false;
	/* A body that was announced but never asked for may never come. */
	if (!q->body_done && q->expect)
		return false;
	return q->body_done || q->body_len < 0 || q->body_left <= DISCARD_MAX;
}

struct res_head {
	char text[512];
	size_t len;
};

__attribute__((format(printf, 2, 3))) static void add(struct res_head *h, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(h->text + h->len, sizeof(h->text) - h->len, fmt, ap);
	va_end(ap);
	if (n > 0 && (size_t)n < sizeof(h->text) - h->len)
		h->len += (size_t)n;
}

/* @len: of the body; -1: not known. Everything but what http_set added and the empty line. */
static void make_head(struct http_req *q, struct res_head *h, int status, const char *type, int64_t len)
{
	bool empty = status == 204 || status == 304;

	q->status = status;
	q->no_body = empty || q->method == HTTP_M_HEAD;
	q->chunked = len < 0 && !empty && !q->v10;
	q->until_close = len < 0 && !empty && q->v10;
	h->len = 0;
	add(h, "HTTP/1.1 %d %s\r\n", status, q->has_reason ? q->reason : status_text(status));
	if (!q->bare)
		add(h, "Server: cloche\r\nX-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\n", http_request_id(q));
	if (type && !empty)
		add(h, "Content-Type: %.100s\r\n", type);
	if (q->chunked)
		add(h, "Transfer-Encoding: chunked\r\n");
	else if (!empty && !q->until_close)
		add(h, "Content-Length: %lld\r\n", (long long)len);
	if (!keeps(q)) {
		q->keep = false;
		add(h, "Connection: close\r\n");
	} else if (q->v10) {
		add(h, "Connection: keep-alive\r\n");
	}
}

/* The answer is complete; the rest is the connection's work. */
static void finish(struct http_req *q)
{
	struct conn *c = q->conn;

	q->res = RES_ENDED;
	q->sse = false;
	q->lent_due = q->drain_due = false;
	if (c->lent)
		conn_unlend(c);
	conn_after(c);
}

void http_reason(struct http_req *q, const char *text)
{
	size_t n = strlen(text);

	if (n >= sizeof(q->reason))
		return;
	for (size_t i = 0; i < n; i++)
		if (text[i] < ' ' || text[i] > '~')
			return;
	memcpy(q->reason, text, n + 1);
	q->has_reason = true;
}

void http_bare(struct http_req *q)
{
	q->bare = true;
}

/* ---- whole answers ---------------------------------------------------------------------------------------------- */

void http_send(struct http_req *q, int status, const char *type, const void *body, size_t len)
{
	struct res_head h;
	struct out_piece p[4];

	if (q->res != RES_NONE) {
		q->tell_gone = false; /* refused in the meantime; the handler no longer uses it */
		return;
	}
	make_head(q, &h, status, type, (int64_t)len);
	p[0] = (struct out_piece){ .data = h.text, .len = h.len };
	p[1] = (struct out_piece){ .data = buf_str(&q->set), .len = q->set.len };
	p[2] = (struct out_piece){ .data = "\r\n", .len = 2 };
	p[3] = (struct out_piece){ .data = body, .len = len };
	conn_write(q->conn, p, len && !q->no_body ? 4 : 3);
	finish(q);
}

void http_send_take(struct http_req *q, int status, const char *type, char *body, size_t len)
{
	struct res_head h;
	struct out_piece p[3];

	if (q->res != RES_NONE || len < 16384) {
		http_send(q, status, type, body, len);
		free(body);
		return;
	}
	make_head(q, &h, status, type, (int64_t)len);
	p[0] = (struct out_piece){ .data = h.text, .len = h.len };
	p[1] = (struct out_piece){ .data = buf_str(&q->set), .len = q->set.len };
	p[2] = (struct out_piece){ .data = "\r\n", .len = 2 };
	conn_write(q->conn, p, 3);
	if (q->no_body)
		free(body);
	else
		conn_write_own(q->conn, body, body, len);
	finish(q);
}

void http_set_shape(struct http_req *q, http_shape *shape)
{
	q->shape = shape;
}

void http_fail_as(struct http_req *q, enum err_reason why, const char *message, const char *cause, const char *remedy)
{
	AUTO(buf_done) struct buf b = BUF_INIT(ERROR_MAX);
	struct json j = JSON_INIT(&b);
	const char *code = err_kind_name(err_reason_kind(why));

	cause = cause && *cause ? cause : NULL;
	remedy = remedy && *remedy ? remedy : NULL;
	if (q->shape) {
		q->shape(&j, code, message, cause, remedy);
	} else {
		jout_object(&j, NULL);
		jout_object(&j, "error");
		jout_str(&j, "code", code);
		jout_str(&j, "reason", err_reason_name(why));
		jout_str(&j, "message", message);
		jout_str(&j, "cause", cause);
		jout_str(&j, "remedy", remedy);
		jout_str(&j, "request_id", http_request_id(q));
		jout_end(&j);
		jout_end(&j);
	}
	http_send(q, err_reason_status(why), "application/json", buf_str(&b), b.len);
}

void res_refuse(struct http_req *q, enum err_reason why, const char *message)
{
	http_fail_as(q, why, message, NULL, NULL);
}

void http_fail(struct http_req *q, const struct err *e)
{
	/* What the kernel said is of use where it was not the caller's doing. */
	const char *cause = e->errnum && err_kind_status(e->kind) >= 500 ? strerror(e->errnum) : NULL;

	http_fail_as(q, err_reason(e), e->msg, cause, e->remedy);
}

void http_fail_retry(struct http_req *q, const struct err *e, unsigned retry_after_s)
{
	if (retry_after_s)
		http_setf(q, "Retry-After", "%u", retry_after_s);
	http_fail(q, e);
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

void http_begin(struct http_req *q, int status, const char *type, int64_t len)
{
	struct res_head h;
	struct out_piece p[3];

	if (q->res != RES_NONE)
		return;
	q->res = RES_BEGUN;
	q->res_left = len;
	make_head(q, &h, status, type, len);
	p[0] = (struct out_piece){ .data = h.text, .len = h.len };
	p[1] = (struct out_piece){ .data = buf_str(&q->set), .len = q->set.len };
	p[2] = (struct out_piece){ .data = "\r\n", .len = 2 };
	conn_write(q->conn, p, 3);
	conn_after(q->conn);
}

/* Sends pieces of the answer, with the framing of a chunk. @p has room for one piece before and one after its @n. */
static void write_pieces(struct http_req *q, struct out_piece *p, size_t n)
{
	struct conn *c = q->conn;
	char size[24];
	size_t len = 0;

	for (size_t i = 1; i <= n; i++)
		len += p[i].len;
	if (q->chunked) {
		p[0] = (struct out_piece){ .data = size, .len = (size_t)snprintf(size, sizeof(size), "%zx\r\n", len) };
		p[n + 1] = (struct out_piece){ .data = "\r\n", .len = 2 };
		conn_write(c, p, n + 2);
	} else {
		conn_write(c, p + 1, n);
	}
	if (c->queued >= HTTP_HIGH / 2)
		q->above = true;
	if (q->sse && c->wait.kind == WAIT_SSE)
		wait_set(&c->wait, c, WAIT_SSE);
}

/* Bytes that may still be sent as content; none of an answer without a body. */
static size_t allowed(struct http_req *q, size_t len)
{
	if (q->res != RES_BEGUN || q->no_body)
		return 0;
	if (q->res_left >= 0) {
		if ((uint64_t)q->res_left < len)
			len = (size_t)q->res_left;
		q->res_left -= (int64_t)len;
	}
	return len;
}

void res_write(struct http_req *q, const struct http_piece *p, size_t n)
{
	struct out_piece out[RES_PIECES_MAX + 2];
	size_t k = 0;

	assert(n <= RES_PIECES_MAX);
	for (size_t i = 0; i < n; i++) {
		size_t len = allowed(q, p[i].len);

		if (len)
			out[++k] = (struct out_piece){ .data = p[i].data, .len = len };
	}
	if (!k)
		return;
	write_pieces(q, out, k);
	conn_after(q->conn);
}

void http_write(struct http_req *q, const void *data, size_t len)
{
	res_write(q, &(struct http_piece){ data, len }, 1);
}

void http_write_lent(struct http_req *q, const struct http_piece *p, size_t n, void (*done)(void *arg), void *arg)
{
	struct out_piece out[HTTP_PIECES_MAX + 2];
	struct conn *c = q->conn;
	size_t k = 0;

	if (q->res != RES_BEGUN)
		return;
	assert(!q->lent_busy && !q->lent_due && n <= HTTP_PIECES_MAX);
	q->lent = done;
	q->lent_arg = arg;
	for (size_t i = 0; i < n; i++) {
		size_t len = allowed(q, p[i].len);

		if (len)
			out[++k] = (struct out_piece){ .data = p[i].data, .len = len, .lent = true };
	}
	if (k)
		write_pieces(q, out, k);
	q->lent_busy = c->lent || (c->ssl && c->queued);
	q->lent_due = !q->lent_busy;
	if (q->lent_due && !c->turn)
		conn_kick(c);
	else
		conn_after(c);
}

size_t http_queued(const struct http_req *q)
{
	return q->conn->queued;
}

void http_set_drain(struct http_req *q, void (*drain)(void *arg), void *arg)
{
	q->drain = drain;
	q->drain_arg = arg;
}

void res_queue_fell(struct conn *c)
{
	struct http_req *q = c->req;

	if (c->ws)
		ws_queue_fell(c->ws);
	if (c->tunnel)
		tunnel_queue_fell(c->tunnel);
	if (!q || q->res != RES_BEGUN)
		return;
	if (q->above && c->queued < HTTP_HIGH / 2) {
		q->above = false;
		q->drain_due = true;
	}
	/* TLS has its own copy; it is done when that is sent, or the next could follow without end. */
	if (q->lent_busy && !c->lent && !(c->ssl && c->queued)) {
		q->lent_busy = false;
		q->lent_due = true;
	}
}

void http_end(struct http_req *q)
{
	q->tell_gone = false;
	if (q->res != RES_BEGUN)
		return;
	if (q->chunked && !q->no_body)
		conn_write(q->conn, &(struct out_piece){ .data = "0\r\n\r\n", .len = 5 }, 1);
	if (q->res_left > 0 && !q->no_body) {
		http_cut(q); /* less than was promised */
		return;
	}
	finish(q);
}

void http_cut(struct http_req *q)
{
	struct conn *c = q->conn;

	q->tell_gone = false;
	if (q->res == RES_ENDED)
		return;
	q->res = RES_ENDED;
	/* Where only the connection's end ends the answer, the client must see that this one is no proper end. */
	c->reset = q->until_close;
	conn_kill(c);
}
