/* Transfers of many sizes in both directions, and how streams end. */
#include "egress/mitm_test.h"

#define BIG (12 * MIB)

/* Bytes that depend on their position, so that shifted or lost ones are found. */
static void pattern(char *p, size_t n, uint64_t at)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)((at + i) * 31 >> 3);
}

static void send_big(struct peer *p, bool chunked)
{
	char piece[10000], head[32];

	for (uint64_t at = 0; at < BIG; at += sizeof(piece)) {
		size_t n = BIG - at < sizeof(piece) ? (size_t)(BIG - at) : sizeof(piece);

		pattern(piece, n, at);
		if (chunked)
			say(p, head, (size_t)snprintf(head, sizeof(head), "%zx\r\n", n));
		if (say(p, piece, n) < 0)
			return;
		if (chunked)
			say(p, "\r\n", 2);
	}
	if (chunked)
		say(p, "0\r\n\r\n", 5);
}

/* Reads BIG bytes behind a head and counts those that are right. */
static void hear_big(struct peer *p)
{
	char piece[7000], want[7000];
	char *body;
	ssize_t n;

	hear_until(p, "\r\n\r\n");
	body = memmem(p->got, p->len, "\r\n\r\n", 4);
	if (!body)
		return;
	body += 4;
	n = p->got + p->len - body;
	memcpy(piece, body, (size_t)n);
	do {
		pattern(want, (size_t)n, p->count);
		if (memcmp(piece, want, (size_t)n) != 0)
			return;
		p->count += (uint64_t)n;
		n = p->count < BIG ? hear(p, piece, sizeof(piece)) : 0;
	} while (n > 0);
}

static void download(struct peer *p)
{
	say(p, GET, strlen(GET));
	hear_big(p);
}

