/* Whole conversations, in pieces of every size: what is found must not depend on how it was cut. */
#include "egress/request.h"

#include "base/base.h"
#include "base/test.h"

#define HOST "Host: a.test\r\n"
#define GET "GET / HTTP/1.1\r\n" HOST "\r\n"

struct told {
	unsigned heads;
	char hosts[200];
	char passed[2000];
	size_t n;
	enum request_step last;
	const char *why;
};

/* Feeds @text as it would come in pieces of @piece bytes, held back as the contract says. */
static struct told feed(struct request *q, const char *text, size_t len, size_t piece)
{
	struct told t = { .last = REQUEST_MORE, .why = "" };
	char hold[4000];
	size_t have = 0, at = 0, n;
	struct head h;

	while (at < len || have) {
		size_t part = len - at < piece ? len - at : piece;

		memcpy(hold + have, text + at, part);
		at += part;
		have += part;
		do {
			n = 0;
			t.last = request_step(q, hold, have, &h, &n, &t.why);
			if (t.last == REQUEST_HEAD) {
				size_t m = strlen(t.hosts);

				t.heads++;
				snprintf(t.hosts + m, sizeof(t.hosts) - m, "%s ", h.host.name);
			}
			if (t.last == REQUEST_HEAD || t.last == REQUEST_BODY) {
				memcpy(t.passed + t.n, hold, n);
				t.n += n;
				have -= n;
				memmove(hold, hold + n, have);
			}
		} while (have && (t.last == REQUEST_HEAD || t.last == REQUEST_BODY));
		if (t.last == REQUEST_BAD || t.last == REQUEST_LAST || t.last == REQUEST_WAIT || (!part && have))
			break;
	}
	return t;
}

static struct told once(const char *text, size_t piece)
{
	struct request q = { 0 };

	return feed(&q, text, strlen(text), piece);
}

TEST(every_request_of_a_connection_is_found)
{
	static const char text[] = GET "POST /p HTTP/1.1\r\nHost: b.test\r\nContent-Length: 5\r\n\r\nhello" GET
				       "POST /c HTTP/1.1\r\nHost: c.test\r\nTransfer-Encoding: chunked\r\n\r\n"
				       "5\r\nGET /\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
				       "GET / HTTP/1.1\r\nHost: d.test\r\n\r\n";

	for (size_t piece = 1; piece <= sizeof(text); piece++) {
		struct told t = once(text, piece);

		CHECK_EQ(t.heads, 5);
		CHECK_STR(t.hosts, "a.test b.test a.test c.test d.test ");
		CHECK_EQ(t.n, strlen(text));
		CHECK(!memcmp(t.passed, text, t.n));
	}
}

TEST(a_body_that_looks_like_a_request_is_none_and_a_request_behind_one_is_seen)
{
	struct told t = once("POST / HTTP/1.1\r\n" HOST "Content-Length: 35\r\n\r\n"
			     "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"
			     "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
			     1000);

	CHECK_EQ(t.heads, 2);
	CHECK_STR(t.hosts, "a.test evil.test ");
}

TEST(bad_chunks_are_refused)
{
#define CHUNKED "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
	static const char *const bad[] = {
		CHUNKED "\r\n",
		CHUNKED "g\r\n",
		CHUNKED "-1\r\n",
		CHUNKED " 1\r\na\r\n",
		CHUNKED "1 \r\na\r\n",
		CHUNKED "0x1\r\na\r\n",
		CHUNKED "1\na\r\n",
		CHUNKED "1\r\nab\r\n",
		CHUNKED "1\r\na\n0\r\n\r\n",
		CHUNKED "1\ra\r\n",
		CHUNKED "1;a\nb\r\n",
		CHUNKED "1;a\rb\r\n",
		CHUNKED ";a\r\n",
		CHUNKED "10000000000000000\r\n",
		CHUNKED "0\r\nX: y\n\r\n",
		CHUNKED "0\r\n X: y\r\n\r\n",
		CHUNKED "0\r\nX: y\rz\r\n",
		CHUNKED "0\r\nX: \x01\r\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		for (size_t piece = 1; piece < 200; piece += 7) {
			struct told t = once(bad[i], piece);

			if (t.last != REQUEST_BAD)
				TEST_FAIL("%zu: %s", i, bad[i]);
		}
}

TEST(chunk_extensions_and_trailers_are_bounded)
{
	struct request q = { 0 };
	struct told t = feed(&q, CHUNKED "1;", strlen(CHUNKED "1;"), 1000);
	char x[1024];

	memset(x, 'x', sizeof(x));
	for (int i = 0; i < 10 && t.last == REQUEST_BODY; i++)
		t = feed(&q, x, sizeof(x), sizeof(x));
	CHECK_EQ(t.last, REQUEST_BAD);
	q = (struct request){ 0 };
	t = feed(&q, CHUNKED "0\r\n", strlen(CHUNKED "0\r\n"), 1000);
	for (int i = 0; i < 100 && t.last == REQUEST_BODY; i++)
		t = feed(&q, "X: y\r\n", 6, 6);
	CHECK_EQ(t.last, REQUEST_BAD);
}

