/* One request: its parts and its body. */
#include "http/conn.h"

#include <strings.h>

#include "base/base.h"
#include "base/utf8.h"
#include "base/clock.h"

#define SPARES_MAX 64U
#define BODY_FREE (256U * 1024U) /* a body up to this does not count */
#define SPARE_MEMORY (16U * 1024U) /* a spare request keeps no larger buffer than this */

struct http_req *req_new(struct conn *c)
{
	struct http_server *s = c->server;
	struct http_req *q = s->spare;
	struct buf set = BUF_INIT(SET_MAX);

	if (q) {
		s->spare = q->next;
		s->spares--;
		set = q->set;
		buf_clear(&set);
	} else {
		q = malloc(sizeof(*q));
		if (!q)
			return NULL;
	}
	memset(q, 0, offsetof(struct http_req, small));
	q->conn = c;
	q->head = q->small;
	q->head_cap = sizeof(q->small);
	q->set = set;
	return q;
}

static void body_free(struct http_req *q)
{
	if (q->body_share)
		*q->body_share -= q->body_counted;
	q->body_counted = 0;
	buf_done(&q->body);
}

void req_free(struct http_req *q)
{
	struct http_server *s;

	if (!q)
		return;
	s = q->conn->server;
	if (q->head != q->small)
		free(q->head);
	if (q->wiped)
		http_body_forget(q);
	body_free(q);
	if (q->set.cap > SPARE_MEMORY)
		buf_done(&q->set);
	if (s->spares >= SPARES_MAX || s->freed) {
		buf_done(&q->set);
		free(q);
		return;
	}
	q->next = s->spare;
	s->spare = q;
	s->spares++;
}

/* ---- target --------------------------------------------------------------------------------------------------- */

static int hex(char ch)
{
	if (ch >= '0' && ch <= '9')
		return ch - '0';
	ch = (char)(ch | 0x20);
	return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

/* Decodes in place and ends it with a NUL; @text has a byte of room behind. -EINVAL for what no text may hold. */
static int decode(char *text, size_t len, bool plus)
{
	char *to = text;

	for (size_t i = 0; i < len; i++) {
		char ch = text[i];

		if (ch == '%') {
			int hi = i + 2 < len ? hex(text[i + 1]) : -1, lo = i + 2 < len ? hex(text[i + 2]) : -1;

			if (hi < 0 || lo < 0)
				return -EINVAL;
			ch = (char)(hi * 16 + lo);
			i += 2;
		} else if (ch == '+' && plus) {
			ch = ' ';
		}
		if (!ch)
			return -EINVAL;
		*to++ = ch;
	}
	*to = '\0';
	return utf8_valid(text, (size_t)(to - text)) ? 0 : -EINVAL;
}

static bool segment_fit(const char *text)
{
	if (!*text || !strcmp(text, ".") || !strcmp(text, ".."))
		return false;
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f || *text == '/')
			return false;
	return true;
}

/* @path: a copy to be taken apart. */
static int split_path(struct http_req *q, char *path)
{
	char *p = path + 1;

	while (*p) {
		size_t len = strcspn(p, "/");
		bool more = p[len];

		if (q->n_segments == HTTP_SEGMENTS_MAX || memchr(p, ';', len))
			return -EINVAL;
		/* decode() writes the end of the part over the slash. */
		if (decode(p, len, false) < 0 || !segment_fit(p) || (more && !p[len + 1]))
			return -EINVAL;
		q->segments[q->n_segments++] = p;
		p += len + more;
	}
	return 0;
}

static int split_query(struct http_req *q, char *text)
{
	while (text && *text) {
		char *next = strchr(text, '&'), *value;

		if (next)
			*next++ = '\0';
		if (*text) {
			if (q->n_query == HTTP_QUERY_MAX)
				return -EINVAL;
			value = strchr(text, '=');
			if (value)
				*value++ = '\0';
			if (decode(text, strlen(text), true) < 0 || (value && decode(value, strlen(value), true) < 0))
				return -EINVAL;
			q->query[q->n_query++] = (struct header){ text, value ? value : "" };
		}
		text = next;
	}
	return 0;
}

