/* One connection: reading, its timers, its end. */
#include "http/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/base.h"
#include "base/clock.h"

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

void wait_off(struct wait *w)
{
	if (w->kind == WAIT_NONE)
		return;
	TAILQ_REMOVE(&w->conn->server->waits[w->kind], w, link);
	w->kind = WAIT_NONE;
}

void wait_set(struct wait *w, struct conn *c, enum wait_kind kind)
{
	struct http_server *s = c->server;

	wait_off(w);
	w->conn = c;
	w->kind = kind;
	w->until = uv_now(s->loop) + s->wait_ms[kind];
	TAILQ_INSERT_TAIL(&s->waits[kind], w, link);
	if (!s->timer_at || w->until < s->timer_at)
		server_alarm(s, w->until);
}

/* What the connection is waiting for now, apart from sending. */
static enum wait_kind wait_due(const struct conn *c)
{
	const struct http_req *q = c->req;

	switch (c->state) {
	case CONN_HEAD:
		return q || c->fresh ? WAIT_HEAD : WAIT_IDLE;
	case CONN_REQ:
		if (req_wants_body(q))
			return WAIT_BODY;
		if (q->sse)
			return WAIT_SSE;
		return c->eof && q->res == RES_BEGUN ? WAIT_FIN : WAIT_NONE;
	case CONN_WS:
		return WAIT_PING;
	case CONN_TUNNEL: /* how long it may be quiet only those at its two ends know */
		return WAIT_NONE;
	case CONN_LINGER:
		return c->queued ? WAIT_NONE : WAIT_LINGER;
	case CONN_DEAD:
		break;
	}
	return WAIT_NONE;
}

void conn_expired(struct conn *c, enum wait_kind kind)
{
	switch (kind) {
	case WAIT_SSE:
		if (c->req) /* it may have ended, with its turn still to come */
			sse_comment(c->req);
		break;
	case WAIT_PING:
		if (c->state == CONN_WS)
			ws_ping(c->ws);
		break;
	case WAIT_NONE:
	case WAIT_HEAD:
	case WAIT_BODY:
	case WAIT_IDLE:
	case WAIT_LINGER:
	case WAIT_FIN:
	case WAIT_SEND:
	case WAIT_KINDS:
		conn_kill(c);
		break;
	}
	conn_turn(c);
}

/* ---- end -------------------------------------------------------------------------------------------------------- */

void conn_kill(struct conn *c)
{
	if (c->state == CONN_DEAD)
		return;
	c->state = CONN_DEAD;
	uv_poll_stop(&c->poll);
	wait_off(&c->wait);
	wait_off(&c->send);
	conn_kick(c);
}

static void closed(uv_handle_t *h)
{
	struct conn *c = h->data;
	struct http_server *s = c->server;

	free(c);
	s->handles--;
	server_gone(s);
}

