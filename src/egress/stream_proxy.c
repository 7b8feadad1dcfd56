/* Clients of a proxy name their destination: 198.18.0.1:3128 speaks HTTP, :1080 SOCKS5. */
#include "base/base.h"
#include "egress/proxy_http.h"
#include "egress/refuse.h"
#include "egress/socks.h"
#include "egress/stream.h"

#include <sys/socket.h>

static void drop(struct relay_half *h, size_t n)
{
	h->off += (uint32_t)n;
	h->len -= (uint32_t)n;
	if (h->len)
		return;
	free(h->buf);
	h->buf = NULL;
	h->off = 0;
}

/* False: the client is gone, or does not read. */
static bool say(struct stream *s, const void *data, size_t len)
{
	if (send(s->client.fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len)
		return true;
	stream_broke(s);
	return false;
}

static void aim_at(struct stream *s, const struct look_to *to)
{
	struct sandbox *b = s->sandbox;
	int index;

	s->addr = to->addr;
	s->port = to->port;
	if (!to->addr.family) {
		s->name = names_get(&b->names, to->name, (uint32_t)(b->g->loop.now / LOOP_SEC));
		if (!s->name) {
			refuse(s, EGRESS_V_BUDGET, "too many names are in use");
			return;
		}
	} else if ((index = names_index(&to->addr)) != -1) {
		/* Some programs resolve names themselves and ask the proxy for the synthetic address. */
		s->name = index >= 0 ? names_at(&b->names, (uint32_t)index) : NULL;
		if (!s->name) {
			refuse(s, EGRESS_V_DENIED, "this address is not the answer to a DNS query of the sandbox");
			return;
		}
	}
	if (s->name)
		s->name->streams++;
	stream_aim(s);
}

/* An absolute request becomes one as servers know them; the connection is for this one only. */
static bool rewrite(struct stream *s, const struct head *h)
{
	AUTO(buf_done) struct buf b = BUF_INIT(2 * HEAD_MAX);
	const char *data = s->out.buf + s->out.off;

	s->http = calloc(1, sizeof(*s->http));
	if (!s->http || proxy_http_rewrite(data, h, &b) < 0 || buf_add(&b, data + h->len, s->out.len - h->len) < 0)
		return false;
	free(s->out.buf);
	s->out.buf = NULL;
	s->out.off = s->out.len = 0;
	return relay_put(&s->out, b.data, b.len) == 0;
}

static void ask_http(struct stream *s)
{
	AUTO_FREE struct head *h = malloc(sizeof(*h));
	const char *why = "no memory";
	enum look look = h ? proxy_http_look(s->out.buf + s->out.off, s->out.len, h, &why) : LOOK_BAD;
	struct look_to to;

	if (look == LOOK_MORE)
		return;
	if (look != LOOK_YES) {
		refuse(s, EGRESS_V_DENIED, look == LOOK_NOT ? "not an HTTP request, at the HTTP proxy" : why);
		return;
	}
	to = h->host;
	if (h->connect) {
		s->asked = STREAM_CONNECT;
		drop(&s->out, h->len);
	} else {
		s->asked = STREAM_ABSOLUTE;
		if (!rewrite(s, h)) {
			refuse(s, EGRESS_V_FAILED, "the request is too large");
			return;
		}
	}
	aim_at(s, &to);
	if (s->asked == STREAM_ABSOLUTE && s->stage == STREAM_AIMED && s->a.fd >= 0 && stream_wants_mitm(s, false)) {
		free(TAKE_PTR(s->http));
		stream_mitm(s, false);
	}
}

static void ask_socks(struct stream *s)
{
	const uint8_t *data = (const uint8_t *)s->out.buf + s->out.off;
	const char *why = "not a SOCKS request, at the SOCKS proxy";
	uint8_t code = SOCKS_FAILED, reply[SOCKS_REPLY];
	struct look_to to = { 0 };
	size_t n = 0;
	enum look look;

	if (s->stage == STREAM_SOCKS_GREET) {
		look = socks_greet(data, s->out.len, &n, &why);
		if (look == LOOK_MORE)
			return;
		if (look != LOOK_YES) {
			if (look == LOOK_BAD && !say(s, "\x05\xff", 2))
				return;
			refuse(s, EGRESS_V_DENIED, why);
			return;
		}
		if (!say(s, "\x05\x00", 2))
			return;
		drop(&s->out, n);
		s->stage = STREAM_SOCKS_ASK;
		if (!s->out.len)
			return;
		data = (const uint8_t *)s->out.buf + s->out.off;
	}
	look = socks_ask(data, s->out.len, &n, &to, &code, &why);
	if (look == LOOK_MORE)
		return;
	if (look != LOOK_YES) {
		socks_reply(code, reply);
		if (say(s, reply, sizeof(reply)))
			refuse(s, EGRESS_V_DENIED, why);
		return;
	}
	drop(&s->out, n);
	s->asked = STREAM_SOCKS;
	aim_at(s, &to);
}

void stream_ask(struct stream *s)
{
	ssize_t n = relay_hold(&s->sandbox->g->relay, &s->out, &s->client, HEAD_MAX);

	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		stream_broke(s);
		return;
	}
	if (s->stage == STREAM_HTTP_PROXY)
		ask_http(s);
	else
		ask_socks(s);
}

bool stream_granted(struct stream *s)
{
	static const char yes[] = "HTTP/1.1 200 Connection established\r\n\r\n";
	uint8_t reply[SOCKS_REPLY];

	if (s->asked == STREAM_CONNECT)
		return say(s, yes, sizeof(yes) - 1);
	if (s->asked != STREAM_SOCKS)
		return true;
	socks_reply(SOCKS_OK, reply);
	return say(s, reply, sizeof(reply));
}
