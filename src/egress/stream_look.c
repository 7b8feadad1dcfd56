/* Looks at what a stream begins with, and decides by that. */
#include "base/base.h"
#include "egress/hello.h"
#include "egress/refuse.h"
#include "egress/stream.h"

#include <sys/socket.h>

static_assert(HEAD_MAX >= HELLO_MAX, "one buffer holds both");

/* ---- whose is it ------------------------------------------------------------------------------------------------- */

/* Whether a request or ClientHello for @name is allowed on this stream. */
static bool name_fits(const struct stream *s, const char *name)
{
	uint16_t rule;

	if (s->name)
		return !strcmp(s->name->text, name);
	return policy_has_name(s->sandbox->policy, sandbox_outer(s->sandbox), name, s->port, &rule);
}

static bool host_fits(const struct stream *s, const struct look_to *host)
{
	if (host->port && host->port != s->port)
		return false;
	if (!host->addr.family)
		return name_fits(s, host->name);
	return !s->name && host->addr.family == s->addr.family &&
	       !memcmp(host->addr.addr, s->addr.addr, host->addr.family == 4 ? 4 : 16);
}

static void mismatch(struct stream *s, const char *what, const struct look_to *to)
{
	char why[EGRESS_TEXT_MAX], text[NET_NAME_MAX];

	if (to->addr.family)
		net_addr_text(&to->addr, text);
	else
		snprintf(text, sizeof(text), "%s", to->name);
	snprintf(why, sizeof(why), "%s names '%.120s', which is not the host of this connection", what, text);
	refuse(s, EGRESS_V_DENIED, why);
}

bool stream_charge(struct stream *s)
{
	struct sandbox *b = s->sandbox;
	uint32_t now = (uint32_t)(b->g->loop.now / LOOP_SEC), most = b->meter.budget.requests;
	uint32_t tree_most = b->tree->meter.budget.requests;
	struct name *n = s->name, *t = NULL;
	char text[NET_NAME_MAX];
	bool ok = true;

	s->requests++;
	if (!most && !tree_most)
		return true;
	if (s->name)
		snprintf(text, sizeof(text), "%s", s->name->text);
	else
		net_addr_text(&s->addr, text);
	if (most && !n && (n = names_get(&b->names, text, now)) && !n->told) {
		n->told = true; /* an address is only counted here: the owner does not store it */
		b->names.untold--;
	}
	if (tree_most)
		t = names_get(&b->tree->names, text, now);
	if (most)
		ok = n && meter_request(n, most, b->g->loop.now);
	if (ok && tree_most)
		ok = t && meter_request(t, tree_most, b->g->loop.now);
	if (!ok)
		s->requests--;
	return ok;
}

static bool charge(struct stream *s)
{
	if (stream_charge(s))
		return true;
	refuse(s, EGRESS_V_BUDGET, "too many requests per minute to this host");
	return false;
}

/* ---- the first bytes --------------------------------------------------------------------------------------------- */

static void pass(struct stream *s)
{
	s->looking = false;
	s->out.held = false;
	s->out.pass = s->out.len;
}

/*
 * A stream that a rule permits by name must contain that name. With ECH the server uses an encrypted name that egress
 * cannot read; GREASE, which only looks like ECH, cannot be distinguished from it.
 */
const char *stream_unsure(const struct stream *s)
{
	const struct policy *p = s->sandbox->policy, *outer = sandbox_outer(s->sandbox);

	if (!s->name || s->mitm || !policy_names_limited(p, outer))
		return NULL;
	if (s->nameless)
		return "TLS without a server name (SNI), to a host that is allowed by name";
	if (s->ech && !(policy_name_options(p, outer, s->name->text, s->port) & NET_RULE_ECH))
		return "TLS with encrypted_client_hello (ECH), which can hide another name: the rule has neither +ech "
		       "nor +terminate";
	return NULL;
}

static void look_tls(struct stream *s, const uint8_t *data, size_t len)
{
	const char *why = "";
	bool tls = false;
	struct hello h;

	switch (hello_look(data, len, &h, &why)) {
	case LOOK_MORE:
		return;
	case LOOK_BAD:
		refuse(s, EGRESS_V_DENIED, why);
		return;
	case LOOK_YES:
		if (h.name[0] && !name_fits(s, h.name)) {
			struct look_to to = { .port = s->port };

			memcpy(to.name, h.name, sizeof(to.name));
			mismatch(s, "the TLS client", &to);
			return;
		}
		if (stream_wants_mitm(s, true)) {
			stream_mitm(s, true);
			return;
		}
		s->nameless = !h.name[0];
		s->ech = h.ech;
		why = stream_unsure(s);
		if (why) {
			refuse(s, EGRESS_V_DENIED, why);
			return;
		}
		tls = true;
		break;
	case LOOK_NOT:
		if (stream_wants_mitm(s, true)) {
			refuse(s, EGRESS_V_DENIED,
			       "only TLS is allowed where a secret is injected or TLS is terminated");
			return;
		}
		break;
	}
	if (!charge(s))
		return;
	if (tls)
		stream_retry_begin(s, &h);
	else
		pass(s);
}

