/* What a request may look like, asked of a real server. */
#include "http/http_test.h"

#define H "Host: x\r\n"

static struct fix f;
static struct got g;

static void body(void *arg, const char *data, size_t len)
{
	http_send(arg, 200, "text/plain", data, len);
}

/* Answers with what it understood. */
static void describe(struct fix *fix, struct http_req *q)
{
	char text[2048];
	size_t n;

	if (http_method(q) == HTTP_M_POST) {
		http_read_body(q, 1000000, body, q);
		return;
	}
	n = (size_t)snprintf(text, sizeof(text), "%s %s", http_method_name(q), http_path(q));
	for (size_t i = 0; i < http_segments(q); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, " [%s]", http_segment(q, i));
	for (size_t i = 0; i < http_query_count(q); i++) {
		const char *name, *value;

		http_query_at(q, i, &name, &value);
		n += (size_t)snprintf(text + n, sizeof(text) - n, " %s=<%s>", name, value);
	}
	if (http_header(q, "x-a"))
		n += (size_t)snprintf(text + n, sizeof(text) - n, " a=<%s>", http_header(q, "X-A"));
	(void)fix;
	http_send(q, 200, "text/plain", text, n);
}

/* Exactly one answer of this status, then the end. */
static void refused(const char *what, const char *text, int status)
{
	fix_ask(&f, text, &g);
	if (got_status(&g) != status || got_answers(&g) != 1 || !g.closed)
		TEST_FAIL("%s: status %d, %u answers, closed %d", what, got_status(&g), got_answers(&g), g.closed);
	if (!strstr(g.data, "{\"error\":{\"code\":") || !strstr(g.data, "Connection: close"))
		TEST_FAIL("%s: %s", what, g.data);
}

TEST(ambiguous_framing_is_refused_once_and_the_connection_closed)
{
	static const char *const bad[] = {
		"POST / HTTP/1.1\r\n" H "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
		"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nG",
		"POST / HTTP/1.1\r\n" H "Content-Length: 0\r\nContent-Length: 3\r\n\r\nGET",
		"POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 3\r\n\r\nGET",
		"POST / HTTP/1.1\r\n" H "Content-Length: +0\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "Content-Length: 0x1\r\n\r\nG",
		"POST / HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n\r\nG",
		"POST / HTTP/1.1\r\n" H "Content-Length: 1 1\r\n\r\nG",
		"POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "Content-Length: 99999999999999999999\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "Content-Length : 3\r\n\r\nGET",
		"POST / HTTP/1.1\r\n" H "Content-Length\t: 3\r\n\r\nGET",
		"POST / HTTP/1.1\r\n" H "Content Length: 3\r\n\r\nGET",
		"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
		"POST / HTTP/1.1\r\nHost: x\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\rContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "X: a\r\n Content-Length: 3\r\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "X: a\r\n\tb\r\n\r\n",
		"POST / HTTP/1.1\r\n X: a\r\n" H "\r\n",
		"POST / HTTP/1.1\r\n" H ": a\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "X\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "X: a\x01\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "X: a\x7f\r\n\r\n",
		"POST / HTTP/1.1\r\n" H "X\"y: a\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\n" H H "\r\n",
		"GET  / HTTP/1.1\r\n" H "\r\n",
		"GET /  HTTP/1.1\r\n" H "\r\n",
		"GET\t/ HTTP/1.1\r\n" H "\r\n",
		" GET / HTTP/1.1\r\n" H "\r\n",
		"GET / HTTP/1.1 \r\n" H "\r\n",
		"GET /\r\n\r\n",
		"get / HTTP/1.1\r\n" H "\r\n",
		"GET / XTTP/1.1\r\n" H "\r\n",
		"\x16\x03\x01\x02",
	};

	fix_up(&f, NULL, describe);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		refused(bad[i], bad[i], 400);
	CHECK_EQ(f.requests, 0);
	fix_down(&f);
}

