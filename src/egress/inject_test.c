#include "egress/inject.h"

#include "base/base.h"
#include "base/test.h"

#define PLAIN "Accept-Encoding: identity\r\n"
#define HEADER                                                                                                         \
	{                                                                                                              \
		EGRESS_HEADER, true, 443, "api.test", "Authorization", "Bearer abc", "K", 0, 0                         \
	}

static struct buf out;

static struct inject *one(struct egress_inject i)
{
	struct inject *in = NULL;
	struct err e;

	return inject_new(&i, 1, NULL, &in, &e) < 0 ? NULL : in;
}

/* The head that comes out for api.test:443; @in is let go. */
static const char *made(struct inject *in, const char *text)
{
	const char *why = "";
	struct head h;
	int r;

	buf_done(&out);
	out.max = HEAD_MAX + INJECT_ADDED_MAX;
	if (!in || head_look(text, strlen(text), &h, &why) != LOOK_YES)
		return why;
	r = inject_head(in, "api.test", 443, true, text, &h, &out);
	inject_unref(in);
	return r < 0 ? "failed" : buf_str(&out);
}

TEST(a_header_is_added_in_place_of_what_the_sandbox_sent)
{
	CHECK_STR(made(one((struct egress_inject)HEADER), "GET /x?y HTTP/1.1\r\nHost: api.test\r\nA: b\r\n\r\n"),
		  "GET /x?y HTTP/1.1\r\nHost: api.test\r\nA: b\r\nAuthorization: Bearer abc\r\n" PLAIN "\r\n");
	CHECK_STR(made(one((struct egress_inject)HEADER), "GET / HTTP/1.1\r\nauthorization: x\r\nHost: api.test\r\n"
							  "AUTHORIZATION: y\r\nAuthorization-2: z\r\n\r\n"),
		  "GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization-2: z\r\nAuthorization: Bearer abc\r\n" PLAIN
		  "\r\n");
	CHECK_STR(made(one((struct egress_inject){ EGRESS_HEADER, true, 443, "api.test", "X-Api-Key", "k", "K", 0, 0 }),
		       "GET / HTTP/1.1\r\nHost: api.test\r\nX_Api_Key: mine\r\n\r\n"),
		  "GET / HTTP/1.1\r\nHost: api.test\r\nX-Api-Key: k\r\n" PLAIN "\r\n");
}

TEST(answers_are_not_to_be_compressed_where_something_is_added)
{
	static const char ask[] = "GET / HTTP/1.1\r\nHost: api.test\r\nAccept-Encoding: gzip\r\nTE: trailers\r\n\r\n";

	CHECK_STR(made(one((struct egress_inject)HEADER), ask),
		  "GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer abc\r\n" PLAIN "\r\n");
	CHECK_STR(made(one((struct egress_inject){ EGRESS_HEADER, true, 443, "b.test", "X-B", "b", "B", 0, 0 }), ask),
		  ask);
}

TEST(basic_is_user_and_password)
{
	struct egress_inject i = { EGRESS_BASIC, true, 443, "api.test", "Aladdin", "open sesame", "K", 0, 0 };

	CHECK_STR(made(one(i), "GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Basic eA==\r\n\r\n"),
		  "GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n" PLAIN
		  "\r\n");
}

static const char *query(const char *target)
{
	static char line[200];
	char text[200];
	const char *got, *end;

	snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: api.test\r\n\r\n", target);
	got = made(one((struct egress_inject){ EGRESS_QUERY, true, 443, "api.test", "key", "a b&c", "K", 0, 0 }), text);
	end = strstr(got, " HTTP/1.1");
	snprintf(line, sizeof(line), "%.*s", end ? (int)(end - got) : 0, got);
	return strlen(line) > 4 ? line + 4 : line;
}

TEST(a_parameter_is_added_in_place_of_what_the_sandbox_sent)
{
	CHECK_STR(query("/"), "/?key=a%20b%26c");
	CHECK_STR(query("/x?"), "/x?key=a%20b%26c");
	CHECK_STR(query("/x?a=1"), "/x?a=1&key=a%20b%26c");
	CHECK_STR(query("/x?key=mine&a=1&key=2&b"), "/x?a=1&b&key=a%20b%26c");
	CHECK_STR(query("/x?k%65y=mine&%6b%65%79"), "/x?key=a%20b%26c");
	CHECK_STR(query("/x?a;key=mine;b"), "/x?a;b&key=a%20b%26c");
	CHECK_STR(query("/x?keys=1&ke=2"), "/x?keys=1&ke=2&key=a%20b%26c");
	CHECK_STR(query("/x?a=key=1&%6"), "/x?a=key=1&%6&key=a%20b%26c");
	CHECK_STR(query("http://api.test?a"), "/?a&key=a%20b%26c");
}

