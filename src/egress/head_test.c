#include "egress/head.h"

#include "base/base.h"
#include "base/test.h"

static struct head h;
static const char *why;

static enum look look(const char *text)
{
	why = "";
	memset(&h, 0, sizeof(h));
	return head_look(text, strlen(text), &h, &why);
}

static const char *refused(const char *text)
{
	return look(text) == LOOK_BAD ? why : "not refused";
}

#define GET "GET / HTTP/1.1\r\n"
#define HOST "Host: a.test\r\n"

TEST(a_request_is_read)
{
	static const char text[] = "POST /a?b HTTP/1.1\r\nHost: A.test:8080\r\nContent-Length: 12\r\nX: y \r\n\r\nbody";

	CHECK_EQ(look(text), LOOK_YES);
	CHECK_EQ(h.len, strlen(text) - 4);
	CHECK_EQ(h.method_len, 4);
	CHECK_EQ(h.target, 5);
	CHECK_EQ(h.target_len, 4);
	CHECK_STR(h.host.name, "a.test");
	CHECK_EQ(h.host.port, 8080);
	CHECK_EQ(h.body, HEAD_LENGTH);
	CHECK_EQ(h.length, 12);
	CHECK(h.keep && !h.absolute && !h.connect && !h.v10 && !h.upgrade);
	for (size_t i = 0; i < h.len; i++)
		CHECK_EQ(head_look(text, i, &h, &why), LOOK_MORE);
}

TEST(what_ends_a_connection_is_known)
{
	CHECK_EQ(look(GET HOST "Connection: close\r\n\r\n"), LOOK_YES);
	CHECK(!h.keep);
	CHECK_EQ(look("GET / HTTP/1.0\r\n" HOST "\r\n"), LOOK_YES);
	CHECK(!h.keep && h.v10);
	CHECK_EQ(look("GET / HTTP/1.0\r\n" HOST "Connection: keep-alive\r\n\r\n"), LOOK_YES);
	CHECK(h.keep);
}

TEST(hosts_can_be_addresses)
{
	CHECK_EQ(look(GET "Host: 10.1.2.3:80\r\n\r\n"), LOOK_YES);
	CHECK_STR(h.host.name, "");
	CHECK_EQ(h.host.addr.family, 4);
	CHECK_EQ(look(GET "Host: [::ffff:10.1.2.3]\r\n\r\n"), LOOK_YES);
	CHECK_EQ(h.host.addr.family, 4);
	CHECK_EQ(look(GET "Host: [fd00::1]:8080\r\n\r\n"), LOOK_YES);
	CHECK_EQ(h.host.addr.family, 6);
	CHECK_EQ(h.host.port, 8080);
}

TEST(a_host_must_be_one_and_strict)
{
	static const char *const bad[] = {
		"a.test.",    "user@a.test",   "a.test#b",	"a.test/b",	"2130706433",
		"0x7f000001", "127.1",	       "0177.0.0.1",	"a b",		"",
		"a.test:",    "a.test:080",    "a.test:0",	"a.test:65536", "[::1",
		"::1",	      "[127.0.0.1]",   "a.test,b.test", "*.a.test",	"a.test:80:80",
		"[::1]80",    "\xc3\xb6.test", "[fe80::1%1]"
	};
	char text[200];

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(text, sizeof(text), GET "Host: %s\r\n\r\n", bad[i]);
		CHECK_CONTAINS(refused(text), "host name");
	}
	CHECK_CONTAINS(refused(GET "\r\n"), "one Host");
	CHECK_CONTAINS(refused(GET HOST HOST "\r\n"), "one Host");
	CHECK_CONTAINS(refused(GET HOST "hOsT: b.test\r\n\r\n"), "one Host");
	CHECK_CONTAINS(refused("GET / HTTP/1.0\r\n\r\n"), "one Host");
}