/* A protocol of letters and without lines, most likely: its bytes pass, but they are watched. */
static void watch(struct stream *s, const char *data, size_t len)
{
	struct head_late *l;

	if (stream_terminates(s)) {
		refuse(s, EGRESS_V_DENIED, "neither TLS nor HTTP, but the host's rule has +terminate");
		return;
	}
	if (!charge(s))
		return;
	l = calloc(1, sizeof(*l));
	if (!l) {
		refuse(s, EGRESS_V_FAILED, "no memory");
		return;
	}
	s->late = l;
	/* Bytes that are still in the socket are examined when they are read. */
	if (s->out.len && !head_late(l, data, len)) {
		refuse(s, EGRESS_V_DENIED, "malformed HTTP request");
		return;
	}
	s->looking = false;
	s->out.pass = s->out.len;
	if (l->done) {
		s->out.held = false;
		free(TAKE_PTR(s->late));
	}
}

void stream_late(struct stream *s)
{
	ssize_t n;

	if (s->out.len || !s->client.in || s->out.broken)
		return; /* what is there goes first */
	n = relay_hold(&s->sandbox->g->relay, &s->out, &s->client, RELAY_READ);
	if (n == 0 || n == -EAGAIN)
		return;
	if (n < 0) {
		stream_end(s, EGRESS_V_FAILED, "the sandbox closed the connection early");
		return;
	}
	if (!head_late(s->late, s->out.buf + s->out.off, s->out.len)) {
		refuse(s, EGRESS_V_DENIED, "malformed HTTP request");
		return;
	}
	s->out.pass = s->out.len;
	if (s->late->done) {
		free(s->late);
		s->late = NULL;
	}
}

static void look_http(struct stream *s, const char *data, size_t len)
{
	const char *why = "";
	struct head *h = malloc(sizeof(*h)); /* a few hundred bytes that the stack need not have */
	enum look look = LOOK_BAD;

	if (h)
		look = head_look(data, len, h, &why);
	else
		why = "no memory";
	free(h);
	switch (look) {
	case LOOK_MORE:
		if (!head_begun(data, len))
			watch(s, data, len);
		return;
	case LOOK_BAD:
		refuse(s, EGRESS_V_DENIED, why);
		return;
	case LOOK_YES:
		if (stream_wants_mitm(s, false)) {
			stream_mitm(s, false);
			return;
		}
		s->http = calloc(1, sizeof(*s->http));
		if (!s->http) {
			refuse(s, EGRESS_V_FAILED, "no memory");
			return;
		}
		s->looking = false;
		return; /* stream_requests() continues with it */
	case LOOK_NOT:
		/* Some servers accept methods of any length, so a first word without an end may be one. */
		watch(s, data, len);
	}
}

/* Whether it is, or may become, TLS with a hello that cannot be parsed. A rule by name does not permit it. */
static bool look_odd(struct stream *s, const uint8_t *data, size_t len)
{
	const char *why = "";
	enum look look;

	if (!s->name || !policy_names_limited(s->sandbox->policy, sandbox_outer(s->sandbox)))
		return false;
	look = hello_look_odd(data, len, &why);
	if (look == LOOK_BAD)
		refuse(s, EGRESS_V_DENIED, why);
	return look != LOOK_NOT;
}

/* Where TLS may have to be terminated nothing is taken from the socket before that is known. */
static void look_without_taking(struct stream *s)
{
	char *bytes = s->sandbox->g->relay.bytes;
	ssize_t n = recv(s->client.fd, bytes, HEAD_MAX, MSG_PEEK | MSG_DONTWAIT);

	s->client.in = false;
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		if (n < 0)
			stream_broke(s);
		else
			stream_end(s, EGRESS_V_OK, "");
		return;
	}
	if (bytes[0] == 0x16) {
		look_tls(s, (const uint8_t *)bytes, (size_t)n);
	} else if (!look_odd(s, (const uint8_t *)bytes, (size_t)n)) {
		look_http(s, bytes, (size_t)n);
		if (s->stage == STREAM_AIMED && !s->mitm && !s->looking)
			s->client.in = true; /* all of it is still there */
	}
	if (s->stage == STREAM_AIMED && s->a.fd >= 0 && !s->mitm && s->looking && (s->client.hup || n == HEAD_MAX))
		refuse(s, EGRESS_V_DENIED, "incomplete TLS hello or request head");
}