TEST(content_passes_without_being_looked_at)
{
	struct request q = { 0 };
	static const char begun[] = "PUT / HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\nabc";
	struct told t = feed(&q, begun, strlen(begun), 1000);

	CHECK_EQ(t.heads, 1);
	CHECK_EQ(request_plain(&q), 97);
	CHECK(!request_between(&q));
	request_passed(&q, 96);
	CHECK_EQ(request_plain(&q), 1);
	request_passed(&q, 1);
	CHECK_EQ(request_plain(&q), 0);
	CHECK(request_between(&q));
	t = feed(&q, CHUNKED "1f\r\n", strlen(CHUNKED "1f\r\n"), 1000);
	CHECK_EQ(request_plain(&q), 31);
	request_passed(&q, 31);
	t = feed(&q, "\r\n0\r\n\r\n" GET, strlen("\r\n0\r\n\r\n" GET), 3);
	CHECK_EQ(t.heads, 1);
	CHECK(request_between(&q));
}

TEST(nothing_follows_the_last_request)
{
	struct told t = once("GET / HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n" GET, 1000);

	CHECK_EQ(t.heads, 1);
	CHECK_EQ(t.last, REQUEST_LAST);
	t = once("POST / HTTP/1.0\r\n" HOST "Content-Length: 2\r\n\r\nab" GET, 3);
	CHECK_EQ(t.heads, 1);
	CHECK_EQ(t.last, REQUEST_LAST);
}

TEST(connect_and_other_protocols_are_refused)
{
	struct told t = once("CONNECT a.test:80 HTTP/1.1\r\n" HOST "\r\n", 1000);

	CHECK_EQ(t.last, REQUEST_BAD);
	CHECK_CONTAINS(t.why, "for proxies");
	t = once(GET "\x16\x03\x01", 1000);
	CHECK_EQ(t.last, REQUEST_BAD);
	t = once(GET "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 1000);
	CHECK_EQ(t.last, REQUEST_BAD);
	CHECK_CONTAINS(t.why, "HTTP/2");
}

#define WS "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

TEST(an_upgrade_waits_for_the_server_and_is_then_free)
{
	static const char yes[] = "HTTP/1.1 101 Switching Protocols\r\n";
	struct request q = { 0 };
	struct told t = feed(&q, WS "\x81\x85", strlen(WS) + 2, 1000);

	CHECK_EQ(t.heads, 1);
	CHECK_EQ(t.n, strlen(WS));
	CHECK_EQ(t.last, REQUEST_WAIT);
	CHECK(request_waits(&q) && !request_plain(&q));
	for (size_t i = 0; i < 13; i++)
		CHECK_EQ(request_answer(&q, yes, i), LOOK_MORE);
	CHECK_EQ(request_answer(&q, yes, 13), LOOK_YES);
	CHECK(!request_waits(&q));
	CHECK_EQ(request_plain(&q), UINT64_MAX);
	t = feed(&q, "\x81\x85\0\0\0", 5, 2);
	CHECK_EQ(t.n, 5);
}

TEST(an_upgrade_that_the_server_does_not_want_leaves_http)
{
	struct request q = { 0 };
	struct told t = feed(&q, WS, strlen(WS), 1000);

	CHECK_EQ(request_answer(&q, "HTTP/1.1 10", 11), LOOK_MORE);
	CHECK_EQ(request_answer(&q, "HTTP/1.1 1010 x", 15), LOOK_NOT);
	t = feed(&q, GET, strlen(GET), 1000);
	CHECK_EQ(t.heads, 1);
	t = feed(&q, WS, strlen(WS), 1000);
	CHECK_EQ(t.last, REQUEST_BAD);
	q = (struct request){ 0 };
	t = feed(&q, WS, strlen(WS), 1000);
	CHECK_EQ(request_answer(&q, "HTTP/1.1 4", 10), LOOK_NOT);
	t = feed(&q, "\x81\x85", 2, 2);
	CHECK_EQ(t.last, REQUEST_BAD);
}

TEST(an_offer_of_h2c_does_not_arrive)
{
	struct told t = once("GET / HTTP/1.1\r\n" HOST "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
			     "HTTP2-Settings: AAMAAABk\r\n\r\n" GET,
			     1000);

	t.passed[t.n] = '\0';
	CHECK_EQ(t.heads, 2);
	CHECK_CONTAINS(t.passed, "\r\nXpgrade: h2c\r\n");
}
