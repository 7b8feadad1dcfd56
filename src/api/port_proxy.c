/*
 * Forwards one request to a server inside a sandbox, and its answer back, each side at the pace of the other. Steps: find
 * the sandbox and port, check the token, wake the sandbox, connect, forward the head, then forward bytes. The connection
 * inside serves this request alone. After an upgrade that the server accepts, and for a tunnel to a port, bytes are
 * forwarded in both directions.
 */
#include "api/port.h"
#include "base/base.h"

#include <strings.h>
#include <sys/socket.h>

#define OUT_MAX (HTTP_HEAD_MAX + HTTP_PATH_MAX + 160U * 1024U) /* a head, or the result of one read and a little */
#define READ_AT_ONCE (64U * 1024U)
#define READS 4 /* reads from one connection before others get their turn */
#define QUIET_MS 600000 /* ms that a server may be silent while it owes an answer */
#define LOOK_MS 15000

struct proxy {
	struct api *api;
	struct http_req *q; /* NULL: the connection was upgraded */
	struct call *call; /* the call of a tunnel, until the connection is open */
	struct tunnel *tunnel;
	struct port_place place;
	struct port_pass pass; /* keeps ->sandbox */
	struct sandbox_waiter waiter;
	bool waiting;
	struct port_dial *dial;
	int fd;
	uv_poll_t *poll;
	uv_timer_t *timer;
	uint64_t heard; /* loop time of the last byte in either direction */
	struct buf out; /* bytes for the server, from ->out_at on */
	size_t out_at;
	bool out_end; /* nothing follows ->out */
	bool out_shut; /* the end was sent to the server */
	bool out_broken; /* the server reads no more */
	bool held; /* the client does not read at present, so the server is not read either */
	bool in_end; /* of an upgraded one: the server has ended its direction */
	bool begun; /* the answer's head was forwarded */
	bool events; /* the answer is a stream of events, without an end of its own */
	struct answer answer;
	struct api_stream registered;
};

static void on_poll(uv_poll_t *h, int status, int events);

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void proxy_free(struct proxy *x)
{
	api_stream_remove(&x->registered);
	if (x->waiting)
		sandbox_wait_cancel(x->pass.sandbox, &x->waiter);
	if (x->dial)
		port_dial_cancel(x->dial);
	if (x->poll) {
		uv_poll_stop(x->poll);
		uv_close((uv_handle_t *)x->poll, free_handle);
	}
	if (x->timer)
		uv_close((uv_handle_t *)x->timer, free_handle);
	fd_close(x->fd);
	buf_done(&x->out);
	answer_done(&x->answer);
	if (x->pass.sandbox) {
		sandbox_rest(x->pass.sandbox);
		sandbox_unref(x->pass.sandbox);
	}
	free(x);
}

/* The request failed: answers with the error, or closes the connection if the answer has begun. */
static void fail(struct proxy *x, const struct err *e)
{
	if (x->tunnel) {
		tunnel_cut(x->tunnel);
	} else if (x->call) {
		call_fail(x->call, e);
	} else if (x->begun) {
		http_cut(x->q);
	} else if (e->kind == ERR_EXHAUSTED) {
		http_fail_retry(x->q, e, 1);
	} else {
		http_fail(x->q, e);
	}
	proxy_free(x);
}

static void fail_bad(struct proxy *x, const char *why)
{
	struct err e = { 0 };

	err_set(&e, WHY_PORT_CLOSED, -EBADMSG, "the server on port %u in sandbox '%s' sent an invalid answer: %s",
		x->place.number, sandbox_name(x->pass.sandbox), why);
	err_remedy(&e, "check the log of the server inside; it must speak HTTP/1.1");
	fail(x, &e);
}

static void watch(struct proxy *x)
{
	int events = 0;

	if (!x->held && !x->in_end)
		events |= UV_READABLE;
	if (x->out.len > x->out_at)
		events |= UV_WRITABLE;
	if (events)
		uv_poll_start(x->poll, events, on_poll);
	else
		uv_poll_stop(x->poll);
}

/* ---- to the server ---------------------------------------------------------------------------------------------- */

/* The server reads no more. Its answer may still be useful. */
static void out_breaks(struct proxy *x)
{
	x->out_broken = true;
	buf_clear(&x->out);
	x->out_at = 0;
}

