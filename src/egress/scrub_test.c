#include "egress/scrub.h"

#include "base/base.h"
#include "base/test.h"

#define VALUE "s3cret-value"
#define STARS "************"

static struct mask *mask_of(const char *value)
{
	const struct mask_value v = { value, strlen(value), false };
	struct mask *m = NULL;

	if (mask_new(&v, 1, &m) < 0)
		abort();
	return m;
}

/* What comes of an answer that is cut into pieces of @piece bytes; "refused: why" when it is. */
static const char *told(const char *answer, size_t piece, bool head)
{
	static char text[65536];
	AUTO(buf_done) struct buf out = BUF_INIT(MIB);
	struct mask *m = mask_of(VALUE);
	struct scrub *s = scrub_new(m);
	const char *why = "";
	size_t len = strlen(answer);
	int r = 0;

	scrub_asked(s, head, false);
	for (size_t at = 0; at < len && r == 0; at += piece)
		r = scrub_feed(s, answer + at, len - at < piece ? len - at : piece, &out, &why);
	if (r == 0)
		r = scrub_end(s, false, &out);
	snprintf(text, sizeof(text), "%s%s", r < 0 ? "refused: " : "", r < 0 ? why : buf_str(&out));
	scrub_free(s);
	mask_unref(m);
	return text;
}

/* Chunks are cut as they come: their content, and whether they have an end. */
static const char *content(const char *text)
{
	static char out[65536];
	const char *p = strstr(text, "\r\n\r\n");
	size_t n = 0;

	out[0] = '\0';
	for (p = p ? p + 4 : ""; *p;) {
		char *end;
		size_t len = strtoul(p, &end, 16);

		if (strncmp(end, "\r\n", 2) != 0)
			return "no chunk";
		p = end + 2;
		if (!len) {
			snprintf(out + n, sizeof(out) - n, "|%s", p);
			return out;
		}
		memcpy(out + n, p, len);
		n += len;
		p += len + 2;
	}
	return "no end";
}

TEST(a_value_is_masked_in_heads_and_bodies_and_lengths_stay)
{
	static const char answer[] = "HTTP/1.1 200 " VALUE "\r\nX-Echo: Bearer " VALUE "\r\nContent-Length: 43\r\n\r\n"
				     "{\"a\":\"" VALUE "\",\"b\":\"czNjcmV0LXZhbHVl\"}";
	static const char want[] = "HTTP/1.1 200 " STARS "\r\nX-Echo: Bearer " STARS "\r\nContent-Length: 43\r\n\r\n"
				   "{\"a\":\"" STARS "\",\"b\":\"****************\"}";

	for (size_t piece = 1; piece < sizeof(answer); piece++)
		if (strcmp(told(answer, piece, false), want))
			TEST_FAIL("in pieces of %zu: %s", piece, told(answer, piece, false));
}

TEST(a_value_across_chunks_is_masked)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
				     "5\r\nab s3\r\n4;x=y\r\ncret\r\n8\r\n-value c\r\n0\r\nX-T: " VALUE "\r\n\r\n";

	for (size_t piece = 1; piece < sizeof(answer); piece++)
		if (strcmp(content(told(answer, piece, false)), "ab " STARS " c|X-T: " STARS "\r\n\r\n"))
			TEST_FAIL("in pieces of %zu: %s", piece, told(answer, piece, false));
}

TEST(bodies_end_where_they_say_and_the_next_answer_follows)
{
	static const char two[] = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ns3c"
				  "HTTP/1.1 204 No Content\r\n\r\n";

	CHECK_STR(told(two, 1, false), two);
	CHECK_STR(told(two, sizeof(two), false), two);
	/* The answer to a HEAD has no body, whatever it says. */
	CHECK_STR(told("HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\nHTTP/1.1 304 Not Modified\r\n\r\n", 7, true),
		  "HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\nHTTP/1.1 304 Not Modified\r\n\r\n");
	/* One without a length ends with the connection. */
	CHECK_STR(told("HTTP/1.0 200 OK\r\n\r\nall " VALUE, 3, false), "HTTP/1.0 200 OK\r\n\r\nall " STARS);
	/* The beginning of a value at the end of a body is no value; most of one is. */
	CHECK_STR(told("HTTP/1.0 200 OK\r\n\r\ns3cre", 3, false), "HTTP/1.0 200 OK\r\n\r\ns3cre");
	CHECK_STR(told("HTTP/1.0 200 OK\r\n\r\ns3cret-valu", 3, false), "HTTP/1.0 200 OK\r\n\r\n***********");
}

TEST(what_cannot_be_searched_or_ends_nowhere_is_refused)
{
	static const char *const list[] = {
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
		"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n",
		"HTTP/2 200 OK\r\n\r\n",
		"SSH-2.0-x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(list); i++)
		if (strncmp(told(list[i], 5, false), "refused: ", 9) != 0)
			TEST_FAIL("'%s' is told as '%s'", list[i], told(list[i], 5, false));
	CHECK_STR(told("HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 0\r\n\r\n", 5, false),
		  "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 0\r\n\r\n");
}

TEST(headers_about_the_connection_are_searched_unless_they_say_the_usual)
{
	CHECK_STR(told("HTTP/1.1 200 OK\r\nConnection: close, " VALUE "\r\nUpgrade: " VALUE
		       "\r\nContent-Length: 0\r\n\r\n",
		       5, false),
		  "HTTP/1.1 200 OK\r\nConnection: close, " STARS "\r\nUpgrade: " STARS "\r\nContent-Length: 0\r\n\r\n");
	CHECK_STR(
		told("HTTP/1.1 200 OK\r\nConnection: Keep-Alive , Upgrade\r\nUpgrade: WebSocket\r\nContent-Length: 0\r\n\r\n",
		     5, false),
		"HTTP/1.1 200 OK\r\nConnection: Keep-Alive , Upgrade\r\nUpgrade: WebSocket\r\nContent-Length: 0\r\n\r\n");
}

TEST(lines_of_events_are_told_at_once_and_a_pause_tells_three_bytes_of_a_value_at_most)
{
	static const char head[] = "HTTP/1.1 200 OK\r\n\r\n";
	AUTO(buf_done) struct buf out = BUF_INIT(MIB);
	struct mask *m = mask_of(VALUE);
	struct scrub *s = scrub_new(m);
	const char *why = "";

	scrub_asked(s, false, false);
	CHECK_EQ(scrub_feed(s, head, strlen(head), &out, &why), 0);
	buf_clear(&out);
	CHECK_EQ(scrub_feed(s, "data: s3cr\n\n", 12, &out, &why), 0);
	CHECK_STR(buf_str(&out), "data: s3cr\n\n");
	buf_clear(&out);
	CHECK_EQ(scrub_feed(s, "xs3c", 4, &out, &why), 0);
	CHECK_STR(buf_str(&out), "x");
	CHECK(scrub_held(s));
	CHECK_EQ(scrub_pause(s, &out), 0);
	CHECK_STR(buf_str(&out), "xs3c");
	CHECK_EQ(scrub_feed(s, "ret", 3, &out, &why), 0);
	CHECK(!scrub_held(s)); /* six bytes are too many */
	CHECK_EQ(scrub_pause(s, &out), 0);
	CHECK_STR(buf_str(&out), "xs3c");
	CHECK_EQ(scrub_feed(s, "-value.", 7, &out, &why), 0);
	CHECK_STR(buf_str(&out), "xs3c*********.");
	scrub_free(s);
	mask_unref(m);
}