/* Frees a dead connection, after the call of its layer's `gone`. */
static void bury(struct conn *c)
{
	struct http_server *s = c->server;
	struct http_req *q = c->req;
	struct linger hard = { .l_onoff = 1 };

	if (q && c->started && (q->res != RES_ENDED || q->tell_gone) && q->gone) {
		q->res = RES_ENDED; /* what it calls now falls flat */
		q->tell_gone = false;
		q->gone(q->gone_arg);
	}
	if (c->ws)
		ws_gone(TAKE_PTR(c->ws));
	if (c->tunnel)
		tunnel_gone(TAKE_PTR(c->tunnel));
	req_free(TAKE_PTR(c->req));
	conn_out_free(c);
	conn_give(c, NULL, NULL);
	free(TAKE_PTR(c->in.data));
	tls_conn_free(c);
	if (c->ready)
		TAILQ_REMOVE(&s->ready, c, ready_link);
	TAILQ_REMOVE(&s->conns, c, link);
	s->n_conns--;
	uv_close((uv_handle_t *)&c->poll, closed);
	if (c->reset)
		(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	fd_close(TAKE_FD(c->fd));
}

void conn_stop(struct conn *c)
{
	if (c->state == CONN_DEAD)
		return;
	req_free(TAKE_PTR(c->req));
	c->started = false;
	c->state = CONN_LINGER;
}

/* ---- input ------------------------------------------------------------------------------------------------------ */

static void refuse(struct conn *c, int status, const char *why)
{
	const enum err_reason reason = status == 431 ? WHY_HEADER_TOO_LARGE :
				       status == 414 ? WHY_PATH_TOO_LONG :
				       status == 417 ? WHY_EXPECTATION :
				       status == 505 ? WHY_HTTP_VERSION :
						       WHY_BAD_REQUEST;

	c->req->keep = false;
	c->req->body_done = true;
	res_refuse(c->req, reason, why);
}

static size_t feed_head(struct conn *c, const char *p, size_t n)
{
	struct http_server *s = c->server;
	const char *why = NULL;
	size_t used;
	int status;

	if (!c->req) {
		c->req = req_new(c);
		if (!c->req) {
			conn_kill(c);
			return n;
		}
	}
	used = parse_head(c->req, p, n, &status, &why);
	if (!status)
		return used;
	wait_off(&c->wait);
	c->fresh = false;
	c->state = CONN_REQ;
	c->started = true;
	c->served++;
	c->req->started = clock_mono_ns();
	if (status > 1)
		refuse(c, status, why);
	else if (c->not_tls)
		refuse(c, 400, "this port speaks HTTPS: use https://");
	else
		s->o.request(s->o.arg, c->req);
	return used;
}

/* One step. Returns what was used of the bytes; 0: they have to wait. */
static size_t consume(struct conn *c, char *p, size_t n)
{
	switch (c->state) {
	case CONN_HEAD:
		/* A client with unread answers gets no more of them; one with many requests waits for other clients. */
		return c->queued || c->served == TURN_REQUESTS ? 0 : feed_head(c, p, n);
	case CONN_REQ:
		return req_feed(c->req, p, n);
	case CONN_WS:
		return ws_feed(c->ws, p, n);
	case CONN_TUNNEL:
		return tunnel_feed(c->tunnel, p, n);
	case CONN_LINGER:
		c->lingered += n;
		if (c->lingered > LINGER_MAX)
			conn_kill(c);
		return n;
	case CONN_DEAD:
		break;
	}
	return n;
}

/* A request that has been answered is put away, unless bytes of its body are still to come. */
static bool finish_request(struct conn *c)
{
	struct http_req *q = c->req;

	if (c->state != CONN_REQ)
		return false;
	assert(q);
	if (q->res != RES_ENDED || q->tell_gone)
		return false;
	if (!q->keep || c->server->draining) {
		conn_stop(c);
		return true;
	}
	if (!q->body_done) {
		if (q->mode == BODY_DISCARD)
			return false;
		q->mode = BODY_DISCARD;
		q->paused = false;
		return true;
	}
	req_free(TAKE_PTR(c->req));
	c->started = false;
	c->state = CONN_HEAD;
	return true;
}

/* Everything that is due before more input is looked at. */
static bool callbacks(struct conn *c)
{
	if (c->ws && c->state != CONN_WS) {
		ws_gone(TAKE_PTR(c->ws));
		return true;
	}
	if (c->tunnel && c->state != CONN_TUNNEL) {
		tunnel_gone(TAKE_PTR(c->tunnel));
		return true;
	}
	if (c->state == CONN_REQ)
		return req_callbacks(c->req) || finish_request(c);
	if (c->state == CONN_WS)
		return ws_callbacks(c->ws);
	if (c->state == CONN_TUNNEL)
		return tunnel_callbacks(c->tunnel);
	return false;
}

static void feed(struct conn *c, char *p, size_t n)
{
	unsigned rounds;
	size_t used;

	while (n && c->state != CONN_DEAD) {
		for (rounds = 0; callbacks(c) && rounds < TURN_ROUNDS; rounds++)
			;
		used = rounds < TURN_ROUNDS ? consume(c, p, n) : 0;
		if (!used)
			break;
		p += used;
		n -= used;
	}
	if (!n || c->state == CONN_DEAD)
		return;
	c->in.data = malloc(n);
	if (!c->in.data) {
		conn_kill(c);
		return;
	}
	memcpy(c->in.data, p, n);
	explicit_bzero(p, n); /* it may belong to a body that must be wiped; its reader gets the copy */
	c->in.off = 0;
	c->in.len = n;
}

/* Parses bytes that had to wait. True when some were used. */
static bool feed_kept(struct conn *c)
{
	size_t used;

	if (!c->in.len || c->state == CONN_DEAD)
		return false;
	used = consume(c, c->in.data + c->in.off, c->in.len);
	c->in.off += used;
	c->in.len -= used;
	if (!c->in.len)
		free(TAKE_PTR(c->in.data));
	return used;
}

/* The client will send nothing more. Only a write shows whether it still reads events or has left. */
static void end_of_input(struct conn *c)
{
	if (!c->eof && c->state == CONN_REQ && c->req->sse)
		sse_comment(c->req);
	else if (!c->eof && c->state == CONN_REQ && c->req->asks)
		req_probe(c->req);
	c->eof = true;
}

/* Reports the end of input to a tunnel, after all earlier bytes were delivered. True when it did. */
static bool tunnel_end_of_input(struct conn *c)
{
	return c->state == CONN_TUNNEL && c->eof && !c->in.len && tunnel_eof(c->tunnel);
}

/* Content of TLS records that have been read. True when there was some. */
static bool feed_tls(struct conn *c)
{
	struct http_server *s = c->server;
	ssize_t r;

	if (!c->ssl || c->in.len || c->state == CONN_DEAD)
		return false;
	r = tls_read(c, s->plain, sizeof(s->plain));
	if (r == -EPIPE)
		end_of_input(c);
	else if (r < 0)
		conn_kill(c);
	if (r <= 0)
		return false;
	feed(c, s->plain, (size_t)r);
	return true;
}

/* A client uses http:// on a TLS port: a plain HTTP answer explains more than an alert that no program shows. */
static void look_for_tls(struct conn *c, char first)
{
	if (!c->seen && first >= 'A' && first <= 'Z') {
		c->not_tls = true;
		tls_conn_free(c);
	}
	c->seen = true;
}

static void receive(struct conn *c)
{
	struct http_server *s = c->server;
	ssize_t r;

	do
		r = recv(c->fd, s->read, c->ssl ? TLS_READ_SIZE : sizeof(s->read), MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	if (r > 0 && c->ssl)
		look_for_tls(c, s->read[0]);
	if (r < 0 && errno != EAGAIN) {
		conn_kill(c);
	} else if (!r) {
		end_of_input(c);
	} else if (r > 0 && c->ssl) {
		if (tls_feed(c, s->read, (size_t)r) < 0)
			conn_kill(c);
	} else if (r > 0) {
		feed(c, s->read, (size_t)r);
	}
}

/* ---- turns ------------------------------------------------------------------------------------------------------ */

static bool wants_input(const struct conn *c)
{
	if (c->eof || c->in.len)
		return false;
	switch (c->state) {
	case CONN_HEAD:
		return !c->queued;
	case CONN_REQ:
		/* Bytes of the next request, and the client's end of file, may be seen; not a body before its handler asks for it. */
		return c->req->body_done || req_wants_body(c->req);
	case CONN_WS:
		return ws_wants(c->ws);
	case CONN_TUNNEL:
		return tunnel_wants(c->tunnel);
	case CONN_LINGER:
		return true;
	case CONN_DEAD:
		break;
	}
	return false;
}

/* The client will send nothing more, and all it sent has been used. */
static void at_eof(struct conn *c)
{
	switch (c->state) {
	case CONN_HEAD:
		conn_stop(c);
		break;
	case CONN_REQ:
		if (!c->req->body_done)
			conn_kill(c);
		break;
	case CONN_LINGER:
		if (!c->queued)
			conn_kill(c);
		break;
	case CONN_WS:
		conn_kill(c);
		break;
	case CONN_TUNNEL: /* its other direction stays open; tunnel_callbacks reports the end */
	case CONN_DEAD:
		break;
	}
}

/* Nothing more goes out. */
static int shut(struct conn *c)
{
	c->shut = true;
	tls_shut(c);
	return shutdown(c->fd, SHUT_WR) < 0 ? -errno : 0;
}

/* Nothing here calls back. */
static void settle(struct conn *c)
{
	struct http_server *s = c->server;
	enum wait_kind kind;
	int events = 0;

	if (c->state == CONN_WS || c->state == CONN_TUNNEL)
		req_free(TAKE_PTR(c->req)); /* its upgrade's */
	if (c->eof && !c->in.len)
		at_eof(c);
	if (c->state == CONN_HEAD && s->draining && !c->req && !c->in.len && !c->queued)
		conn_stop(c);
	if (c->state == CONN_TUNNEL && !c->queued && !c->shut && tunnel_shuts(c->tunnel) && shut(c) < 0)
		conn_kill(c);
	if (c->state == CONN_LINGER && !c->queued) {
		if (!c->shut && shut(c) < 0)
			conn_kill(c);
		if (c->eof)
			conn_kill(c);
	}
	if (c->state == CONN_DEAD)
		return;
	kind = wait_due(c);
	if (kind == WAIT_NONE)
		wait_off(&c->wait);
	else if (kind != c->wait.kind)
		wait_set(&c->wait, c, kind);
	if (wants_input(c))
		events |= UV_READABLE;
	if (c->queued)
		events |= UV_WRITABLE;
	/*
	 * Without any requested event, a broken connection would not be noticed. When both directions are shut down, the
	 * kernel reports the same event as for a broken connection, so a tunnel whose last bytes wait requests none.
	 */
	if (!events && !(c->state == CONN_TUNNEL && c->shut))
		events = c->hup || c->eof ? UV_PRIORITIZED : UV_DISCONNECT;
	if (events != c->events) {
		c->events = events;
		if (events)
			uv_poll_start(&c->poll, events, conn_event);
		else
			uv_poll_stop(&c->poll);
	}
}

void conn_kick(struct conn *c)
{
	if (c->ready || c->turn)
		return;
	c->ready = true;
	TAILQ_INSERT_TAIL(&c->server->ready, c, ready_link);
	server_kick(c->server);
}

void conn_turn(struct conn *c)
{
	unsigned rounds = 0;
	bool more = true;

	c->turn = true;
	while (more && c->state != CONN_DEAD && rounds++ < TURN_ROUNDS)
		more = callbacks(c) || feed_kept(c) || feed_tls(c) || tunnel_end_of_input(c);
	more = more || c->served == TURN_REQUESTS;
	c->served = 0;
	c->turn = false;
	settle(c);
	if (c->state == CONN_DEAD)
		bury(c);
	else if (more)
		conn_kick(c); /* others first */
}

void conn_after(struct conn *c)
{
	if (c->turn)
		return;
	if (c->in.len || c->state == CONN_DEAD || (c->ws && c->state != CONN_WS) ||
	    (c->tunnel && c->state != CONN_TUNNEL) || (c->req && c->req->tell_gone)) {
		conn_kick(c);
		return;
	}
	while (finish_request(c))
		;
	settle(c);
}

void conn_event(uv_poll_t *h, int status, int events)
{
	struct conn *c = h->data;

	c->turn = true;
	if (status < 0)
		conn_kill(c);
	if (c->state != CONN_DEAD && (events & UV_WRITABLE))
		conn_flush(c);
	if (c->state != CONN_DEAD && (events & UV_READABLE) && wants_input(c))
		receive(c);
	if (events & UV_DISCONNECT)
		c->hup = true;
	/* Requested only to receive HUP, which is always reported; urgent bytes are not expected. */
	if (events & UV_PRIORITIZED)
		conn_kill(c);
	conn_turn(c);
}

int conn_new(struct http_server *s, int fd, bool tls, const char *peer, int64_t uid)
{
	struct conn *c = calloc(1, sizeof(*c));
	int r, one = 1;

	if (!c)
		return -ENOMEM;
	c->server = s;
	c->fd = fd;
	c->peer_uid = uid;
	c->fresh = true;
	snprintf(c->peer, sizeof(c->peer), "%s", peer);
	TAILQ_INIT(&c->out);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	r = tls ? tls_conn_new(c) : 0;
	if (r >= 0)
		r = uv_poll_init(s->loop, &c->poll, fd);
	if (r < 0) {
		tls_conn_free(c);
		free(c);
		return r;
	}
	c->poll.data = c;
	s->handles++;
	s->n_conns++;
	TAILQ_INSERT_TAIL(&s->conns, c, link);
	settle(c);
	return 0;
}