int req_target(struct http_req *q, const char **ret_why)
{
	char *url = q->head + (q->url - q->head), *copy = q->head + q->head_len, *query;
	size_t len;

	*ret_why = "the path is invalid";
	url[q->url_len] = '\0';
	/* To a proxy, the whole address is sent; a server has to take it too. */
	if (!strncasecmp(url, "http://", 7) || !strncasecmp(url, "https://", 8))
		url = strchr(strchr(url, '/') + 2, '/');
	if (!url || *url != '/' || strchr(url, '#'))
		return 400;
	query = strchr(url, '?');
	if (query)
		*query++ = '\0';
	len = strlen(url);
	if (len > HTTP_PATH_MAX) {
		*ret_why = "the path is too long";
		return 414;
	}
	q->path = url;
	q->foreign = q->conn->server->o.foreign && q->conn->server->o.foreign(q->conn->server->o.arg, q);
	if (q->foreign) {
		q->query_text = query;
		return 0;
	}
	memcpy(copy, url, len + 1);
	if (split_path(q, copy) < 0)
		return 400;
	*ret_why = "the query is invalid";
	return split_query(q, query) < 0 ? 400 : 0;
}

/* ---- what a handler asks ---------------------------------------------------------------------------------------- */

enum http_method http_method(const struct http_req *q)
{
	return q->method;
}

const char *http_method_name(const struct http_req *q)
{
	return q->method_name;
}

const char *http_path(const struct http_req *q)
{
	return q->path;
}

bool http_foreign(const struct http_req *q)
{
	return q->foreign;
}

const char *http_query_text(const struct http_req *q)
{
	return q->query_text;
}

size_t http_segments(const struct http_req *q)
{
	return q->n_segments;
}

const char *http_segment(const struct http_req *q, size_t i)
{
	assert(i < q->n_segments);
	return q->segments[i];
}

const char *http_query(const struct http_req *q, const char *name)
{
	for (unsigned i = 0; i < q->n_query; i++)
		if (!strcmp(q->query[i].name, name))
			return q->query[i].value;
	return NULL;
}

size_t http_query_count(const struct http_req *q)
{
	return q->n_query;
}

void http_query_at(const struct http_req *q, size_t i, const char **ret_name, const char **ret_value)
{
	assert(i < q->n_query);
	*ret_name = q->query[i].name;
	*ret_value = q->query[i].value;
}

const char *http_header(const struct http_req *q, const char *name)
{
	for (unsigned i = 0; i < q->n_headers; i++)
		if (!strcasecmp(q->headers[i].name, name))
			return q->headers[i].value;
	return NULL;
}

size_t http_header_count(const struct http_req *q)
{
	return q->n_headers;
}

void http_header_at(const struct http_req *q, size_t i, const char **ret_name, const char **ret_value)
{
	assert(i < q->n_headers);
	*ret_name = q->headers[i].name;
	*ret_value = q->headers[i].value;
}

int64_t http_body_len(const struct http_req *q)
{
	return q->body_len;
}

bool http_is_ws(const struct http_req *q)
{
	const char *upgrade = http_header(q, "upgrade");

	return q->upgrade && !q->v10 && upgrade && !strcasecmp(upgrade, "websocket");
}

bool http_is_upgrade(const struct http_req *q)
{
	return q->upgrade && !q->v10 && !q->body_len && http_header(q, "upgrade");
}

bool http_is_tls(const struct http_req *q)
{
	return q->conn->ssl;
}

int64_t http_peer_uid(const struct http_req *q)
{
	return q->conn->peer_uid;
}

const char *http_peer(const struct http_req *q)
{
	return q->conn->peer;
}

static bool id_fit(const char *text)
{
	size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return n && n <= 64 && !text[n];
}