static void out_flush(struct proxy *x)
{
	while (x->out.len > x->out_at) {
		ssize_t r = send(x->fd, x->out.data + x->out_at, x->out.len - x->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && errno == EAGAIN)
			return;
		if (r < 0) {
			out_breaks(x);
			return;
		}
		x->out_at += (size_t)r;
		x->heard = uv_now(x->api->loop);
	}
	buf_clear(&x->out);
	x->out_at = 0;
	if (x->out_end && x->tunnel && !x->out_shut) {
		x->out_shut = true;
		(void)shutdown(x->fd, SHUT_WR);
	}
}

static void client_goes_on(struct proxy *x)
{
	if (x->out.len)
		return;
	if (x->tunnel)
		tunnel_resume(x->tunnel);
	else if (
		!x->out_broken) /* a body that the server no longer reads is not read either, until the answer has ended */
		http_body_resume(x->q);
}

/* Sends bytes, and stops reading from the client while some are left. */
static void out_push(struct proxy *x)
{
	out_flush(x);
	if (x->out.len || (x->out_broken && !x->tunnel)) {
		if (x->tunnel)
			tunnel_pause(x->tunnel);
		else
			http_body_pause(x->q);
	}
	watch(x);
}

static int out_add(struct proxy *x, const char *p, size_t len)
{
	bool chunk = x->q && http_body_len(x->q) < 0;
	int r = chunk ? buf_addf(&x->out, "%zx\r\n", len) : 0;

	if (r >= 0)
		r = buf_add(&x->out, p, len);
	return r >= 0 && chunk ? buf_adds(&x->out, "\r\n") : r;
}

/* Both directions have ended: sends what is left, and closes. */
static bool tunnel_over(struct proxy *x)
{
	if (!x->in_end || (!x->out_shut && !x->out_broken))
		return false;
	tunnel_end(x->tunnel);
	proxy_free(x);
	return true;
}

static void on_body(void *arg, const char *p, size_t len)
{
	struct proxy *x = arg;

	if (x->out_broken)
		return;
	if (out_add(x, p, len) < 0)
		out_breaks(x);
	out_push(x);
	if (x->tunnel)
		(void)tunnel_over(x);
}

static void on_body_end(void *arg)
{
	struct proxy *x = arg;

	if (!x->out_broken && http_body_len(x->q) < 0 && buf_adds(&x->out, "0\r\n\r\n") < 0)
		out_breaks(x);
	x->out_end = true;
	out_push(x);
}

/* ---- upgraded --------------------------------------------------------------------------------------------------- */

static void on_tunnel_eof(void *arg)
{
	struct proxy *x = arg;

	x->out_end = true;
	out_push(x);
	(void)tunnel_over(x);
}

static void on_tunnel_gone(void *arg)
{
	proxy_free(arg);
}

static void on_drain(void *arg)
{
	struct proxy *x = arg;

	x->held = false;
	if (x->poll)
		watch(x);
}

static const struct tunnel_calls tunnel_calls = {
	.data = on_body,
	.eof = on_tunnel_eof,
	.drain = on_drain,
	.gone = on_tunnel_gone,
};

static bool is_events(const struct answer *a)
{
	const char *type = answer_header(a, "content-type");

	return type && !strncasecmp(type, "text/event-stream", 17);
}

static void on_stop(void *arg, enum stream_end why)
{
	struct proxy *x = arg;

	if (why == STREAM_STOP && !x->tunnel && !x->events)
		return; /* it has its end, and some time for that */
	if (x->tunnel)
		tunnel_cut(x->tunnel);
	else
		http_cut(x->q);
	proxy_free(x);
}

static int upgrade(struct proxy *x, struct http_req *q, const char *protocol)
{
	struct who who = api_who(q);
	int r = tunnel_accept(q, protocol, &tunnel_calls, x, &x->tunnel);

	if (r < 0)
		return r;
	x->q = NULL;
	x->begun = true;
	x->out_end = false; /* the request has ended, but what the client sends from now on has not */
	api_stream_add(x->api, &x->registered, &who, on_stop, x);
	return 0;
}

/* ---- from the server -------------------------------------------------------------------------------------------- */