void stream_look(struct stream *s)
{
	const char *data;
	ssize_t n = 1;

	if (stream_wants_mitm(s, true) || stream_wants_mitm(s, false)) {
		if (s->out.len)
			refuse(s, EGRESS_V_DENIED, "unexpected bytes before the proxy's answer");
		else if (s->client.in)
			look_without_taking(s);
		return;
	}
	if (s->client.in)
		n = relay_hold(&s->sandbox->g->relay, &s->out, &s->client, HEAD_MAX);
	if (n < 0 && n != -EAGAIN && n != -ENOBUFS) {
		stream_broke(s);
		return;
	}
	if (!s->out.len) {
		if (s->out.eof)
			pass(s); /* the client closed without sending anything */
		return;
	}
	data = s->out.buf + s->out.off;
	if (data[0] == 0x16)
		look_tls(s, (const uint8_t *)data, s->out.len);
	else if (!look_odd(s, (const uint8_t *)data, s->out.len))
		look_http(s, data, s->out.len);
	if (s->stage == STREAM_AIMED && s->looking && (s->out.eof || s->out.len >= HEAD_MAX))
		refuse(s, EGRESS_V_DENIED, "incomplete TLS hello or request head");
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* False: the stream is refused. */
static bool one_head(struct stream *s, const struct head *h)
{
	if (h->connect) {
		refuse(s, EGRESS_V_DENIED, "CONNECT is only for the proxy at 198.18.0.1:3128");
		return false;
	}
	if (!host_fits(s, &h->host)) {
		mismatch(s, "the HTTP request", &h->host);
		return false;
	}
	return charge(s);
}

/* 1: more bytes can be examined; 0: it needs more bytes; -1: it waits for something else. */
static int one_step(struct stream *s)
{
	struct head *h = malloc(sizeof(*h));
	const char *why = "";
	size_t n = 0;
	int r = -1;

	if (!h) {
		stream_end(s, EGRESS_V_FAILED, "no memory");
		return -1;
	}
	s->http->at_head = request_between(&s->http->request);
	switch (request_step(&s->http->request, s->out.buf + s->out.off + s->out.pass, s->out.len - s->out.pass, h, &n,
			     &why)) {
	case REQUEST_MORE:
		r = 0;
		break;
	case REQUEST_HEAD:
		if (one_head(s, h)) {
			s->http->ahead |= s->requests > 1 && s->bytes_in == s->http->answered;
			s->http->answered = s->bytes_in;
			s->out.pass += (uint32_t)n;
			r = 1;
		}
		break;
	case REQUEST_BODY:
		s->out.pass += (uint32_t)n;
		r = 1;
		break;
	case REQUEST_WAIT:
		s->in.held = true;
		break;
	case REQUEST_LAST:
		s->out.len = s->out.pass;
		s->stopped = true;
		break;
	case REQUEST_BAD:
		refuse(s, EGRESS_V_DENIED, why);
		break;
	}
	free(h);
	return r;
}

void stream_requests(struct stream *s)
{
	while (!s->stopped) {
		int r = 0;

		if (s->out.len > s->out.pass)
			r = one_step(s);
		else if (s->out.len || request_plain(&s->http->request))
			return; /* written, or moved, without looking */
		if (r > 0)
			continue;
		/* Permitted bytes are sent before the next head is read, so at most one head is held. */
		if (r < 0 || s->out.pass || !s->client.in)
			return;
		r = (int)relay_hold(&s->sandbox->g->relay, &s->out, &s->client, HEAD_MAX);
		if (r == 0)
			s->out.len = s->out.pass; /* half a request is none */
		if (r == 0 || r == -EAGAIN)
			return;
		if (r < 0) {
			stream_broke(s);
			return;
		}
	}
}

void stream_answer(struct stream *s)
{
	struct stream_http *h = s->http;
	uint32_t before = s->in.len, n;
	ssize_t r;

	if (!s->server.in || s->in.len)
		return;
	r = relay_hold(&s->sandbox->g->relay, &s->in, &s->server, RELAY_READ);
	if (r < 0 && r != -EAGAIN) {
		stream_end(s, EGRESS_V_FAILED, "the server closed the connection early");
		return;
	}
	n = s->in.len - before;
	if (n > sizeof(h->first) - h->first_len)
		n = (uint32_t)(sizeof(h->first) - h->first_len);
	if (n)
		memcpy(h->first + h->first_len, s->in.buf + s->in.off + before, n);
	h->first_len = (uint8_t)(h->first_len + n);
	if (request_answer(&h->request, h->first, h->first_len) != LOOK_MORE)
		h->first_len = 0;
	s->in.pass = s->in.len;
}
