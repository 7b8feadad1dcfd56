/* The client's side of a WebSocket. */
#include "client/ws.h"
#include "base/base.h"
#include "base/base64.h"
#include "client/upgrade.h"

#include <openssl/evp.h>
#include <poll.h>
#include <sys/random.h>
#include <wslay/wslay.h>

struct ws {
	struct upgrade up;
	wslay_event_context_ptr wslay;
	struct ws_calls calls;
	bool blocked_write, closed;
	int broken; /* 0, or what went wrong */
};

void ws_free(struct ws *w)
{
	if (!w)
		return;
	if (w->wslay)
		wslay_event_context_free(w->wslay);
	upgrade_done(&w->up);
	free(w);
}

/* ---- handshake ---- */

/* What the server must answer to our key. */
static int accept_for(const char *key, char *ret, size_t size)
{
	static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned len;
	char text[128];

	snprintf(text, sizeof(text), "%s%s", key, guid);
	if (!EVP_Digest(text, strlen(text), digest, &len, EVP_sha1(), NULL))
		return -EIO;
	if (size < BASE64_SIZE(len))
		return -ENOSPC;
	base64_encode(digest, len, ret);
	return 0;
}

static int handshake(struct ws *w, struct conn *c, const char *path, struct err *e)
{
	unsigned char random[16];
	char key[32], headers[128], want[64];
	int r;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return err_set(e, ERR_INTERNAL, -EIO, "no random numbers");
	base64_encode(random, sizeof(random), key);
	snprintf(headers, sizeof(headers), "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n", key);
	r = upgrade_open(c, &(struct upgrade_spec){ path, "websocket", headers }, &w->up, e);
	if (r < 0)
		return r;
	r = accept_for(key, want, sizeof(want));
	if (r < 0 || strcmp(w->up.accept, want))
		return err_set(e, ERR_INTERNAL, -EPROTO, "the server does not speak WebSocket");
	return 0;
}

/* ---- frames ---- */

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags, void *arg)
{
	struct ws *w = arg;
	CURLcode code;
	size_t n = 0;

	(void)flags;
	if (w->calls.full(w->calls.arg)) {
		wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	if (w->up.early.len) {
		n = len < w->up.early.len ? len : w->up.early.len;
		memcpy(buf, w->up.early.data, n);
		buf_drop(&w->up.early, n);
		return (ssize_t)n;
	}
	code = curl_easy_recv(w->up.easy, buf, len, &n);
	if (code == CURLE_OK && n)
		return (ssize_t)n;
	if (code != CURLE_AGAIN)
		w->broken = -ECONNRESET;
	wslay_event_set_error(ctx, code == CURLE_AGAIN ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags, void *arg)
{
	struct ws *w = arg;
	size_t n = 0;
	CURLcode code = curl_easy_send(w->up.easy, data, len, &n);

	(void)flags;
	if (code == CURLE_OK && n)
		return (ssize_t)n;
	if (code != CURLE_AGAIN && code != CURLE_OK)
		w->broken = -ECONNRESET;
	wslay_event_set_error(ctx, w->broken ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
	return -1;
}

static int on_mask(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, void *arg)
{
	(void)ctx;
	(void)arg;
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : -1;
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m, void *arg)
{
	struct ws *w = arg;

	(void)ctx;
	if (m->opcode == WSLAY_BINARY_FRAME)
		w->calls.binary(w->calls.arg, m->msg, m->msg_length);
	else if (m->opcode == WSLAY_TEXT_FRAME)
		w->calls.text(w->calls.arg, (const char *)m->msg, m->msg_length);
	else if (m->opcode == WSLAY_CONNECTION_CLOSE)
		w->closed = true;
}

int ws_open(struct conn *c, const char *path, const struct ws_calls *calls, struct ws **ret, struct err *e)
{
	static const struct wslay_event_callbacks callbacks = {
		.recv_callback = on_recv,
		.send_callback = on_send,
		.genmask_callback = on_mask,
		.on_msg_recv_callback = on_message,
	};
	AUTO(ws_free) struct ws *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	w->calls = *calls;
	r = handshake(w, c, path, e);
	if (r < 0)
		return r;
	if (wslay_event_context_client_init(&w->wslay, &callbacks, w) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	wslay_event_config_set_max_recv_msg_length(w->wslay, calls->max ? calls->max : WS_MESSAGE_MAX);
	*ret = TAKE_PTR(w);
	return 0;
}

int ws_fd(const struct ws *w)
{
	return w->up.fd;
}

short ws_events(const struct ws *w)
{
	short events = 0;

	if (!w->calls.full(w->calls.arg))
		events |= POLLIN;
	if (wslay_event_want_write(w->wslay))
		events |= POLLOUT;
	return events;
}

int ws_turn(struct ws *w, struct err *e)
{
	int r = 0;

	if (wslay_event_want_read(w->wslay))
		r = wslay_event_recv(w->wslay);
	if (r == 0 && wslay_event_want_write(w->wslay))
		r = wslay_event_send(w->wslay);
	if (w->closed)
		return 0;
	if (r < 0 || w->broken)
		return err_set(e, ERR_LOST, -ECONNRESET, "the connection to the daemon was lost");
	/* wslay has nothing to read or write after it has closed the connection for a protocol error. */
	if (!wslay_event_want_read(w->wslay) && !wslay_event_want_write(w->wslay))
		return err_set(e, ERR_LOST, -EPROTO, "protocol error from the daemon (WebSocket)");
	return 1;
}

static int queue(struct ws *w, uint8_t opcode, const void *data, size_t len)
{
	const struct wslay_event_msg m = { .opcode = opcode, .msg = data, .msg_length = len };

	return wslay_event_queue_msg(w->wslay, &m) < 0 ? -ENOMEM : 0;
}

int ws_binary(struct ws *w, const void *head, size_t head_len, const void *data, size_t len)
{
	AUTO(buf_done) struct buf b = BUF_INIT(WS_QUEUE_MAX);
	int r = buf_add(&b, head, head_len);

	if (r == 0)
		r = buf_add(&b, data, len);
	return r < 0 ? r : queue(w, WSLAY_BINARY_FRAME, b.data, b.len);
}

int ws_text(struct ws *w, const char *text)
{
	return queue(w, WSLAY_TEXT_FRAME, text, strlen(text));
}

size_t ws_queued(const struct ws *w)
{
	return wslay_event_get_queued_msg_length(w->wslay);
}