/* Handles a complete head. False when the connection is finished. */
static bool begin_answer(struct proxy *x)
{
	const char *protocol = answer_header(&x->answer, "upgrade");
	struct who who;

	if (x->answer.state == ANSWER_UPGRADED && !protocol) {
		fail_bad(x, "its 101 answer names no protocol");
		return false;
	}
	http_bare(x->q);
	port_head_in(&x->answer, &x->place, x->q);
	if (x->answer.state == ANSWER_UPGRADED) {
		if (upgrade(x, x->q, protocol) == 0)
			return true;
		http_cut(x->q);
		proxy_free(x);
		return false;
	}
	x->begun = true;
	x->events = is_events(&x->answer);
	who = api_who(x->q);
	api_stream_add(x->api, &x->registered, &who, on_stop, x);
	http_reason(x->q, x->answer.reason);
	http_begin(x->q, x->answer.status, NULL, x->answer.length);
	return true;
}

/* Handles bytes of an answer. False when it is complete, and @x is freed. */
static bool take_answer(struct proxy *x, char *p, size_t n)
{
	const char *why = "";
	size_t len;

	while (n && !x->tunnel) {
		ssize_t used = answer_feed(&x->answer, p, n, &len, &why);

		if (used < 0) {
			fail_bad(x, why);
			return false;
		}
		if (x->answer.state != ANSWER_HEAD && !x->begun && !begin_answer(x))
			return false;
		if (len)
			http_write(x->q, p, len);
		if (x->answer.state == ANSWER_END) {
			http_end(x->q);
			proxy_free(x);
			return false;
		}
		p += used;
		n -= (size_t)used;
	}
	if (n)
		tunnel_write(x->tunnel, p, n);
	return true;
}

/* The server closed the connection, or it broke. */
static void server_ends(struct proxy *x, int errnum)
{
	if (x->tunnel) {
		if (errnum) {
			tunnel_cut(x->tunnel);
			proxy_free(x);
			return;
		}
		x->in_end = true;
		tunnel_shut(x->tunnel);
		if (!tunnel_over(x))
			watch(x);
		return;
	}
	if (!errnum && answer_eof(&x->answer) == 0) {
		http_end(x->q);
		proxy_free(x);
		return;
	}
	fail_bad(x, x->begun ? "it ended before it was complete" : "it closed the connection");
}

/* False when @x is freed. */
static bool read_server(struct proxy *x)
{
	char *p = service_scratch(x->api->s);

	for (int i = 0; i < READS && !x->held; i++) {
		ssize_t r = recv(x->fd, p, READ_AT_ONCE, MSG_DONTWAIT);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && errno == EAGAIN)
			break;
		if (r <= 0) {
			server_ends(x, r < 0 ? errno : 0);
			return false;
		}
		x->heard = uv_now(x->api->loop);
		if (!take_answer(x, p, (size_t)r))
			return false;
		x->held = (x->tunnel ? tunnel_queued(x->tunnel) : http_queued(x->q)) > HTTP_HIGH;
		if ((size_t)r < READ_AT_ONCE)
			break;
	}
	return true;
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct proxy *x = h->data;

	/* An error of the connection shows when it is used. */
	if (status < 0)
		events = UV_READABLE | UV_WRITABLE;
	if (events & UV_WRITABLE) {
		out_flush(x);
		client_goes_on(x);
		if (x->tunnel && tunnel_over(x))
			return;
	}
	if (events & UV_READABLE && !x->in_end && !x->held && !read_server(x))
		return;
	if (status < 0 && x->in_end && !x->out.len) {
		/* Without bytes to read or write, no later event would report the end. */
		tunnel_cut(x->tunnel);
		proxy_free(x);
		return;
	}
	watch(x);
}

/* ---- beginning -------------------------------------------------------------------------------------------------- */

/* An upgraded connection may be silent for as long as its ends like; a server that owes an answer may not. */
static void on_look(uv_timer_t *t)
{
	struct proxy *x = t->data;
	struct err e = { 0 };

	if (x->tunnel || x->held || uv_now(t->loop) - x->heard < QUIET_MS)
		return;
	err_set(&e, WHY_PORT_SILENT, -ETIMEDOUT, "the server on port %u in sandbox '%s' sent nothing for %d s",
		x->place.number, sandbox_name(x->pass.sandbox), QUIET_MS / 1000);
	fail(x, &e);
}

