/* Connections: order, ends, and which callbacks are called. */
#include "http/conn.h"
#include "http/http_test.h"

#define GET "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

static struct fix f;
static struct got g;
static char big[4 << 20];

static void on_gone(void *arg)
{
	((struct fix *)arg)->gone++;
}

static void answer(struct fix *fix, struct http_req *q)
{
	http_set_gone(q, on_gone, fix);
	http_send(q, 200, "text/plain", http_path(q), strlen(http_path(q)));
}

static void later(struct fix *fix, struct http_req *q)
{
	http_set_gone(q, on_gone, fix);
}

TEST(pipelined_requests_are_answered_in_order_one_at_a_time)
{
	static const char text[] = "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\nGET /3 "
				   "HTTP/1.1\r\nHost: x\r\n\r\n";

	fix_up(&f, NULL, answer);
	fix_ask(&f, text, &g);
	CHECK_EQ(got_answers(&g), 3);
	CHECK(strstr(g.data, "\r\n\r\n/1") < strstr(g.data, "\r\n\r\n/2"));
	CHECK(strstr(g.data, "\r\n\r\n/2") < strstr(g.data, "\r\n\r\n/3"));
	f.handle = later;
	f.requests = 0;
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, text, sizeof(text) - 1);
		for (unsigned i = 1; i <= 3; i++) {
			fix_pump(&f, 5);
			CHECK_EQ(f.requests, i);
			http_send(f.last, 200, NULL, http_path(f.last), 2);
		}
		fix_read(&f, fd, &g, 1000);
		CHECK_EQ(got_answers(&g), 3);
	}
	CHECK_EQ(f.gone, 0);
	fix_down(&f);
}

static void later_and_asks(struct fix *fix, struct http_req *q)
{
	later(fix, q);
	http_ask_gone(q);
}

TEST(a_client_that_half_closes_is_told_from_one_that_has_left)
{
	fix_up(&f, NULL, later_and_asks);
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		shutdown(fd, SHUT_WR);
		fix_pump(&f, 20);
		CHECK_EQ(f.gone, 0);
		http_send(f.last, 200, NULL, "late", 4);
		fix_read(&f, fd, &g, 1000);
		CHECK_CONTAINS(got_body(&g), "late"); /* behind an interim answer */
	}
	{
		int fd = fix_dial(&f);

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		fix_pump(&f, 20);
		CHECK_EQ(f.gone, 0);
		close(fd);
		for (int i = 0; i < 100 && !f.gone; i++)
			fix_pump(&f, 20);
	}
	CHECK_EQ(f.gone, 1);
	fix_down(&f);
}

TEST(a_client_that_half_closes_still_gets_its_answer)
{
	fix_up(&f, NULL, later);
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		shutdown(fd, SHUT_WR);
		fix_pump(&f, 20);
		CHECK_EQ(f.requests, 1);
		CHECK_EQ(f.gone, 0);
		http_send(f.last, 200, NULL, "late", 4);
		fix_read(&f, fd, &g, 1000);
	}
	CHECK_EQ(got_status(&g), 200);
	CHECK_STR(got_body(&g), "late");
	CHECK(g.closed);
	CHECK_EQ(f.gone, 0);
	fix_down(&f);
}