TEST(only_that_server_gets_it)
{
	struct inject *in = one((struct egress_inject)HEADER);
	char names[64];

	CHECK(in);
	CHECK(inject_wants(in, "api.test", 443, true));
	CHECK(!inject_wants(in, "api.test", 443, false));
	CHECK(!inject_wants(in, "api.test", 8443, true));
	CHECK(!inject_wants(in, "x.api.test", 443, true));
	CHECK(!inject_wants(in, "api.tes", 443, true));
	CHECK(!inject_wants(NULL, "api.test", 443, true));
	inject_secrets(in, "api.test", 443, true, names, sizeof(names));
	CHECK_STR(names, "K");
	inject_secrets(in, "b.test", 443, true, names, sizeof(names));
	CHECK_STR(names, "");
	inject_unref(in);
}

TEST(several_are_added_together_and_those_of_others_are_not)
{
	struct egress_inject list[] = { HEADER,
					{ EGRESS_QUERY, true, 443, "api.test", "k", "v", "Q", 0, 0 },
					{ EGRESS_HEADER, true, 443, "b.test", "X-B", "b", "B", 0, 0 },
					{ EGRESS_HEADER, false, 443, "api.test", "X-Plain", "p", "P", 0, 0 } };
	struct inject *in = NULL;
	char names[8];
	struct err e;

	CHECK_EQ(inject_new(list, ARRAY_LEN(list), NULL, &in, &e), 0);
	inject_secrets(in, "api.test", 443, true, names, sizeof(names));
	CHECK_STR(names, "K Q");
	CHECK_STR(made(in, "GET / HTTP/1.0\r\nHost: api.test\r\nX-B: own\r\n\r\n"),
		  "GET /?k=v HTTP/1.0\r\nHost: api.test\r\nX-B: own\r\nAuthorization: Bearer abc\r\n" PLAIN "\r\n");
}

TEST(what_can_not_stand_in_a_request_is_refused)
{
	struct egress_inject bad[] = {
		{ EGRESS_HEADER, true, 443, "api.test", "A", "b\r\nX: y", "K", 0, 0 },
		{ EGRESS_HEADER, true, 443, "api.test", "A", "b\n", "K", 0, 0 },
		{ EGRESS_HEADER, true, 443, "api.test", "A", "", "K", 0, 0 },
		{ EGRESS_HEADER, true, 443, "api.test", "A", " b", "K", 0, 0 },
		{ EGRESS_HEADER, true, 443, "api.test", "A:", "b", "K", 0, 0 },
		{ EGRESS_HEADER, true, 443, "api.test", "A B", "b", "K", 0, 0 },
		{ EGRESS_HEADER, true, 443, "api.test", "", "b", "K", 0, 0 },
		{ EGRESS_HEADER, true, 443, "api.test", "Host", "b", "K", 0, 0 },
		{ EGRESS_HEADER, true, 443, "api.test", "transfer-encoding", "b", "K", 0, 0 },
		{ EGRESS_BASIC, true, 443, "api.test", "us:er", "b", "K", 0, 0 },
		{ EGRESS_BASIC, true, 443, "api.test", "user", "", "K", 0, 0 },
		{ EGRESS_QUERY, true, 443, "api.test", "a&b", "", "K", 0, 0 },
		{ EGRESS_HEADER, true, 443, "*.api.test", "A", "b", "K", 0, 0 },
		{ EGRESS_HEADER, true, 443, "127.0.0.1", "A", "b", "K", 0, 0 },
		{ EGRESS_HEADER, true, 0, "api.test", "A", "b", "K", 0, 0 },
		{ 9, true, 443, "api.test", "A", "b", "K", 0, 0 },
	};
	struct egress_inject many[EGRESS_INJECTS_MAX + 1] = { 0 };
	static char big[30000];
	struct inject *in = NULL;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (inject_new(&bad[i], 1, NULL, &in, &e) != -EINVAL)
			TEST_FAIL("%zu", i);
	memset(big, 'x', sizeof(big) - 1);
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		many[i] = (struct egress_inject){ EGRESS_HEADER, true, 443, "api.test", "A", big, "K", 0, 0 };
	CHECK_EQ(inject_new(many, 3, NULL, &in, &e), -EINVAL);
	CHECK_EQ(inject_new(many, ARRAY_LEN(many), NULL, &in, &e), -EINVAL);
	CHECK(!in);
}

TEST(a_buffer_that_is_too_small_keeps_what_it_had)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n";
	struct buf small = BUF_INIT(60);
	struct inject *in = one((struct egress_inject)HEADER);
	const char *why;
	struct head h;

	CHECK(in);
	CHECK_EQ(buf_adds(&small, "before"), 0);
	CHECK_EQ(head_look(text, strlen(text), &h, &why), LOOK_YES);
	CHECK_EQ(inject_head(in, "api.test", 443, true, text, &h, &small), -E2BIG);
	CHECK_STR(buf_str(&small), "before");
	inject_unref(in);
	buf_done(&small);
}