TEST(other_versions_and_expectations_are_refused)
{
	fix_up(&f, NULL, describe);
	refused("2.0", "GET / HTTP/2.0\r\n" H "\r\n", 505);
	refused("0.9", "GET / HTTP/0.9\r\n\r\n", 505);
	refused("1.1x", "GET / HTTP/1.1x\r\n" H "\r\n", 505);
	refused("1.2", "GET / HTTP/1.2\r\n" H "\r\n", 505);
	refused("expect", "POST / HTTP/1.1\r\n" H "Expect: cake\r\nContent-Length: 1\r\n\r\n", 417);
	fix_down(&f);
}

TEST(heads_that_are_too_large_get_431_and_long_paths_414)
{
	static char text[300000];
	size_t n;

	fix_up(&f, NULL, describe);
	n = (size_t)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n" H "X: ");
	memset(text + n, 'a', 200000);
	snprintf(text + n + 200000, sizeof(text) - n - 200000, "\r\n\r\n");
	refused("200 KB", text, 431);
	n = (size_t)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n" H);
	for (unsigned i = 0; i < 5000; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "X: b\r\n");
	snprintf(text + n, sizeof(text) - n, "\r\n");
	refused("5,000", text, 431);
	snprintf(text, sizeof(text), "GET /%09000d HTTP/1.1\r\n" H "\r\n", 1);
	refused("path", text, 414);
	/* 99 and the host are not too many, nor is a line of 60 KB. */
	n = (size_t)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nConnection: close\r\n" H);
	for (unsigned i = 0; i < 97; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "X: b\r\n");
	snprintf(text + n, sizeof(text) - n, "Y: %060000d\r\n\r\n", 1);
	fix_ask(&f, text, &g);
	CHECK_EQ(got_status(&g), 200);
	fix_down(&f);
}

TEST(an_unknown_method_is_read_like_any_other_and_keeps_its_name)
{
	char text[128];

	fix_up(&f, NULL, describe);
	fix_ask(&f,
		"QUERY /a?b=c HTTP/1.1\r\n" H "X-A: 1\r\nContent-Length: 5\r\n\r\nhelloGET /n HTTP/1.1\r\n" H "\r\n",
		&g);
	CHECK_EQ(got_answers(&g), 2);
	CHECK_CONTAINS(g.data, "QUERY /a [a] b=<c> a=<1>HTTP/1.1 200");
	CHECK_CONTAINS(g.data, "GET /n [n]");
	fix_ask(&f, "VERSION-X / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", &g);
	CHECK_STR(got_body(&g), "VERSION-X /");
	fix_ask(&f, "GETTER / HTTP/1.1\r\n" H "Connection: upgrade\r\nUpgrade: x\r\n\r\n", &g);
	CHECK_STR(got_body(&g), "GETTER /");
	refused("version", "QUERY / HTTP/2.0\r\n" H "\r\n", 505);
	refused("two lengths", "QUERY / HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
	refused("lower case", "query / HTTP/1.1\r\n" H "\r\n", 400);
	refused("no letters", "QU{RY / HTTP/1.1\r\n" H "\r\n", 400);
	snprintf(text, sizeof(text), "%033d / HTTP/1.1\r\n" H "\r\n", 0);
	memset(text, 'A', 33);
	refused("long", text, 400);
	memmove(text, text + 1, strlen(text));
	fix_ask(&f, text, &g);
	CHECK_EQ(got_status(&g), 200);
	fix_down(&f);
}

TEST(paths_that_mean_something_else_are_refused)
{
	static const char *const bad[] = {
		"/v1/../etc",
		"/..",
		"/.",
		"/v1/./x",
		"//v1",
		"/v1//x",
		"/v1/",
		"/a%00b",
		"/a%2fb",
		"/%2e%2e/x",
		"/%2E",
		"/a%0ab",
		"/a%7f",
		"/a%zz",
		"/a%2",
		"/a%",
		"/a;b",
		"/a#b",
		"*",
		"a",
		"/%ff",
		"/%c0%af",
		"/?a=%ff",
		"/?a=%00",
		"/?%=1",
		"http://",
		"http://x",
		"/a%ed%a0%80",
		"/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17",
		"/?a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q&r&s&t&u&v&w&x&y&z&1&2&3&4&5&6&7",
	};
	char text[512];

	fix_up(&f, NULL, describe);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\n" H "\r\n", bad[i]);
		refused(bad[i], text, 400);
	}
	refused("CONNECT", "CONNECT x:80 HTTP/1.1\r\n" H "\r\n", 400);
	CHECK_EQ(f.requests, 0);
	fix_down(&f);
}