TEST(old_clients_and_those_who_say_close_are_closed)
{
	fix_up(&f, NULL, answer);
	fix_ask(&f, "GET / HTTP/1.0\r\n\r\n", &g);
	CHECK_EQ(got_status(&g), 200);
	CHECK(g.closed);
	fix_ask(&f, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &g);
	CHECK_CONTAINS(g.data, "Connection: keep-alive\r\n");
	CHECK(!g.closed);
	fix_ask(&f, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" GET, &g);
	CHECK_EQ(got_answers(&g), 1);
	CHECK_CONTAINS(g.data, "Connection: close\r\n");
	CHECK(g.closed);
	CHECK_EQ(f.requests, 3);
	fix_down(&f);
}

static void stream(struct fix *fix, struct http_req *q)
{
	(void)fix;
	http_begin(q, 200, "text/plain", -1);
	http_write(q, "hello, ", 7);
	http_write(q, "world", 5);
	http_end(q);
}

static void empty(struct fix *fix, struct http_req *q)
{
	(void)fix;
	http_set(q, "X-A", "b\r\nX-Evil: 1");
	http_set(q, "X-B", "c");
	http_send(q, http_path(q)[1] == '2' ? 204 : 304, "text/plain", "body", 4);
}

TEST(head_204_and_304_have_no_body_and_values_no_line_ends)
{
	fix_up(&f, NULL, answer);
	fix_ask(&f, "HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_CONTAINS(g.data, "Content-Length: 4\r\n");
	CHECK_STR(got_body(&g), "");
	f.handle = stream;
	fix_ask(&f, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" GET, &g);
	CHECK_EQ(got_answers(&g), 2);
	CHECK(!strncmp(got_body(&g), "HTTP/1.1 200", 12));
	f.handle = empty;
	fix_ask(&f, "GET /2 HTTP/1.1\r\nHost: x\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_EQ(got_answers(&g), 2);
	CHECK_CONTAINS(g.data, "HTTP/1.1 204 No Content\r\n");
	CHECK_CONTAINS(g.data, "HTTP/1.1 304 Not Modified\r\n");
	CHECK_CONTAINS(g.data, "X-B: c\r\n");
	CHECK(!strstr(g.data, "Evil") && !strstr(g.data, "body") && !strstr(g.data, "Content-Length"));
	fix_down(&f);
}

TEST(streams_are_chunked_and_end_by_closing_for_old_clients)
{
	fix_up(&f, NULL, stream);
	fix_ask(&f, GET, &g);
	CHECK_STR(got_body(&g), "7\r\nhello, \r\n5\r\nworld\r\n0\r\n\r\n");
	CHECK(!g.closed);
	fix_ask(&f, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &g);
	CHECK_STR(got_body(&g), "hello, world");
	CHECK(g.closed);
	fix_down(&f);
}

static void too_short(struct fix *fix, struct http_req *q)
{
	(void)fix;
	http_begin(q, 200, NULL, 10);
	http_write(q, "123456", 6);
	if (http_path(q)[1])
		http_write(q, "7890 and more", 13);
	http_end(q);
}

TEST(an_answer_of_a_promised_length_has_it_or_is_cut)
{
	fix_up(&f, NULL, too_short);
	fix_ask(&f, "GET /all HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_STR(got_body(&g), "1234567890");
	CHECK(!g.closed);
	fix_ask(&f, GET, &g);
	CHECK(g.closed);
	CHECK(g.len == 0 || strlen(got_body(&g)) < 10);
	fix_down(&f);
}

TEST(a_client_that_hangs_up_is_told_once)
{
	fix_up(&f, NULL, later);
	{
		AUTO_CLOSE int fd = fix_dial(&f);
		struct linger hard = { .l_onoff = 1 };

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		fix_pump(&f, 5);
		CHECK_EQ(f.requests, 1);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	}
	fix_pump(&f, 20);
	CHECK_EQ(f.gone, 1);
	CHECK_EQ(http_server_conns(f.server), 0);
	fix_down(&f);
	CHECK_EQ(f.gone, 1);
}

static void on_done(void *arg)
{
	((struct fix *)arg)->done++;
}

static void early_piece(void *arg, const char *data, size_t len)
{
	struct fix *fix = arg;

	(void)data;
	fix->drains += (unsigned)len;
	if (fix->drains > 150000)
		http_send(fix->last, 200, NULL, "early", 5);
}

static void early(struct fix *fix, struct http_req *q)
{
	if (http_method(q) == HTTP_M_GET)
		answer(fix, q);
	else
		http_stream_body(q, early_piece, on_done, fix);
}

TEST(an_answer_before_the_end_of_a_body_keeps_the_connection_when_little_is_left)
{
	static char text[300000];
	size_t n = (size_t)snprintf(text, sizeof(text),
				    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n%0200000d", 1);

	snprintf(text + n, sizeof(text) - n, GET);
	fix_up(&f, NULL, early);
	fix_ask(&f, text, &g);
	CHECK_EQ(got_answers(&g), 2);
	CHECK(!g.closed);
	CHECK_EQ(f.done, 0); /* a handler that has answered gets no call at the end */
	fix_down(&f);
}

static void events(struct fix *fix, struct http_req *q)
{
	http_set_gone(q, on_gone, fix);
	sse_begin(q);
	sse_event(q, "1", "x", "{\"a\":1}", 7);
	sse_event(q, NULL, NULL, "{}\ndata: forged", 15);
	sse_event(q, NULL, NULL, "{}", 2);
}

TEST(events_are_sent_and_a_client_that_left_is_noticed)
{
	fix_up(&f, NULL, events);
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		fix_read(&f, fd, &g, 500);
		CHECK_CONTAINS(g.data, "Content-Type: text/event-stream\r\n");
		CHECK_CONTAINS(g.data, "id: 1\nevent: x\ndata: {\"a\":1}\n\n");
		CHECK_CONTAINS(g.data, "\r\ndata: {}\n\n\r\n");
		CHECK(!strstr(g.data, "forged"));
	}
	/* The client closed without a reset, which only the next comment finds out. */
	fix_pump(&f, 20);
	CHECK_EQ(f.gone, 1);
	fix_down(&f);
	CHECK_EQ(f.gone, 1);
}

static void got_whole(void *arg, const char *data, size_t len)
{
	http_send(arg, 200, NULL, data, len);
}

static void whole(struct fix *fix, struct http_req *q)
{
	http_set_gone(q, on_gone, fix);
	http_read_body(q, 1000, got_whole, q);
}

TEST(who_expects_to_be_asked_is_asked_when_the_body_is_read)
{
	static const char head[] = "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

	fix_up(&f, NULL, whole);
	{
		AUTO_CLOSE int fd = fix_dial(&f), other = fix_dial(&f);

		fix_send(&f, fd, head, sizeof(head) - 1);
		fix_read(&f, fd, &g, 500);
		CHECK_STR(g.data, "HTTP/1.1 100 Continue\r\n\r\n");
		fix_send(&f, fd, "hello", 5);
		fix_read(&f, fd, &g, 500);
		CHECK_STR(got_body(&g), "hello");
		f.handle = answer;
		fix_send(&f, other, head, sizeof(head) - 1);
		fix_read(&f, other, &g, 500);
		CHECK_EQ(got_status(&g), 200);
		CHECK_CONTAINS(g.data, "Connection: close\r\n");
		CHECK(g.closed);
	}
	fix_down(&f);
}

static void on_drain(void *arg)
{
	((struct fix *)arg)->drains++;
}

static void begin(struct fix *fix, struct http_req *q)
{
	http_set_gone(q, on_gone, fix);
	http_set_drain(q, on_drain, fix);
	http_begin(q, 200, NULL, -1);
}

TEST(lent_memory_is_sent_in_order_and_given_back)
{
	struct http_piece two[2] = { { big, 1 << 20 }, { big + (1 << 20), 3 << 20 } };

	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 7 + i / 1000);
	fix_up(&f, NULL, begin);
	{
		AUTO_CLOSE int fd = fix_dial(&f);
		AUTO_FREE char *back = malloc(5 << 20);
		size_t n = 0;
		ssize_t r;

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		fix_pump(&f, 5);
		http_write_lent(f.last, two, 2, on_done, &f);
		CHECK_EQ(f.done, 0);
		http_write(f.last, "tail", 4);
		fix_pump(&f, 10);
		CHECK_EQ(f.done, 0); /* the client does not read yet, and 4 MiB do not fit the socket */
		while (!f.done || http_queued(f.last)) {
			r = recv(fd, back + n, (5 << 20) - n, MSG_DONTWAIT);
			n += r > 0 ? (size_t)r : 0;
			uv_run(&f.loop, UV_RUN_NOWAIT);
		}
		while (n < sizeof(big) + 60 && (r = recv(fd, back + n, (5 << 20) - n, MSG_DONTWAIT)) > 0)
			n += (size_t)r;
		back[n] = '\0';
		CHECK_EQ(f.done, 1);
		{
			char *body = strstr(back, "\r\n\r\n400000\r\n");

			CHECK(body);
			CHECK(!memcmp(body + 12, big, sizeof(big)));
			CHECK_STR(body + 12 + sizeof(big), "\r\n4\r\ntail\r\n");
		}
		/* A small one is done at once, but said later. */
		http_write_lent(f.last, &(struct http_piece){ "x", 1 }, 1, on_done, &f);
		CHECK_EQ(f.done, 1);
		fix_pump(&f, 5);
		CHECK_EQ(f.done, 2);
		/* The end takes the memory back without a word, and what was lent is still sent. */
		http_write_lent(f.last, two, 2, on_done, &f);
		http_end(f.last);
		memset(big, 'z', sizeof(big));
		n = 0;
		while (n < sizeof(big) + 20) {
			r = recv(fd, back + n, (5 << 20) - n, MSG_DONTWAIT);
			n += r > 0 ? (size_t)r : 0;
			uv_run(&f.loop, UV_RUN_NOWAIT);
		}
		CHECK(!memmem(back, n, "zzzzzzzz", 8));
		CHECK(!memcmp(back + n - 5, "0\r\n\r\n", 5));
	}
	CHECK_EQ(f.done, 2);
	fix_down(&f);
	CHECK_EQ(f.gone, 0);
}

static void on_drained(void *arg)
{
	((struct fix *)arg)->drains++;
}

TEST(draining_closes_the_idle_at_once_and_the_busy_after_their_answer)
{
	fix_up(&f, NULL, later);
	{
		AUTO_CLOSE int idle = fix_dial(&f), busy = fix_dial(&f);

		fix_send(&f, busy, GET, sizeof(GET) - 1);
		fix_pump(&f, 5);
		http_server_drain(f.server, on_drained, &f);
		fix_read(&f, idle, &g, 500);
		CHECK(g.closed);
		CHECK_EQ(f.drains, 0);
		http_send(f.last, 200, NULL, "x", 1);
		fix_read(&f, busy, &g, 500);
		CHECK(g.closed);
		CHECK_CONTAINS(g.data, "Connection: close\r\n");
	}
	fix_pump(&f, 20);
	CHECK_EQ(f.drains, 1);
	CHECK_EQ(f.gone, 0);
	fix_down(&f);
}

TEST(freeing_the_server_tells_those_under_way)
{
	fix_up(&f, NULL, later);
	{
		AUTO_CLOSE int fd = fix_dial(&f), other = fix_dial(&f);

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		fix_send(&f, other, "GET", 3);
		fix_pump(&f, 5);
		http_server_free(f.server);
		CHECK_EQ(f.gone, 0);
		uv_run(&f.loop, UV_RUN_ONCE);
		CHECK_EQ(f.gone, 1);
		CHECK_EQ(uv_loop_close(&f.loop), 0);
	}
}

TEST(cutting_ends_the_request_without_a_word)
{
	fix_up(&f, NULL, begin);
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		fix_pump(&f, 5);
		http_write(f.last, "half", 4);
		http_cut(f.last);
		fix_read(&f, fd, &g, 500);
	}
	CHECK(g.closed);
	CHECK(!strstr(g.data, "0\r\n\r\n"));
	CHECK_EQ(f.gone, 0);
	CHECK_EQ(http_server_conns(f.server), 0);
	fix_down(&f);
}

static void ids(struct fix *fix, struct http_req *q)
{
	snprintf(fix->seen, sizeof(fix->seen), "%s %lld %s", http_peer(q), (long long)http_peer_uid(q),
		 http_request_id(q));
	http_send(q, 200, NULL, NULL, 0);
}

TEST(peers_and_request_ids_are_known)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct err e;
	char want[64];

	fix_up(&f, NULL, ids);
	fix_ask(&f, "GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: Ab-1._\r\n\r\n", &g);
	CHECK_STR(f.seen, "127.0.0.1 -1 Ab-1._");
	CHECK_CONTAINS(g.data, "X-Request-Id: Ab-1._\r\n");
	fix_ask(&f, "GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: a b\r\n\r\n", &g);
	CHECK(!strstr(g.data, "a b"));
	CHECK_CONTAINS(g.data, "X-Request-Id: ");
	{
		AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		socklen_t len;

		snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "cloche-http-test-%d", getpid());
		len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a.sun_path + 1));
		CHECK_EQ(bind(listening, (struct sockaddr *)&a, len), 0);
		CHECK_EQ(listen(listening, 5), 0);
		CHECK_EQ(http_server_listen(f.server, listening, false, &e), 0);
		CHECK_EQ(connect(fd, (struct sockaddr *)&a, len), 0);
		fix_send(&f, fd, GET, sizeof(GET) - 1);
		fix_read(&f, fd, &g, 500);
		CHECK_EQ(got_status(&g), 200);
	}
	snprintf(want, sizeof(want), "unix %u ", (unsigned)getuid());
	CHECK(!strncmp(f.seen, want, strlen(want)));
	fix_down(&f);
}