const char *http_request_id(const struct http_req *q)
{
	struct http_req *own = q->conn->req; /* the same, to be written */
	struct http_server *s = q->conn->server;
	const char *sent;

	if (q->id[0])
		return q->id;
	sent = http_header(q, "x-request-id");
	if (sent && id_fit(sent))
		snprintf(own->id, sizeof(own->id), "%s", sent);
	else
		snprintf(own->id, sizeof(own->id), "%s%llx", s->id_prefix, (unsigned long long)s->id_next++);
	return q->id;
}

void http_set_gone(struct http_req *q, void (*gone)(void *arg), void *arg)
{
	q->gone = gone;
	q->gone_arg = arg;
}

void req_probe(struct http_req *q)
{
	static const char still[] = "HTTP/1.1 102 Processing\r\n\r\n";

	if (q->res == RES_NONE && !q->v10)
		conn_write(q->conn, &(struct out_piece){ .data = still, .len = sizeof(still) - 1 }, 1);
}

void http_ask_gone(struct http_req *q)
{
	q->asks = true;
	if (!q->conn->eof)
		return;
	req_probe(q);
	conn_after(q->conn);
}

void http_give(struct http_req *q, unsigned *count, size_t *unsent)
{
	conn_give(q->conn, count, unsent);
}

unsigned http_conns_max(const struct http_req *q)
{
	return q->conn->server->o.conns_max;
}

void http_last(struct http_req *q)
{
	q->keep = false;
}

void *http_note(struct http_req *q)
{
	return q->note;
}

/* ---- its body --------------------------------------------------------------------------------------------------- */

static void ask(struct http_req *q, enum body_mode mode)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct conn *c = q->conn;

	assert(q->mode == BODY_UNASKED);
	q->mode = mode;
	q->rate_from = 0;
	if (q->expect && !q->body_done && !q->body_seen && q->res == RES_NONE)
		conn_write(c, &(struct out_piece){ .data = go_on, .len = sizeof(go_on) - 1 }, 1);
	q->expect = false;
	if (!c->turn && (q->body_done || c->in.len))
		conn_kick(c);
	else
		conn_after(c);
}

static void too_large(struct http_req *q)
{
	q->tell_gone = true;
	q->keep = false;
	res_refuse(q, WHY_BODY_TOO_LARGE, "the body is too large");
}

void http_body_wiped(struct http_req *q)
{
	q->wiped = true;
}

void http_body_forget(struct http_req *q)
{
	if (q->body.data)
		explicit_bzero(q->body.data, q->body.cap);
	body_free(q);
}

void http_body_share(struct http_req *q, size_t *count, size_t max)
{
	q->body_share = count;
	q->body_share_max = max;
}

/* Small ones are bounded by the number of connections. */
static bool body_fits(struct http_req *q)
{
	if (!q->body_share || q->body.len <= BODY_FREE)
		return true;
	*q->body_share += q->body.len - q->body_counted;
	q->body_counted = q->body.len;
	return *q->body_share <= q->body_share_max;
}

static void too_much(struct http_req *q)
{
	q->tell_gone = true;
	q->keep = false;
	body_free(q);
	http_set(q, "Retry-After", "1");
	res_refuse(q, WHY_NO_RESOURCES, "the bodies of requests that have not come whole have too many bytes");
}

void http_read_body(struct http_req *q, size_t max, void (*done)(void *arg, const char *data, size_t len), void *arg)
{
	if (q->res == RES_ENDED)
		return;
	q->body_fn = done;
	q->body_arg = arg;
	q->body_max = max;
	q->body.max = max;
	if (q->body_len > 0 && (uint64_t)q->body_len > max) {
		too_large(q);
		return;
	}
	/* One that grows leaves copies behind. */
	if (q->wiped && !buf_room(&q->body, q->body_len >= 0 ? (size_t)q->body_len : max)) {
		too_large(q);
		return;
	}
	ask(q, BODY_WHOLE);
}

void http_stream_body(struct http_req *q, void (*data)(void *arg, const char *p, size_t len), void (*end)(void *arg),
		      void *arg)
{
	if (q->res == RES_ENDED)
		return;
	q->body_fn = data;
	q->body_end = end;
	q->body_arg = arg;
	ask(q, BODY_STREAM);
}

void http_body_pause(struct http_req *q)
{
	q->paused = true;
}

