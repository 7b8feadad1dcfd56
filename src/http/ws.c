/* WebSockets, with the frames of wslay. */
#include "http/conn.h"

#include <openssl/evp.h>
#include <strings.h>
#include <wslay/wslay.h>

#include "base/base.h"

#define FRAMES_MAX 4096U /* of one message: each costs memory beside its bytes */
#define HOLD_ABOVE (4U * HTTP_HIGH) /* nothing is read while more than this waits: answers to pings pile up too */

/*
 * A message that arrived while the layer above had said pause; there can only be as many as fit wslay's small buffer.
 */
struct held {
	struct held *next;
	size_t len;
	bool text;
	uint8_t data[];
};

struct ws {
	struct conn *conn;
	wslay_event_context_ptr ctx;
	struct ws_calls calls;
	void *arg;
	const char *in;
	size_t in_len;
	struct held *held, **held_end;
	bool paused, closed, heard, above, drain_due;
	bool asked; /* a message has come */
	unsigned frames;
};

/* ---- handshake -------------------------------------------------------------------------------------------------- */

static int accept_key(const char *key, char *ret, size_t size)
{
	unsigned char raw[32], hash[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	char text[96];

	/* 16 bytes in base64. */
	if (strlen(key) != 24 || EVP_DecodeBlock(raw, (const unsigned char *)key, 24) != 18 ||
	    strcmp(key + 22, "==") != 0)
		return -EPROTO;
	snprintf(text, sizeof(text), "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
	if (EVP_Digest(text, strlen(text), hash, &len, EVP_sha1(), NULL) != 1 || size < 29)
		return -EPROTO;
	EVP_EncodeBlock((unsigned char *)ret, hash, (int)len);
	return 0;
}

static void answer(struct http_req *q, const char *accept, const char *protocol)
{
	char head[512];
	int n = snprintf(
		head, sizeof(head),
		"HTTP/1.1 101 Switching Protocols\r\nServer: cloche\r\nX-Request-Id: %s\r\nUpgrade: websocket\r\n"
		"Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s%.100s%s",
		http_request_id(q), accept, protocol ? "Sec-WebSocket-Protocol: " : "", protocol ? protocol : "",
		protocol ? "\r\n" : "");
	struct out_piece p[3] = {
		{ .data = head, .len = (size_t)n },
		{ .data = buf_str(&q->set), .len = q->set.len },
		{ .data = "\r\n", .len = 2 },
	};

	conn_write(q->conn, p, 3);
}

/* ---- wslay's callbacks ------------------------------------------------------------------------------------------ */

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags, void *arg)
{
	struct ws *w = arg;

	(void)flags;
	if (!w->in_len || w->paused || w->closed) {
		wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	if (len > w->in_len)
		len = w->in_len;
	memcpy(buf, w->in, len);
	w->in += len;
	w->in_len -= len;
	return (ssize_t)len;
}

static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags, void *arg)
{
	struct ws *w = arg;

	(void)ctx;
	(void)flags;
	conn_write(w->conn, &(struct out_piece){ .data = data, .len = len }, 1);
	return (ssize_t)len;
}

static void on_frame(wslay_event_context_ptr ctx, const struct wslay_event_on_frame_recv_start_arg *a, void *arg)
{
	static const uint8_t why[] = "too many frames";
	struct ws *w = arg;

	if (wslay_is_ctrl_frame(a->opcode) || ++w->frames <= FRAMES_MAX)
		return;
	(void)wslay_event_queue_close(ctx, 1008, why, sizeof(why) - 1);
	wslay_event_shutdown_read(ctx);
}

static void hold(struct ws *w, bool text, const uint8_t *data, size_t len)
{
	struct held *h = malloc(sizeof(*h) + len);

	if (!h) {
		conn_kill(w->conn);
		return;
	}
	h->next = NULL;
	h->text = text;
	h->len = len;
	if (len)
		memcpy(h->data, data, len);
	*w->held_end = h;
	w->held_end = &h->next;
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *a, void *arg)
{
	struct ws *w = arg;
	bool text = a->opcode == WSLAY_TEXT_FRAME;

	(void)ctx;
	if (wslay_is_ctrl_frame(a->opcode) || w->closed || w->conn->state == CONN_DEAD)
		return;
	w->frames = 0;
	w->asked = true;
	if (w->paused || w->held)
		hold(w, text, a->msg, a->msg_length);
	else
		w->calls.message(w->arg, text, a->msg_length ? a->msg : (const uint8_t *)"", a->msg_length);
}

static const struct wslay_event_callbacks callbacks = {
	.recv_callback = on_recv,
	.send_callback = on_send,
	.on_frame_recv_start_callback = on_frame,
	.on_msg_recv_callback = on_message,
};

/* ---- life ------------------------------------------------------------------------------------------------------- */

int ws_accept(struct http_req *q, const struct ws_calls *calls, void *arg, struct ws **ret)
{
	const char *key = http_header(q, "sec-websocket-key"), *version = http_header(q, "sec-websocket-version");
	struct conn *c = q->conn;
	struct ws *w;
	char accept[32];

	if (!http_is_ws(q) || q->body_len || !key || !version || strcmp(version, "13") != 0 || q->res != RES_NONE ||
	    accept_key(key, accept, sizeof(accept)) < 0)
		return -EPROTO;
	w = calloc(1, sizeof(*w));
	if (!w || wslay_event_context_server_init(&w->ctx, &callbacks, w) != 0) {
		free(w);
		return -ENOMEM;
	}
	wslay_event_config_set_max_recv_msg_length(w->ctx, calls->max);
	w->conn = c;
	w->calls = *calls;
	w->arg = arg;
	w->held_end = &w->held;
	w->heard = true;
	answer(q, accept, calls->protocol);
	q->res = RES_ENDED;
	c->ws = w;
	c->started = false;
	if (c->state != CONN_DEAD)
		c->state = CONN_WS;
	*ret = w;
	conn_after(c);
	return 0;
}

/* Sends the control frames that wslay has queued, and ends the connection when wslay has finished. */
static void push(struct ws *w)
{
	if (wslay_event_send(w->ctx) != 0)
		conn_kill(w->conn);
	if (!wslay_event_want_read(w->ctx) && !wslay_event_want_write(w->ctx))
		conn_stop(w->conn);
}

size_t ws_feed(struct ws *w, const char *p, size_t n)
{
	if (!ws_wants(w))
		return 0;
	w->heard = true;
	w->in = p;
	w->in_len = n;
	if (wslay_event_recv(w->ctx) != 0 && w->conn->state == CONN_WS) {
		/* A frame so wrong that wslay has no code for it. */
		conn_write(w->conn, &(struct out_piece){ .data = "\x88\x02\x03\xea", .len = 4 }, 1);
		conn_stop(w->conn);
	}
	if (w->conn->state == CONN_WS)
		push(w);
	/* Nothing is looked at behind a close frame. */
	return w->conn->state == CONN_WS ? n - w->in_len : n;
}

bool ws_callbacks(struct ws *w)
{
	struct held *h = w->held;

	if (w->drain_due) {
		w->drain_due = false;
		if (w->calls.drain)
			w->calls.drain(w->arg);
		return true;
	}
	if (!h || w->paused)
		return false;
	w->held = h->next;
	if (!w->held)
		w->held_end = &w->held;
	w->calls.message(w->arg, h->text, h->data, h->len);
	free(h);
	return true;
}

bool ws_wants(const struct ws *w)
{
	return !w->paused && !w->held && w->conn->queued < HOLD_ABOVE;
}

void ws_queue_fell(struct ws *w)
{
	if (w->above && w->conn->queued < HTTP_HIGH / 2) {
		w->above = false;
		w->drain_due = true;
	}
}

void ws_ping(struct ws *w)
{
	if ((!w->heard && ws_wants(w)) || (w->calls.asks && !w->asked)) {
		conn_kill(w->conn);
		return;
	}
	w->heard = false;
	(void)wslay_event_queue_msg(w->ctx, &(struct wslay_event_msg){ .opcode = WSLAY_PING });
	push(w);
}

void ws_gone(struct ws *w)
{
	if (!w->closed && w->calls.gone) {
		w->closed = true;
		w->calls.gone(w->arg);
	}
	while (w->held) {
		struct held *h = w->held;

		w->held = h->next;
		free(h);
	}
	wslay_event_context_free(w->ctx);
	free(w);
}

/* ---- what the layer above does ---------------------------------------------------------------------------------- */

/* wslay never has a frame half sent, since its callback takes everything: so a whole one may be put straight behind. */
void ws_send(struct ws *w, bool text, const struct http_piece *p, size_t n)
{
	struct out_piece out[RES_PIECES_MAX + 1];
	uint8_t head[10] = { 0x80 | (text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME) };
	size_t len = 0, head_len = 2;
	struct conn *c = w->conn;

	if (w->closed || c->state != CONN_WS)
		return;
	assert(n <= RES_PIECES_MAX);
	for (size_t i = 0; i < n; i++) {
		len += p[i].len;
		out[i + 1] = (struct out_piece){ .data = p[i].data, .len = p[i].len };
	}
	if (len < 126) {
		head[1] = (uint8_t)len;
	} else {
		head_len = len < 65536 ? 4 : 10;
		head[1] = len < 65536 ? 126 : 127;
		for (size_t i = 2; i < head_len; i++)
			head[i] = (uint8_t)(len >> (8 * (head_len - 1 - i)));
	}
	out[0] = (struct out_piece){ .data = head, .len = head_len };
	conn_write(c, out, n + 1);
	if (c->queued >= HTTP_HIGH / 2)
		w->above = true;
	conn_after(c);
}

size_t ws_queued(const struct ws *w)
{
	return w->conn->queued;
}

void ws_pause(struct ws *w)
{
	w->paused = true;
	conn_after(w->conn);
}

void ws_resume(struct ws *w)
{
	if (!w->paused)
		return;
	w->paused = false;
	if (!w->conn->turn)
		conn_kick(w->conn);
}

void ws_close(struct ws *w, unsigned code, const char *reason)
{
	struct conn *c = w->conn;
	size_t len = reason ? strlen(reason) : 0;

	if (w->closed)
		return;
	if (c->state == CONN_WS) {
		(void)wslay_event_queue_close(w->ctx, (uint16_t)code, (const uint8_t *)reason, len < 123 ? len : 123);
		(void)wslay_event_send(w->ctx);
		conn_stop(c);
	}
	w->closed = true;
	if (!c->turn)
		conn_kick(c);
}
