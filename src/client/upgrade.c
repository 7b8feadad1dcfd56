/* Asks for another protocol on a connection. */
#include "client/upgrade.h"
#include "base/base.h"
#include "base/clock.h"
#include "config.h"

#include <llhttp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>

#define HANDSHAKE_MS 15000 /* the daemon itself may wait for 10 s */
#define HEAD_MAX (64 * KIB)

void upgrade_done(struct upgrade *u)
{
	curl_easy_cleanup(TAKE_PTR(u->easy));
	buf_done(&u->early);
}

struct answer {
	llhttp_t parser;
	struct buf field, value, body;
	char accept[64]; /* what Sec-WebSocket-Accept said */
	char protocol[32]; /* what Upgrade said */
	bool done;
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
		snprintf(a->protocol, sizeof(a->protocol), "%s", value);
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

static int wait_for(const struct upgrade *u, short events, uint64_t end_ns)
{
	uint64_t now = clock_mono_ns();
	struct pollfd p = { .fd = u->fd, .events = events };
	int r;

	if (now >= end_ns)
		return -ETIMEDOUT;
	r = poll(&p, 1, (int)((end_ns - now) / 1000000) + 1);
	return r < 0 && errno != EINTR ? -errno : r == 0 ? -ETIMEDOUT : 0;
}

static int send_all(struct upgrade *u, const char *data, size_t len, uint64_t end_ns)
{
	while (len) {
		size_t n = 0;
		CURLcode code = curl_easy_send(u->easy, data, len, &n);
		int r;

		if (code != CURLE_OK && code != CURLE_AGAIN)
			return -ECONNRESET;
		data += n;
		len -= n;
		r = code == CURLE_AGAIN ? wait_for(u, POLLOUT, end_ns) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/* Feeds the parser until it has the whole answer; what follows is the new protocol's. */
static int read_answer(struct upgrade *u, struct answer *a, uint64_t end_ns)
{
	size_t total = 0;

	while (!a->done) {
		enum llhttp_errno parsed;
		char data[4096];
		size_t n = 0;
		CURLcode code = curl_easy_recv(u->easy, data, sizeof(data), &n);

		if (code == CURLE_AGAIN) {
			int r = wait_for(u, POLLIN, end_ns);

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
			    buf_add(&u->early, pos, (size_t)(data + n - pos)) < 0)
				return -E2BIG;
			return 0;
		}
		if (parsed != HPE_OK)
			return -EPROTO;
	}
	return 0;
}

static int connect_to(struct upgrade *u, struct conn *c, const char *path, struct err *e)
{
	char detail[CURL_ERROR_SIZE] = "";
	curl_socket_t fd = CURL_SOCKET_BAD;
	CURLcode code;

	u->easy = conn_easy(c, path, e);
	if (!u->easy)
		return -E2BIG;
	curl_easy_setopt(u->easy, CURLOPT_CONNECT_ONLY, 1L);
	curl_easy_setopt(u->easy, CURLOPT_ERRORBUFFER, detail);
	code = curl_easy_perform(u->easy);
	curl_easy_setopt(u->easy, CURLOPT_ERRORBUFFER, NULL);
	if (code == CURLE_OK)
		code = curl_easy_getinfo(u->easy, CURLINFO_ACTIVESOCKET, &fd);
	if (code != CURLE_OK || fd == CURL_SOCKET_BAD)
		return conn_curl_error(c, code, detail, e);
	u->fd = fd;
	return 0;
}

static int make_request(const struct conn *c, const struct upgrade_spec *s, struct buf *b)
{
	int r = buf_addf(b,
			 "GET %s%s HTTP/1.1\r\nHost: %s\r\nUpgrade: %s\r\nConnection: Upgrade\r\n"
			 "User-Agent: cloche/" CLOCHE_VERSION "\r\n%s",
			 conn_prefix(c), s->path, conn_host(c), s->protocol, s->headers ? s->headers : "");

	if (r == 0 && conn_token(c))
		r = buf_addf(b, "Authorization: Bearer %s\r\n", conn_token(c));
	return r < 0 ? r : buf_adds(b, "\r\n");
}

static int handshake(struct upgrade *u, const struct conn *c, const struct upgrade_spec *s, struct err *e)
{
	uint64_t end_ns = clock_mono_ns() + HANDSHAKE_MS * 1000000ULL;
	AUTO(buf_done) struct buf request = BUF_INIT(HEAD_MAX);
	struct answer a = { .field = BUF_INIT(HEAD_MAX), .value = BUF_INIT(HEAD_MAX), .body = BUF_INIT(HEAD_MAX) };
	llhttp_settings_t settings;
	int r = make_request(c, s, &request);

	if (r == 0)
		r = send_all(u, request.data, request.len, end_ns);
	llhttp_settings_init(&settings);
	settings.on_header_field = on_field;
	settings.on_header_value = on_value;
	settings.on_header_value_complete = on_header_complete;
	settings.on_body = on_body;
	settings.on_message_complete = on_complete;
	llhttp_init(&a.parser, HTTP_RESPONSE, &settings);
	a.parser.data = &a;
	if (r == 0)
		r = read_answer(u, &a, end_ns);
	if (r < 0)
		err_sys(e, ERR_LOST, r, "open a connection through the daemon");
	else if (a.parser.status_code != 101)
		r = conn_answer_error(buf_str(&a.body), a.body.len, a.parser.status_code, e);
	else if (strcasecmp(a.protocol, s->protocol) != 0)
		r = err_set(e, ERR_INTERNAL, -EPROTO, "the server does not speak %s", s->protocol);
	memcpy(u->accept, a.accept, sizeof(u->accept));
	buf_done(&a.field);
	buf_done(&a.value);
	buf_done(&a.body);
	return r;
}

int upgrade_open(struct conn *c, const struct upgrade_spec *s, struct upgrade *ret, struct err *e)
{
	int r;

	*ret = (struct upgrade){ .fd = -1, .early = BUF_INIT(HEAD_MAX) };
	r = connect_to(ret, c, s->path, e);
	if (r == 0)
		r = handshake(ret, c, s, e);
	if (r < 0)
		upgrade_done(ret);
	return r;
}

int upgrade_shut(struct upgrade *u)
{
	struct curl_tlssessioninfo *tls = NULL;

	/* Below TLS an end would look like an attack; what is said there is that nothing more comes. */
	if (curl_easy_getinfo(u->easy, CURLINFO_TLS_SSL_PTR, &tls) == CURLE_OK && tls && tls->internals) {
		if (tls->backend != CURLSSLBACKEND_OPENSSL)
			return -EOPNOTSUPP;
		return SSL_shutdown(tls->internals) < 0 ? -EPIPE : 0;
	}
	return shutdown(u->fd, SHUT_WR) < 0 ? -errno : 0;
}
