#include "egress/proxy_http.h"

#include "base/base.h"
#include "base/test.h"

static struct head h;
static const char *why;

static enum look look(const char *text)
{
	why = "";
	memset(&h, 0, sizeof(h));
	return proxy_http_look(text, strlen(text), &h, &why);
}

static enum look connect_to(const char *where)
{
	char text[400];

	snprintf(text, sizeof(text), "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Connection: keep-alive\r\n\r\n", where,
		 where);
	return look(text);
}

static const char *rewritten(const char *text, struct buf *out)
{
	buf_clear(out);
	if (look(text) != LOOK_YES)
		return why;
	return proxy_http_rewrite(text, &h, out) ? "failed" : buf_str(out);
}

TEST(connect_takes_names_and_addresses)
{
	CHECK_EQ(connect_to("A.test:443"), LOOK_YES);
	CHECK(h.connect);
	CHECK_STR(h.host.name, "a.test");
	CHECK_EQ(connect_to("1.2.3.4:443"), LOOK_YES);
	CHECK_EQ(h.host.addr.family, 4);
	CHECK_EQ(connect_to("[2001:db8::1]:22"), LOOK_YES);
	CHECK_EQ(h.host.addr.family, 6);
	CHECK_EQ(connect_to("[::ffff:127.0.0.1]:80"), LOOK_YES);
	CHECK_EQ(h.host.addr.family, 4);
	CHECK(!memcmp(h.host.addr.addr, "\x7f\0\0\1", 4));
}

TEST(forged_destinations_are_refused)
{
	static const char *const bad[] = {
		"2130706433:80",  "0x7f000001:80",    "0177.0.0.1:80",	  "127.1:80",
		"user@a.test:80", "a.test#b.test:80", "a.test:80#",	  "a.test",
		"a.test:",	  "a.test:0",	      "a.test:99999",	  "a.test.:80",
		"a.test:80/",	  "http://a.test:80", "[::1%lo]:80",	  "::1:80",
		"[::1]",	  "a.test:+80",	      "a.test:0x50",	  "%61.test:80",
		"127.0.0.1.:80",  "[127.0.0.1]:80",   "a.test,b.test:80", "\xe2\x91\xa0.test:80",
		"0:80",		  "127.0.0.0x1:80",   "a.test:80:443"
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (connect_to(bad[i]) != LOOK_BAD)
			TEST_FAIL("%s", bad[i]);
	CHECK_EQ(proxy_http_look("CONNECT a.test\0:80 HTTP/1.1\r\n\r\n", 31, &h, &why), LOOK_BAD);
}

TEST(a_path_is_for_servers)
{
	CHECK_EQ(look("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"), LOOK_BAD);
	CHECK_CONTAINS(why, "this is a proxy");
	CHECK_EQ(look("\x05\x01\x00"), LOOK_NOT);
}

TEST(an_absolute_request_is_what_a_server_wants)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4096);

	CHECK_STR(rewritten("GET http://A.test/x?y HTTP/1.1\r\nHost: a.test\r\nProxy-Connection: keep-alive\r\n"
			    "proxy-authorization: Basic x\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nX: y\r\n\r\n",
			    &out),
		  "GET /x?y HTTP/1.1\r\nHost: a.test\r\nX: y\r\nConnection: close\r\n\r\n");
	CHECK_EQ(h.host.port, 80);
	CHECK_STR(rewritten("GET http://a.test:81 HTTP/1.0\r\nHost: a.test:81\r\n\r\n", &out),
		  "GET / HTTP/1.0\r\nHost: a.test:81\r\nConnection: close\r\n\r\n");
	CHECK_EQ(h.host.port, 81);
	CHECK_STR(rewritten("GET http://a.test?q HTTP/1.1\r\nHost: a.test\r\n\r\n", &out),
		  "GET /?q HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
	CHECK_STR(rewritten("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\n"
			    "Upgrade: websocket\r\n\r\n",
			    &out),
		  "GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
	CHECK_STR(rewritten("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\n"
			    "Upgrade: h2c\r\n\r\n",
			    &out),
		  "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
}

TEST(another_host_in_the_target_is_refused)
{
	CHECK_EQ(look("GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"), LOOK_BAD);
	CHECK_EQ(look("GET http://2130706433/ HTTP/1.1\r\nHost: 2130706433\r\n\r\n"), LOOK_BAD);
	CHECK_EQ(look("GET http://a.test@b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n"), LOOK_BAD);
	CHECK_EQ(look("GET ftp://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"), LOOK_BAD);
}

TEST(a_full_buffer_keeps_what_it_had)
{
	AUTO(buf_done) struct buf out = BUF_INIT(20);

	CHECK_EQ(buf_adds(&out, "before"), 0);
	CHECK_EQ(look("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"), LOOK_YES);
	CHECK_EQ(proxy_http_rewrite("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", &h, &out), -E2BIG);
	CHECK_STR(buf_str(&out), "before");
}