static void upload_big(struct peer *p)
{
	char head[64];

	hear_until(p, "\r\n\r\n");
	say(p, head, (size_t)snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n", BIG));
	send_big(p, false);
}

TEST(a_large_answer_arrives_whole)
{
	up(true);
	begin(true, download);
	serve(f.world, NAME, upload_big);
	turn();
	CHECK_EQ(f.client.count, BIG);
	CHECK_EQ(f.verdict, EGRESS_V_OK);
	CHECK(f.in > BIG);
	down();
}

static void post_big(struct peer *p)
{
	char head[128];

	say(p, head,
	    (size_t)snprintf(head, sizeof(head), "PUT /a HTTP/1.1\r\nHost: " NAME "\r\nContent-Length: %llu\r\n\r\n",
			     BIG));
	send_big(p, false);
	hear_until(p, "ok");
}

static void take_big(struct peer *p)
{
	hear_big(p);
	say(p, OK, strlen(OK));
}

TEST(a_large_body_arrives_whole)
{
	up(true);
	begin(true, post_big);
	serve(f.world, NAME, take_big);
	turn();
	CHECK_EQ(f.server.count, BIG);
	CHECK_CONTAINS(f.client.got, OK);
	down();
}

/* TLS requires that a write it has begun is repeated with as many bytes, however little a budget has left by then. */
TEST(a_body_that_may_go_now_more_and_now_less_arrives_whole)
{
	up(true);
	f.uneven = 1;
	begin(true, post_big);
	serve(f.world, NAME, take_big);
	turn();
	CHECK_EQ(f.server.count, BIG);
	CHECK_CONTAINS(f.client.got, OK);
	down();
}

static void post_chunks(struct peer *p)
{
	static const char head[] = "PUT /a HTTP/1.1\r\nHost: " NAME "\r\nTransfer-Encoding: chunked\r\n\r\n";

	say(p, head, strlen(head));
	send_big(p, true);
	say(p, GET, strlen(GET));
	hear_until(p, "ok");
}

static void count_until_get(struct peer *p)
{
	static const char next[] = "\r\n0\r\n\r\nGET /a HTTP/1.1\r\nHost: " NAME "\r\nX-Key: s3cret\r\n" PLAIN "\r\n";
	char last[8192] = "";
	ssize_t n, keep = 0;

	/* Enough of the end is kept to see the next request in it. */
	while ((n = hear(p, last + keep, 4000)) > 0) {
		p->count += (uint64_t)n;
		n += keep;
		if (memmem(last, (size_t)n, next, strlen(next)))
			break;
		keep = n < 200 ? n : 200;
		memmove(last, last + n - keep, (size_t)keep);
	}
	say(p, OK, strlen(OK));
}

TEST(a_request_behind_a_chunked_body_is_found)
{
	up(true);
	begin(true, post_chunks);
	serve(f.world, NAME, count_until_get);
	turn();
	CHECK(f.server.count > BIG);
	CHECK_EQ(f.requests, 2);
	CHECK_CONTAINS(f.client.got, OK);
	down();
}

#define WS "GET /ws HTTP/1.1\r\nHost: " NAME "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
#define SWITCH "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

static void ws_client(struct peer *p)
{
	say(p, WS, strlen(WS));
	hear_until(p, "\r\n\r\n");
	say(p, "\x81\x02hi there", 10);
	hear_until(p, "back");
}

static void ws_server(struct peer *p)
{
	hear_until(p, "s3cret\r\n" PLAIN "\r\n");
	say(p, SWITCH, strlen(SWITCH));
	hear_until(p, "there");
	say(p,
	    "\x81\x04"
	    "back",
	    6);
	hear_until(p, NULL);
}

TEST(a_websocket_passes_both_ways)
{
	up(true);
	begin(true, ws_client);
	serve(f.world, NAME, ws_server);
	turn();
	CHECK_CONTAINS(f.server.got, "\x81\x02hi there");
	CHECK_CONTAINS(f.client.got, "back");
	CHECK_EQ(f.requests, 1);
	CHECK_EQ(f.verdict, EGRESS_V_OK);
	down();
}

static void tear(struct peer *p)
{
	static const char part[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf";

	hear_until(p, "\r\n\r\n");
	say(p, part, strlen(part));
	p->torn = true; /* no farewell */
}

TEST(an_answer_that_breaks_off_does_not_look_whole)
{
	up(true);
	begin(true, ask_once);
	serve(f.world, NAME, tear);
	turn();
	CHECK_CONTAINS(f.client.got, "half");
	CHECK(f.client.torn);
	down();
}

TEST(an_answer_with_its_end_has_it)
{
	up(true);
	begin(true, ask_once);
	serve(f.world, NAME, farewell);
	turn();
	CHECK_CONTAINS(f.client.got, "all");
	CHECK(!f.client.torn);
	down();
}

TEST(bytes_over_a_budget_cut_it)
{
	up(true);
	f.most = 100000;
	begin(true, download);
	serve(f.world, NAME, upload_big);
	turn();
	CHECK_EQ(f.verdict, EGRESS_V_CUT);
	CHECK(f.client.count < BIG);
	CHECK(f.in < 200000);
	down();
}

static void ask_rotated(struct peer *p)
{
	say(p, GET, strlen(GET));
	hear_until(p, "\r\n\r\nok");
	say(p, GET, strlen(GET));
	hear_until(p, "done");
}

static void answer_rotated(struct peer *p)
{
	char c;

	hear_until(p, "s3cret\r\n" PLAIN "\r\n");
	if (read(f.go[0], &c, 1) == 1)
		say(p, OK, strlen(OK));
	hear_until(p, "fresh\r\n" PLAIN "\r\n");
	say(p, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone", 42);
}

TEST(a_rotated_value_is_used_from_the_next_request_on)
{
	struct inject *old;

	up(true);
	CHECK_EQ(pipe2(f.go, O_CLOEXEC), 0);
	begin(true, ask_rotated);
	serve(f.world, NAME, answer_rotated);
	/* Between the first request's way out and its answer. */
	for (int i = 0; i < 3000 && !f.out; i++)
		loop_turn(&f.loop, 20);
	old = f.inject;
	set_inject("fresh", true);
	mitm_set_inject(f.m, f.inject);
	inject_unref(old);
	CHECK_EQ(write(f.go[1], "x", 1), 1);
	turn();
	fd_close_many(f.go, 2);
	CHECK_CONTAINS(f.client.got, "done");
	CHECK_CONTAINS(f.server.got, "fresh");
	down();
}

static void leave(struct peer *p)
{
	say(p, GET, strlen(GET));
	hear_until(p, "ok");
	p->torn = true;
}

TEST(a_client_that_goes_ends_the_server_s_connection)
{
	up(true);
	begin(true, leave);
	serve(f.world, NAME, answer_one);
	turn();
	CHECK_EQ(f.verdict, EGRESS_V_OK);
	CHECK(f.ended);
	down();
}

TEST(freed_at_any_moment_nothing_stays)
{
	for (int turns = 0; turns < 12; turns++) {
		up(true);
		begin(true, download);
		serve(f.world, NAME, upload_big);
		for (int i = 0; i < turns && !f.ended; i++)
			loop_turn(&f.loop, 20);
		mitm_free(f.m);
		f.m = NULL;
		f.ended = true;
		turn();
		down();
	}
}