TEST(an_absolute_target_agrees_with_the_host)
{
	CHECK_EQ(look("GET http://A.test/x HTTP/1.1\r\n" HOST "\r\n"), LOOK_YES);
	CHECK(h.absolute);
	CHECK_EQ(h.path, strlen("GET http://A.test"));
	CHECK_EQ(look("GET http://a.test:80 HTTP/1.1\r\n" HOST "\r\n"), LOOK_YES);
	CHECK_EQ(h.path, h.target + h.target_len);
	CHECK_CONTAINS(refused("GET http://b.test/x HTTP/1.1\r\n" HOST "\r\n"), "differs");
	CHECK_CONTAINS(refused("GET http://a.test:81/x HTTP/1.1\r\n" HOST "\r\n"), "differs");
	CHECK_CONTAINS(refused("GET http://a.test@b.test/x HTTP/1.1\r\n" HOST "\r\n"), "host name");
	CHECK_CONTAINS(refused("GET http://a.test\\@b.test/x HTTP/1.1\r\n" HOST "\r\n"), "host name");
	CHECK_CONTAINS(refused("GET https://a.test/x HTTP/1.1\r\n" HOST "\r\n"), "neither");
	CHECK_CONTAINS(refused("GET //b.test@/#x HTTP/1.1\r\n" HOST "\r\n"), "is invalid");
	CHECK_CONTAINS(refused("GET x HTTP/1.1\r\n" HOST "\r\n"), "neither");
	CHECK_EQ(look("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"), LOOK_YES);
	CHECK_CONTAINS(refused("GET * HTTP/1.1\r\n" HOST "\r\n"), "neither");
}