void http_body_resume(struct http_req *q)
{
	if (!q->paused)
		return;
	q->paused = false;
	q->rate_from = 0;
	if (!q->conn->turn)
		conn_kick(q->conn);
}

void http_body_drop(struct http_req *q)
{
	if (q->mode != BODY_STREAM)
		return;
	q->mode = BODY_DISCARD;
	http_body_resume(q);
}

bool req_wants_body(const struct http_req *q)
{
	return !q->body_done && q->mode != BODY_UNASKED && !q->paused;
}

/* Content that arrived. The callback may end the request. */
static void deliver(struct http_req *q, char *data, size_t len)
{
	bool wiped = q->wiped; /* @q may be gone then */

	q->body_seen += len;
	switch (q->mode) {
	case BODY_WHOLE:
		if (buf_add(&q->body, data, len) < 0)
			too_large(q);
		else if (!body_fits(q))
			too_much(q);
		break;
	case BODY_STREAM:
		q->body_fn(q->body_arg, data, len);
		break;
	case BODY_DISCARD:
		q->discarded += len;
		if (q->discarded > DISCARD_MAX)
			q->keep = false;
		break;
	case BODY_UNASKED:
		break;
	}
	if (wiped)
		explicit_bzero(data, len);
}

/*
 * A client that sends next to nothing, but does send, is cut too: no stretch of body_ms may bring less than the rate.
 */
static bool too_slow(struct http_req *q, size_t n)
{
	struct http_server *s = q->conn->server;
	uint64_t now = uv_now(s->loop), span = s->wait_ms[WAIT_BODY];

	if (!q->rate_from) {
		q->rate_from = now ? now : 1;
		q->rate_bytes = 0;
	}
	q->rate_bytes += n;
	if (now - q->rate_from < span)
		return false;
	if (q->rate_bytes < span * BODY_RATE_MIN / 1000)
		return true;
	q->rate_from = now;
	q->rate_bytes = 0;
	return false;
}

size_t req_feed(struct http_req *q, char *p, size_t n)
{
	struct conn *c = q->conn;
	size_t len = n;
	ssize_t used;
	bool wiped = q->wiped;

	if (!req_wants_body(q))
		return 0;
	if (q->mode != BODY_DISCARD && too_slow(q, n)) {
		conn_kill(c);
		return n;
	}
	wait_set(&c->wait, c, WAIT_BODY);
	if (q->body_len >= 0) {
		len = n < q->body_left ? n : (size_t)q->body_left;
		q->body_left -= len;
		q->body_done = !q->body_left;
		deliver(q, p, len);
		return len;
	}
	used = parse_chunks(q, p, n, &len);
	if (used < 0) {
		q->keep = false;
		q->tell_gone = q->res != RES_ENDED;
		if (q->res == RES_NONE)
			res_refuse(q, WHY_BAD_REQUEST, "the chunks are invalid");
		else
			conn_kill(c);
		return n;
	}
	if (len)
		deliver(q, p, len);
	if (wiped)
		explicit_bzero(p, (size_t)used); /* chunks are moved together, within */
	return (size_t)used;
}

bool req_callbacks(struct http_req *q)
{
	if (q->tell_gone) {
		q->tell_gone = false;
		if (q->gone)
			q->gone(q->gone_arg);
		return true;
	}
	if (q->res == RES_ENDED)
		return false;
	if (q->lent_due) {
		q->lent_due = false;
		q->lent(q->lent_arg);
		return true;
	}
	if (q->drain_due) {
		q->drain_due = false;
		if (q->drain)
			q->drain(q->drain_arg);
		return true;
	}
	if (!q->body_done || q->body_told || q->paused)
		return false;
	switch (q->mode) {
	case BODY_WHOLE:
		q->body_told = true;
		q->body_fn(q->body_arg, buf_str(&q->body), q->body.len);
		return true;
	case BODY_STREAM:
		q->body_told = true;
		q->body_end(q->body_arg);
		return true;
	case BODY_UNASKED:
	case BODY_DISCARD:
		break;
	}
	return false;
}
