/*
 * A TLS server may ask for a second ClientHello (RFC 8446, 4.1.4: HelloRetryRequest), which has a name again. So what the client says
 * after its first one waits until the server's first bytes are here. When these ask for another ClientHello, that must have the name
 * of the first. Else nothing is looked at any more.
 */
#include "base/base.h"
#include "egress/hello.h"
#include "egress/refuse.h"
#include "egress/stream.h"

#include <sys/socket.h>

#define RECORD 5U /* bytes of its head */
#define RECORD_MOST (16384U + 256U)

struct stream_retry {
	char name[NET_NAME_MAX]; /* of the first one */
};

void stream_retry_begin(struct stream *s, const struct hello *h)
{
	/* Where it was only peeked at. */
	if (s->out.len < h->len)
		relay_hold(&s->sandbox->g->relay, &s->out, &s->client, h->len);
	s->client.in = true;
	s->retry = s->out.len < h->len ? NULL : calloc(1, sizeof(*s->retry));
	if (!s->retry) {
		refuse(s, EGRESS_V_FAILED, "no memory");
		return;
	}
	memcpy(s->retry->name, h->name, sizeof(s->retry->name));
	s->looking = false;
	s->out.pass = h->len;
}

static void done(struct stream *s)
{
	free(TAKE_PTR(s->retry));
	s->out.pass = s->out.len;
	s->out.held = false;
}

bool stream_retry_server(struct stream *s)
{
	uint8_t bytes[HELLO_RETRY];
	ssize_t n;
	enum look look;

	if (!s->server.in)
		return false;
	n = recv(s->server.fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
	look = n > 0 ? hello_retry(bytes, (size_t)n) : LOOK_NOT; /* the next read gets the end, or an error */
	if (n < 0 && errno == EAGAIN)
		look = LOOK_MORE;
	if (look == LOOK_MORE && !s->server.hup) {
		s->server.in = false;
		return false;
	}
	if (look == LOOK_YES)
		s->retry_asked = true;
	else
		done(s);
	return true;
}

/* The next record of the client's. True: it may pass. */
static bool look_at_one(struct stream *s)
{
	const size_t len = s->out.len - s->out.pass;
	const uint8_t *data;
	const char *why = "";
	struct hello h;
	size_t n;

	if (len < RECORD)
		return false;
	data = (const uint8_t *)s->out.buf + s->out.off + s->out.pass;
	n = RECORD + ((size_t)data[3] << 8 | data[4]);
	/* what belongs to the first one, and is skipped: data sent early, a change of ciphers for old routers */
	if (data[0] != HELLO_RECORD) {
		if (n > RECORD + RECORD_MOST)
			refuse(s, EGRESS_V_DENIED, "invalid TLS records");
		else if (len >= n)
			s->out.pass += (uint32_t)n;
		return len >= n && s->stage == STREAM_AIMED;
	}
	switch (hello_look(data, len, &h, &why)) {
	case LOOK_MORE:
		return false;
	case LOOK_YES:
		s->ech |= h.ech;
		if (strcmp(h.name, s->retry->name))
			why = "the TLS client's second ClientHello names another host than its first";
		else
			why = stream_unsure(s);
		if (!why) {
			done(s);
			return false;
		}
		break;
	case LOOK_BAD:
		break;
	case LOOK_NOT:
		why = "the server requested a second ClientHello, but the client sent something else";
		break;
	}
	refuse(s, EGRESS_V_DENIED, why);
	return false;
}

void stream_retry(struct stream *s)
{
	ssize_t n;

	if (!s->retry_asked) {
		char c;

		/* One that has ended, or broke off, has no more to say. */
		n = s->client.in && s->out.len == s->out.pass ? recv(s->client.fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) : 1;
		if (n == 0 || (n < 0 && errno != EAGAIN))
			done(s);
		return;
	}
	do {
		while (s->retry && look_at_one(s))
			;
		if (!s->retry || s->stage != STREAM_AIMED || !s->client.in || s->out.pass)
			return; /* what may pass goes first: so no more is held than one record */
		n = relay_hold(&s->sandbox->g->relay, &s->out, &s->client, HEAD_MAX);
	} while (n > 0);
	if (n == 0)
		s->out.len = s->out.pass; /* half a record is none */
	else if (n == -ENOBUFS)
		refuse(s, EGRESS_V_DENIED, "invalid TLS records");
	else if (n != -EAGAIN)
		stream_broke(s);
}