TEST(loose_spellings_are_refused)
{
	static const char *const bad[] = {
		"GET / HTTP/1.1\nHost: a.test\n\n",
		"GET / HTTP/1.1\r\nHost: a.test\n\r\n",
		GET HOST "X: a\rb\r\n\r\n",
		GET HOST "X: a\x01\r\n\r\n",
		GET HOST "X: a\r\n b\r\n\r\n",
		GET " Host: b.test\r\n" HOST "\r\n",
		GET HOST "X : a\r\n\r\n",
		GET HOST "X\r\n\r\n",
		GET HOST ": a\r\n\r\n",
		GET HOST "X(: a\r\n\r\n",
		"GET  / HTTP/1.1\r\n" HOST "\r\n",
		"GET\t/ HTTP/1.1\r\n" HOST "\r\n",
		"GET / HTTP/1.1 \r\n" HOST "\r\n",
		"GET / HTTP/2.0\r\n" HOST "\r\n",
		"GET / HTTP/1.2\r\n" HOST "\r\n",
		"GET / http/1.1\r\n" HOST "\r\n",
		"GET /\r\n",
		"GET /\n",
		"get / HTTP/1.1\r\n" HOST "\r\n",
		"FOO / HTTP/1.1\r\n" HOST "\r\n",
		"\r\nGET / HTTP/1.1\r\n" HOST "\r\n",
		" GET / HTTP/1.1\r\n" HOST "\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (look(bad[i]) != LOOK_BAD)
			TEST_FAIL("%zu: %s", i, bad[i]);
	CHECK_EQ(head_look(GET HOST "X: a\0b\r\n\r\n", strlen(GET HOST) + 10, &h, &why), LOOK_BAD);
}

TEST(a_body_s_length_is_said_once)
{
	CHECK_EQ(look("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"), LOOK_YES);
	CHECK_EQ(h.body, HEAD_CHUNKED);
	CHECK_EQ(look("POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n"), LOOK_YES);
	CHECK_EQ(h.body, HEAD_NO_BODY);
	CHECK_CONTAINS(refused(GET HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"), "given twice");
	CHECK_CONTAINS(refused(GET HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), "given twice");
	CHECK_CONTAINS(refused(GET HOST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"), "given twice");
	CHECK_CONTAINS(refused(GET HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
		       "given twice");
	CHECK_CONTAINS(refused("POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"), "given twice");
	CHECK_CONTAINS(refused(GET HOST "Transfer-Encoding: gzip, chunked\r\n\r\n"), "must be chunked");
	CHECK_CONTAINS(refused(GET HOST "Transfer-Encoding: identity\r\n\r\n"), "must be chunked");
	CHECK_CONTAINS(refused(GET HOST "Content-Length: +1\r\n\r\n"), "not a number");
	CHECK_CONTAINS(refused(GET HOST "Content-Length: 1,1\r\n\r\n"), "not a number");
	CHECK_CONTAINS(refused(GET HOST "Content-Length: 0x1\r\n\r\n"), "not a number");
	CHECK_CONTAINS(refused(GET HOST "Content-Length: 9999999999999999999\r\n\r\n"), "not a number");
	CHECK_CONTAINS(refused(GET HOST "Content-Length:\r\n\r\n"), "not a number");
}

TEST(upgrades_are_to_websocket)
{
	CHECK_EQ(look(GET HOST "Connection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"), LOOK_YES);
	CHECK_EQ(h.upgrade, HEAD_WEBSOCKET);
	CHECK_EQ(look(GET HOST "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n"),
		 LOOK_YES);
	CHECK_EQ(h.upgrade, HEAD_H2C);
	CHECK_CONTAINS(refused(GET HOST "Upgrade: TLS/1.0\r\n\r\n"), "websocket");
	CHECK_CONTAINS(refused(GET HOST "Upgrade: websocket, h2c\r\n\r\n"), "websocket");
	CHECK_CONTAINS(refused(GET HOST "Upgrade: websocket\r\nUpgrade: h2c\r\n\r\n"), "more than one");
	CHECK_CONTAINS(refused("POST / HTTP/1.1\r\n" HOST "Upgrade: websocket\r\n\r\n"), "websocket");
	CHECK_CONTAINS(refused(GET HOST "Upgrade: websocket\r\nContent-Length: 1\r\n\r\n"), "not supported");
}

TEST(connect_says_where)
{
	CHECK_EQ(look("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n"), LOOK_YES);
	CHECK(h.connect);
	CHECK_EQ(h.host.port, 443);
	CHECK_EQ(look("CONNECT a.test:443 HTTP/1.0\r\n\r\n"), LOOK_YES);
	CHECK_CONTAINS(refused("CONNECT a.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n"), "differs");
	CHECK_CONTAINS(refused("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:80\r\n\r\n"), "differs");
	CHECK_CONTAINS(refused("CONNECT a.test HTTP/1.1\r\nHost: a.test\r\n\r\n"), "a colon and a port");
	CHECK_CONTAINS(refused("CONNECT a.test:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\n"), "given twice");
}

TEST(other_protocols_are_told)
{
	static const char *const other[] = { "SSH-2.0-x\r\n",	     "EHLO x\r\n", "\x16\x03\x01",
					     "*1\r\n$4\r\nPING\r\n", "{\"a\":1}",  "get key\r\n",
					     "a1 LOGIN x\r\n",	     "G\n",	   "GETX y\r\n" };

	for (size_t i = 0; i < ARRAY_LEN(other); i++)
		if (look(other[i]) != LOOK_NOT)
			TEST_FAIL("%zu: %s", i, other[i]);
	CHECK_EQ(look("x"), LOOK_MORE);
	CHECK(!head_begun("x", 1));
	CHECK(!head_begun("GETX", 4));
	CHECK(head_begun("G", 1));
	CHECK(head_begun("GET", 3));
	CHECK(head_begun("GET /", 5));
	CHECK(head_begun("FOO / HTTP/1.1\r\nHo", 18));
	CHECK(!head_begun("", 0));
}

static bool late(struct head_late *l, const char *text)
{
	for (; *text; text++)
		if (!head_late(l, text, 1))
			return false;
	return true;
}

TEST(a_request_that_comes_slowly_is_found_out)
{
	static const char *const found[] = { "FOO / HTTP/1.1\r\n", "\r\n\r\nFOO / hTTp/1.1\r\n",
					     "GET http://b.test/\r\n", "x HHTTP/", "POST /\n" };
	static const char *const fine[] = { "x\n", "SSH-2.0\r\nFOO / HTTP/1.1\r\n", "\x01 HTTP/1.1", "PUTX\r\n",
					    "G\n" };
	char line[64] = "hello";
	struct head_late l;

	for (size_t i = 0; i < ARRAY_LEN(found); i++) {
		l = (struct head_late){ 0 };
		if (late(&l, found[i]))
			TEST_FAIL("%zu: %s", i, found[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
		l = (struct head_late){ 0 };
		if (!late(&l, fine[i]) || !l.done)
			TEST_FAIL("%zu: %s", i, fine[i]);
	}
	l = (struct head_late){ 0 };
	for (unsigned i = 0; i < (2U << 20) / sizeof(line) && !l.done; i++)
		CHECK(head_late(&l, line, 5));
	CHECK(!l.done);
	memset(line, 'x', sizeof(line));
	for (unsigned i = 0; i < (2U << 20) / sizeof(line); i++)
		CHECK(head_late(&l, line, sizeof(line)));
	CHECK(l.done);
}

/* Characters that Python's split() takes for a space, and request lines with methods that only some servers know. */
TEST(a_request_that_only_some_servers_read_is_one)
{
	static const char *const found[] = { "GET\v/ HTTP/1.1\r\n",	 "\fGET / HTTP/1.1\r\n",
					     "\x1fGET / HTTP/1.1\r\n",	 "\xa0GET / HTTP/1.1\r\n",
					     "GET\x85/\x1cHTTP/1.1\r\n", "FOO /\x01 HTTP/1.1\r\n",
					     "FOO\v/\x7f HTTP/1.1\r\n",	 "POST\v/\r\n" };
	struct head_late l = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(found); i++) {
		if (look(found[i]) != LOOK_BAD)
			TEST_FAIL("%zu: %s", i, found[i]);
		l = (struct head_late){ 0 };
		if (late(&l, found[i]))
			TEST_FAIL("%zu, slowly: %s", i, found[i]);
	}
	/* One of many letters. */
	l = (struct head_late){ 0 };
	for (unsigned i = 0; i < HEAD_MAX + 1; i++)
		CHECK(head_late(&l, "M", 1));
	CHECK(!late(&l, " / HTTP/1.1\r\n"));
}

TEST(heads_are_bounded)
{
	static char big[HEAD_MAX + 100];
	size_t n;

	n = (size_t)snprintf(big, sizeof(big), GET HOST "X: ");
	memset(big + n, 'a', sizeof(big) - n);
	CHECK_EQ(head_look(big, HEAD_MAX - 1, &h, &why), LOOK_MORE);
	CHECK_EQ(head_look(big, HEAD_MAX, &h, &why), LOOK_BAD);
	CHECK_EQ(head_look(big, sizeof(big), &h, &why), LOOK_BAD);
	n = (size_t)snprintf(big, sizeof(big), GET HOST);
	for (int i = 0; i < 200; i++)
		n += (size_t)snprintf(big + n, sizeof(big) - n, "X: y\r\n");
	CHECK_EQ(head_look(big, n, &h, &why), LOOK_BAD);
}

static int gather(void *arg, const char *data, const struct head_field *f)
{
	char *out = arg;
	size_t n = strlen(out);

	snprintf(out + n, 200 - n, "[%.*s|%.*s]", (int)f->name_len, data + f->line, (int)f->value_len, data + f->value);
	return 0;
}

TEST(one_long_word_is_no_request)
{
	static char big[HEAD_MAX];

	memset(big, 'y', sizeof(big));
	CHECK_EQ(head_look(big, HEAD_MAX - 1, &h, &why), LOOK_MORE);
	CHECK(!head_begun(big, HEAD_MAX - 1));
	CHECK_EQ(head_look(big, HEAD_MAX, &h, &why), LOOK_NOT);
	big[20] = ' '; /* a method of its own may have a long target */
	CHECK_EQ(head_look(big, HEAD_MAX, &h, &why), LOOK_BAD);
	memcpy(big + 2000, " HTTP/1.1", 9);
	CHECK_EQ(head_look(big, HEAD_MAX, &h, &why), LOOK_BAD);
}

TEST(fields_are_told_one_by_one)
{
	static const char text[] = GET "Host:a.test\r\nA: \t b c \t\r\nEmpty:\r\n\r\n";
	char out[200] = "";

	CHECK_EQ(look(text), LOOK_YES);
	CHECK_EQ(head_each(text, &h, gather, out), 0);
	CHECK_STR(out, "[Host|a.test][A|b c][Empty|]");
}
