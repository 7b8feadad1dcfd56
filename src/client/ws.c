#include "client/ws.h"
#include "base/base.h"
#include "base/clock.h"
#include "client/base64.h"
#include "config.h"

#include <llhttp.h>
#include <openssl/evp.h>
#include <poll.h>
#include <strings.h>
#include <sys/random.h>
#include <wslay/wslay.h>

#define HANDSHAKE_MS 10000
#define HEAD_MAX (64 * KIB)

struct ws {
	struct conn *conn;
	CURL *easy;
	int fd;
	wslay_event_context_ptr wslay;
	struct ws_calls calls;
	struct buf early; /* frames that came in one piece with the handshake's answer */
	bool blocked_write, closed;
	int broken; /* 0, or what went wrong */
	char detail[CURL_ERROR_SIZE];
};

void ws_free(struct ws *w)
{
	if (!w)
		return;
	if (w->wslay)
		wslay_event_context_free(w->wslay);
	curl_easy_cleanup(w->easy);
	buf_done(&w->early);
	free(w);
}

/* ---- handshake ---- */

struct answer {
	llhttp_t parser;
	struct buf field, value, body;
	char accept[64]; /* what Sec-WebSocket-Accept said */
	bool upgrade, done;
};

static int on_field(llhttp_t *p, const char *at, size_t len)
{
	struct answer *a = p->data;

	return buf_add(&a->field, at, len);
}

static int on_value(llhttp_t *p, const char *at, size_t len)
{
	struct answer *a = p->data;

	return buf_add(&a->value, at, len);
}

static int on_header_complete(llhttp_t *p)
{
	struct answer *a = p->data;
	const char *value = buf_str(&a->value);

	if (!strcasecmp(buf_str(&a->field), "sec-websocket-accept"))
		snprintf(a->accept, sizeof(a->accept), "%s", value);
	if (!strcasecmp(buf_str(&a->field), "upgrade"))
		a->upgrade = !strcasecmp(value, "websocket");
	buf_clear(&a->field);
	buf_clear(&a->value);
	return 0;
}

static int on_body(llhttp_t *p, const char *at, size_t len)
{
	struct answer *a = p->data;

	return buf_add(&a->body, at, len);
}

static int on_complete(llhttp_t *p)
{
	struct answer *a = p->data;

	a->done = true;
	return HPE_PAUSED;
}

static int wait_for(const struct ws *w, short events, uint64_t end_ns)
{
	uint64_t now = clock_mono_ns();
	struct pollfd p = { .fd = w->fd, .events = events };
	int r;

	if (now >= end_ns)
		return -ETIMEDOUT;
	r = poll(&p, 1, (int)((end_ns - now) / 1000000) + 1);
	return r < 0 && errno != EINTR ? -errno : r == 0 ? -ETIMEDOUT : 0;
}