static int listen_to(struct proxy *x)
{
	uv_loop_t *loop = x->api->loop;
	int r;

	x->heard = uv_now(loop);
	x->poll = malloc(sizeof(*x->poll));
	r = x->poll ? uv_poll_init(loop, x->poll, x->fd) : -ENOMEM;
	if (r < 0) {
		free(TAKE_PTR(x->poll));
		return r;
	}
	x->poll->data = x;
	x->timer = malloc(sizeof(*x->timer));
	if (!x->timer)
		return -ENOMEM;
	uv_timer_init(loop, x->timer);
	x->timer->data = x;
	return uv_timer_start(x->timer, on_look, LOOK_MS, LOOK_MS);
}

static void begin_tunnel(struct proxy *x)
{
	struct call *c = x->call;
	struct err e = { 0 };

	if (upgrade(x, c->q, "tcp") < 0) {
		err_set(&e, ERR_INVALID, -EPROTO, "this endpoint carries a raw connection: send `Upgrade: tcp`");
		fail(x, &e);
		return;
	}
	x->call = NULL;
	c->q = NULL;
	x->pass.sandbox = TAKE_PTR(c->sandbox);
	call_free(c);
	watch(x);
}

static void on_dialed(void *arg, int fd, const struct err *e)
{
	struct proxy *x = arg;
	struct err why = { 0 };
	int r;

	x->dial = NULL;
	if (fd < 0) {
		fail(x, e);
		return;
	}
	x->fd = fd;
	r = listen_to(x);
	if (r == 0 && !x->call)
		r = port_head_out(x->q, &x->place, &x->pass, &x->out);
	if (r < 0) {
		err_sys(&why, ERR_EXHAUSTED, r, "forward a request");
		fail(x, &why);
		return;
	}
	if (x->call) {
		begin_tunnel(x);
		return;
	}
	x->answer.no_body = http_method(x->q) == HTTP_M_HEAD;
	x->answer.may_upgrade = http_is_upgrade(x->q);
	http_set_drain(x->q, on_drain, x);
	x->out_end = !http_body_len(x->q);
	out_push(x);
	if (http_body_len(x->q))
		http_stream_body(x->q, on_body, on_body_end, x);
}

static void dial(struct proxy *x)
{
	struct err e = { 0 };
	struct sandbox *b = x->call ? x->call->sandbox : x->pass.sandbox;

	if (sandbox_ready(b, &e) < 0) {
		fail(x, &e);
		return;
	}
	x->dial = port_dial(b, x->place.number, on_dialed, x);
	if (!x->dial) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for a connection");
		fail(x, &e);
	}
}

static void on_awake(void *arg, int r, const struct err *e)
{
	struct proxy *x = arg;

	x->waiting = false;
	if (r < 0)
		fail(x, e);
	else
		dial(x);
}

static void on_gone(void *arg)
{
	proxy_free(arg);
}

static struct proxy *proxy_new(struct api *a)
{
	struct proxy *x = calloc(1, sizeof(*x));

	if (!x)
		abort(); /* a few kilobytes only */
	x->api = a;
	x->fd = -1;
	x->out.max = OUT_MAX;
	answer_init(&x->answer);
	return x;
}

void port_proxy(struct api *a, struct http_req *q)
{
	struct proxy *x = proxy_new(a);

	x->q = q;
	if (!port_place(a->ports_domain, q, &x->place) || port_enter(a, q, &x->place, &x->pass) < 0) {
		proxy_free(x);
		return;
	}
	if (x->pass.by_query && (http_method(q) == HTTP_M_GET || http_method(q) == HTTP_M_HEAD) &&
	    !http_is_upgrade(q)) {
		port_give_cookie(q, &x->place, x->pass.token);
		proxy_free(x);
		return;
	}
	http_set_gone(q, on_gone, x);
	x->waiter = (struct sandbox_waiter){ .fn = on_awake, .arg = x };
	x->waiting = !sandbox_awake(x->pass.sandbox, &x->waiter);
	if (!x->waiting)
		dial(x);
}

/* The client has hung up, and the call is freed. */
static void on_call_gone(struct call *c)
{
	struct proxy *x = c->data;

	x->call = NULL;
	proxy_free(x);
}

void port_tunnel(struct call *c, uint16_t number)
{
	struct proxy *x = proxy_new(c->api);

	x->call = c;
	x->place.number = number;
	c->data = x;
	c->gone = on_call_gone;
	dial(x);
}
