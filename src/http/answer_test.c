/* Servers' answers: whole, in pieces, and those that must not be believed. */
#include "http/answer.h"

#include "base/base.h"
#include "base/test.h"

struct got {
	struct answer a;
	char body[256];
	size_t len, used;
	int r;
	const char *why;
};

static struct got g;

/* @text in pieces of @step bytes; then the server closes, if @eof. */
static void take(const char *text, size_t step, bool eof)
{
	size_t all = strlen(text);

	g.len = g.used = 0;
	g.r = 0;
	g.why = "";
	while (g.used < all && g.a.state != ANSWER_END && g.a.state != ANSWER_UPGRADED) {
		char piece[512];
		size_t n = all - g.used < step ? all - g.used : step, len;
		ssize_t r;

		memcpy(piece, text + g.used, n);
		r = answer_feed(&g.a, piece, n, &len, &g.why);
		if (r < 0) {
			g.r = (int)r;
			return;
		}
		memcpy(g.body + g.len, piece, len);
		g.len += len;
		g.used += (size_t)r;
	}
	g.body[g.len] = '\0';
	if (eof)
		g.r = answer_eof(&g.a);
}

static void fresh(void)
{
	answer_done(&g.a);
	answer_init(&g.a);
}

static const size_t steps[] = { 1, 2, 3, 7, 500 };

TEST(an_answer_with_a_length_ends_behind_it)
{
	static const char text[] =
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b c \r\n\r\nhelloHTTP/1.1 500 X\r\n\r\n";

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		fresh();
		take(text, steps[i], false);
		CHECK_EQ(g.r, 0);
		CHECK_EQ(g.a.state, ANSWER_END);
		CHECK_EQ(g.a.status, 200);
		CHECK_EQ(g.a.length, 5);
		CHECK_STR(g.body, "hello");
		CHECK_STR(answer_header(&g.a, "x-a"), "b c");
		CHECK_STR(g.a.reason, "OK");
		CHECK(answer_header(&g.a, "x-b") == NULL);
	}
	fresh();
}

TEST(chunks_are_taken_apart)
{
	static const char text[] =
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-T: 1\r\n\r\nmore";

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		fresh();
		take(text, steps[i], false);
		CHECK_EQ(g.r, 0);
		CHECK_EQ(g.a.state, ANSWER_END);
		CHECK_STR(g.body, "abcdefg");
		CHECK_EQ(g.used, sizeof(text) - 1 - 4);
		CHECK_EQ(g.a.length, -1);
	}
	fresh();
}

TEST(one_without_a_length_ends_with_the_connection_and_others_do_not)
{
	fresh();
	take("HTTP/1.0 200 OK\r\nServer: old\r\n\r\nall of it", 4, true);
	CHECK_EQ(g.r, 0);
	CHECK_STR(g.body, "all of it");
	fresh();
	take("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", 4, true);
	CHECK_EQ(g.r, -EPIPE);
	fresh();
	take("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", 4, true);
	CHECK_EQ(g.r, -EPIPE);
	fresh();
	take("HTTP/1.1 200 OK\r\nContent-Le", 4, true);
	CHECK_EQ(g.r, -EPIPE);
	fresh();
	take("", 4, true);
	CHECK_EQ(g.r, -EPIPE);
	fresh();
}

TEST(answers_that_have_no_body_end_with_their_head)
{
	static const char *const texts[] = {
		"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\nhidden!",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\nhidden!",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nhidden!",
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		fresh();
		take(texts[i], 500, false);
		CHECK_EQ(g.a.state, ANSWER_END);
		CHECK_EQ(g.len, 0);
		CHECK_EQ(g.used, strlen(texts[i]) - 7);
	}
	fresh();
	g.a.no_body = true;
	take("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nhidden!", 500, false);
	CHECK_EQ(g.a.state, ANSWER_END);
	CHECK_EQ(g.a.length, 7);
	CHECK_EQ(g.len, 0);
	fresh();
}

TEST(early_answers_are_passed_over_but_not_for_ever)
{
	char text[1024] = "";

	fresh();
	take("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
	     3, false);
	CHECK_EQ(g.a.status, 200);
	CHECK(answer_header(&g.a, "link") == NULL);
	CHECK_STR(g.body, "x");
	for (unsigned i = 0; i < ANSWER_EARLY_MAX + 1; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "HTTP/1.1 100 Continue\r\n\r\n");
	fresh();
	take(text, 100, false);
	CHECK_EQ(g.r, -EBADMSG);
	fresh();
}

TEST(an_upgrade_is_one_only_when_it_was_asked_for)
{
	static const char text[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nraw";

	fresh();
	take(text, 5, false);
	CHECK_EQ(g.r, -EBADMSG);
	fresh();
	g.a.may_upgrade = true;
	take(text, 5, false);
	CHECK_EQ(g.r, 0);
	CHECK_EQ(g.a.state, ANSWER_UPGRADED);
	CHECK_EQ(g.used, sizeof(text) - 1 - 3);
	fresh();
}

TEST(what_makes_no_sense_is_refused_with_a_reason)
{
	static const char *const texts[] = {
		"SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.1 99 Low\r\n\r\n",
		"HTTP/1.1 600 High\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length: 1\n\nx",
		"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: a\001b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX Y: a\r\n\r\n",
		"HTTP/1.1 200 OK\r\n: a\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
			fresh();
			take(texts[i], steps[k], false);
			if (g.r != -EBADMSG)
				printf("# taken: %s\n", texts[i]);
			CHECK_EQ(g.r, -EBADMSG);
			CHECK(g.why[0]);
		}
	}
	fresh();
}

TEST(a_head_without_an_end_is_refused_before_it_fills_the_memory)
{
	char piece[512];
	const char *why = NULL;
	size_t len, fed = 0;
	ssize_t r = 0;

	fresh();
	memset(piece, 'a', sizeof(piece));
	memcpy(piece, "HTTP/1.1 200 OK\r\nX: ", 20);
	while (fed < 2 * ANSWER_HEAD_MAX && r >= 0) {
		r = answer_feed(&g.a, piece, sizeof(piece), &len, &why);
		memset(piece, 'a', sizeof(piece));
		fed += sizeof(piece);
	}
	CHECK_EQ(r, -EBADMSG);
	CHECK(fed <= ANSWER_HEAD_MAX + sizeof(piece));
	fresh();
}