static int send_all(struct ws *w, const char *data, size_t len, uint64_t end_ns)
{
	while (len) {
		size_t n = 0;
		CURLcode code = curl_easy_send(w->easy, data, len, &n);
		int r;

		if (code != CURLE_OK && code != CURLE_AGAIN)
			return -ECONNRESET;
		data += n;
		len -= n;
		r = code == CURLE_AGAIN ? wait_for(w, POLLOUT, end_ns) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/* Feeds the parser until it has the whole answer; what follows is kept as the first frames. */
static int read_answer(struct ws *w, struct answer *a, uint64_t end_ns)
{
	size_t total = 0;

	while (!a->done) {
		enum llhttp_errno parsed;
		char data[4096];
		size_t n = 0;
		CURLcode code = curl_easy_recv(w->easy, data, sizeof(data), &n);

		if (code == CURLE_AGAIN) {
			int r = wait_for(w, POLLIN, end_ns);

			if (r < 0)
				return r;
			continue;
		}
		if (code != CURLE_OK || (!n && llhttp_finish(&a->parser) != HPE_OK))
			return -ECONNRESET;
		total += n;
		if (!n || total > HEAD_MAX)
			return n ? -E2BIG : -ECONNRESET;
		parsed = llhttp_execute(&a->parser, data, n);
		if (parsed == HPE_PAUSED_UPGRADE || (parsed == HPE_PAUSED && a->done)) {
			const char *pos = llhttp_get_error_pos(&a->parser);

			if (a->parser.upgrade && pos && pos < data + n &&
			    buf_add(&w->early, pos, (size_t)(data + n - pos)) < 0)
				return -E2BIG;
			return 0;
		}
		if (parsed != HPE_OK)
			return -EPROTO;
	}
	return 0;
}

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
	return base64_encode(digest, len, ret, size);
}

static int check_answer(const struct answer *a, const char *key, struct err *e)
{
	char want[64];
	int r;

	if (a->parser.status_code != 101)
		return conn_answer_error(buf_str(&a->body), a->body.len, a->parser.status_code, e);
	r = accept_for(key, want, sizeof(want));
	if (r < 0 || !a->upgrade || strcmp(a->accept, want))
		return err_set(e, ERR_INTERNAL, -EPROTO, "what answers there speaks no WebSocket");
	return 0;
}

static int make_request(const struct conn *c, const char *path, const char *key, struct buf *b)
{
	int r = buf_addf(b,
			 "GET %s%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
			 "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nUser-Agent: cloche/" CLOCHE_VERSION
			 "\r\n",
			 conn_prefix(c), path, conn_host(c), key);

	if (r == 0 && conn_token(c))
		r = buf_addf(b, "Authorization: Bearer %s\r\n", conn_token(c));
	return r < 0 ? r : buf_adds(b, "\r\n");
}

static int handshake(struct ws *w, const char *path, struct err *e)
{
	uint64_t end_ns = clock_mono_ns() + HANDSHAKE_MS * 1000000ULL;
	AUTO(buf_done) struct buf request = BUF_INIT(HEAD_MAX);
	struct answer a = { .field = BUF_INIT(HEAD_MAX), .value = BUF_INIT(HEAD_MAX), .body = BUF_INIT(HEAD_MAX) };
	llhttp_settings_t settings;
	unsigned char random[16];
	char key[32];
	int r;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return err_set(e, ERR_INTERNAL, -EIO, "no random numbers");
	r = base64_encode(random, sizeof(random), key, sizeof(key));
	if (r == 0)
		r = make_request(w->conn, path, key, &request);
	if (r == 0)
		r = send_all(w, request.data, request.len, end_ns);
	llhttp_settings_init(&settings);
	settings.on_header_field = on_field;
	settings.on_header_value = on_value;
	settings.on_header_value_complete = on_header_complete;
	settings.on_body = on_body;
	settings.on_message_complete = on_complete;
	llhttp_init(&a.parser, HTTP_RESPONSE, &settings);
	a.parser.data = &a;
	if (r == 0)
		r = read_answer(w, &a, end_ns);
	if (r < 0)
		err_sys(e, ERR_LOST, r, "open a WebSocket to the daemon");
	else
		r = check_answer(&a, key, e);
	buf_done(&a.field);
	buf_done(&a.value);
	buf_done(&a.body);
	return r;
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
	if (w->early.len) {
		n = len < w->early.len ? len : w->early.len;
		memcpy(buf, w->early.data, n);
		buf_drop(&w->early, n);
		return (ssize_t)n;
	}
	code = curl_easy_recv(w->easy, buf, len, &n);
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
	CURLcode code = curl_easy_send(w->easy, data, len, &n);

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

static int connect_to(struct ws *w, const char *path, struct err *e)
{
	curl_socket_t fd = CURL_SOCKET_BAD;
	CURLcode code;

	w->easy = conn_easy(w->conn, path, e);
	if (!w->easy)
		return -E2BIG;
	curl_easy_setopt(w->easy, CURLOPT_CONNECT_ONLY, 1L);
	curl_easy_setopt(w->easy, CURLOPT_ERRORBUFFER, w->detail);
	code = curl_easy_perform(w->easy);
	if (code == CURLE_OK)
		code = curl_easy_getinfo(w->easy, CURLINFO_ACTIVESOCKET, &fd);
	if (code != CURLE_OK || fd == CURL_SOCKET_BAD)
		return conn_curl_error(w->conn, code, w->detail, e);
	w->fd = fd;
	return 0;
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
	w->conn = c;
	w->calls = *calls;
	w->early.max = HEAD_MAX;
	r = connect_to(w, path, e);
	if (r == 0)
		r = handshake(w, path, e);
	if (r < 0)
		return r;
	if (wslay_event_context_client_init(&w->wslay, &callbacks, w) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	wslay_event_config_set_max_recv_msg_length(w->wslay, WS_MESSAGE_MAX);
	*ret = TAKE_PTR(w);
	return 0;
}

int ws_fd(const struct ws *w)
{
	return w->fd;
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
		return err_set(e, ERR_LOST, -ECONNRESET, "the connection to the daemon broke");
	/* wslay wants neither when it has told the other side of a broken rule. */
	if (!wslay_event_want_read(w->wslay) && !wslay_event_want_write(w->wslay))
		return err_set(e, ERR_LOST, -EPROTO, "the daemon broke a rule of WebSocket");
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