static void understood(const char *target, const char *want)
{
	char text[512];

	snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\n" H "x-A: \t b\tc \t\r\nX-A: second\r\n\r\n", target);
	fix_ask(&f, text, &g);
	CHECK_EQ(got_status(&g), 200);
	CHECK_STR(got_body(&g), want);
}

TEST(path_query_and_headers_are_decoded)
{
	fix_up(&f, NULL, describe);
	understood("/", "GET / a=<b c>");
	understood("/v1/a%20b", "GET /v1/a%20b [v1] [a b] a=<b c>");
	understood("/%e2%82%ac/a+b", "GET /%e2%82%ac/a+b [\xe2\x82\xac] [a+b] a=<b c>");
	understood("/a?x=1&y&=2&z=a%26b+c&&x=3", "GET /a [a] x=<1> y=<> =<2> z=<a&b c> x=<3> a=<b c>");
	understood("http://other/a/b?c=d", "GET /a/b [a] [b] c=<d> a=<b c>");
	understood("/...", "GET /... [...] a=<b c>");
	fix_down(&f);
}

TEST(a_head_may_come_byte_by_byte)
{
	static const char text[] = "\r\nGET /a?b=c HTTP/1.1\r\n" H "X-A: 1\r\n\r\n";

	fix_up(&f, NULL, describe);
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		for (size_t i = 0; i < sizeof(text) - 1; i++) {
			fix_send(&f, fd, text + i, 1);
			uv_run(&f.loop, UV_RUN_NOWAIT);
		}
		fix_read(&f, fd, &g, 1000);
	}
	CHECK_STR(got_body(&g), "GET /a [a] b=<c> a=<1>");
	fix_down(&f);
}

TEST(chunks_are_put_together_and_bad_ones_refused)
{
	static const char *const bad[] = { "x\r\n",
					   "5\nhello\r\n0\r\n\r\n",
					   "5\r\nhello0\r\n\r\n",
					   "5\r\nhello\n0\r\n\r\n",
					   "-5\r\nhello\r\n",
					   "5 \r\nhello\r\n0\r\n\r\n",
					   "0x5\r\nhello\r\n",
					   "fffffffffffffffff\r\nx",
					   "5\r\nhelloXX0\r\n\r\n",
					   "5\rhello\r\n0\r\n\r\n",
					   "0\r\nA: b\n\r\n",
					   "0\r\n\nGET / HTTP/1.1\r\n\r\n" };
	static char text[20000];

	fix_up(&f, NULL, describe);
	fix_ask(&f,
		"POST / HTTP/1.1\r\n" H
		"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=b\r\n,\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n"
		"GET /next HTTP/1.1\r\n" H "\r\n",
		&g);
	CHECK_EQ(got_answers(&g), 2);
	CHECK_CONTAINS(g.data, "\r\n\r\nhello,0123456789HTTP/1.1 200");
	CHECK_CONTAINS(g.data, "GET /next [next]");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(text, sizeof(text), "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n%s", bad[i]);
		refused(bad[i], text, 400);
	}
	/* What is not content is bounded. */
	snprintf(text, sizeof(text), "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n5;%010000d\r\n", 1);
	refused("extension", text, 400);
	fix_down(&f);
}

TEST(a_length_is_kept_to)
{
	fix_up(&f, NULL, describe);
	fix_ask(&f,
		"POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhelloGET /n HTTP/1.1\r\n" H
		"\r\n\r\n\r\nGET /m HTTP/1.1\r\n" H "\r\n",
		&g);
	CHECK_EQ(got_answers(&g), 3);
	CHECK_CONTAINS(g.data, "\r\n\r\nhelloHTTP/1.1 200");
	CHECK_CONTAINS(g.data, "GET /n [n]HTTP/1.1 200");
	CHECK_CONTAINS(g.data, "GET /m [m]");
	refused("too large", "POST / HTTP/1.1\r\n" H "Content-Length: 1000001\r\n\r\n", 413);
	fix_down(&f);
}
