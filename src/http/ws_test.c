/* WebSocket, with a client that makes its frames by hand. */
#include "http/conn.h"
#include "http/http_test.h"

#define UPGRADE                                                                                                        \
	"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"                     \
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
#define MASK "\x11\x22\x33\x44"

static struct fix f;
static struct got g;
static struct ws *ws;
static unsigned messages, gone, drains;
static size_t last_len;
static bool last_text, pause_now, close_now;
static bool asks; /* it expects a message of the client first */
static char last[1 << 16];

static void on_message(void *arg, bool text, const uint8_t *data, size_t len)
{
	(void)arg;
	messages++;
	last_text = text;
	last_len = len;
	memcpy(last, data, len);
	last[len] = '\0';
	if (pause_now)
		ws_pause(ws);
	if (close_now)
		ws_close(ws, 1000, "bye");
	else
		ws_send(ws, text, &(struct http_piece){ data, len }, 1);
}

static void on_gone(void *arg)
{
	(void)arg;
	gone++;
}

static void on_drain(void *arg)
{
	(void)arg;
	drains++;
}

static void upgrade(struct fix *fix, struct http_req *q)
{
	const struct ws_calls calls = {
		.message = on_message, .drain = on_drain, .gone = on_gone, .max = 60000, .protocol = "v1", .asks = asks
	};

	(void)fix;
	messages = gone = drains = 0;
	pause_now = close_now = false;
	if (ws_accept(q, &calls, NULL, &ws) < 0)
		http_fail_as(q, WHY_BAD_REQUEST, "no upgrade", NULL, NULL);
}

static int open_ws(void)
{
	int fd = fix_dial(&f);

	fix_send(&f, fd, UPGRADE, sizeof(UPGRADE) - 1);
	fix_read(&f, fd, &g, 500);
	return fd;
}

/* A masked frame; @first is FIN and opcode. */
static size_t frame(char *to, uint8_t first, const char *data, size_t len)
{
	size_t n = 2;

	to[0] = (char)first;
	if (len < 126) {
		to[1] = (char)(0x80 | len);
	} else {
		to[1] = (char)(0x80 | 126);
		to[2] = (char)(len >> 8);
		to[3] = (char)len;
		n = 4;
	}
	memcpy(to + n, MASK, 4);
	n += 4;
	for (size_t i = 0; i < len; i++)
		to[n + i] = (char)(data[i] ^ MASK[i % 4]);
	return n + len;
}

static void send_frame(int fd, uint8_t first, const char *data, size_t len)
{
	static char text[70000];

	fix_send(&f, fd, text, frame(text, first, data, len));
}

TEST(the_handshake_is_that_of_the_standard)
{
	fix_up(&f, NULL, upgrade);
	fd_close(open_ws());
	CHECK_CONTAINS(g.data, "HTTP/1.1 101 Switching Protocols\r\n");
	CHECK_CONTAINS(g.data, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n");
	CHECK_CONTAINS(g.data, "Sec-WebSocket-Protocol: v1\r\n");
	fix_pump(&f, 10);
	CHECK_EQ(gone, 1);
	fix_ask(&f, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_EQ(got_status(&g), 400);
	fix_ask(&f,
		"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: "
		"13\r\nSec-WebSocket-Key: short\r\n\r\n",
		&g);
	CHECK_EQ(got_status(&g), 400);
	fix_ask(&f,
		"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 8\r\n"
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
		&g);
	CHECK_EQ(got_status(&g), 400);
	fix_ask(&f, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", &g);
	CHECK_EQ(got_status(&g), 400);
	fix_down(&f);
}

TEST(messages_go_both_ways_in_every_length)
{
	static const size_t lens[] = { 0, 1, 125, 126, 1000, 40000 };
	static char data[60000];

	memset(data, 'm', sizeof(data));
	fix_up(&f, NULL, upgrade);
	{
		AUTO_CLOSE int fd = open_ws();

		for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
			size_t n = lens[i], head = n < 126 ? 2 : 4;

			send_frame(fd, i % 2 ? 0x81 : 0x82, data, n);
			fix_read(&f, fd, &g, 500);
			CHECK_EQ(last_len, n);
			CHECK_EQ(last_text, i % 2);
			CHECK_EQ(g.len, n + head);
			CHECK_EQ((uint8_t)g.data[0], i % 2 ? 0x81 : 0x82);
			CHECK(!memcmp(g.data + head, data, n));
		}
		/* In fragments, with a ping between them. */
		send_frame(fd, 0x01, "hel", 3);
		send_frame(fd, 0x89, "p", 1);
		send_frame(fd, 0x80, "lo", 2);
		fix_read(&f, fd, &g, 500);
		CHECK_STR(last, "hello");
		CHECK_CONTAINS(g.data, "\x8a\x01p");
		CHECK_CONTAINS(g.data, "\x81\x05hello");
		/* Several pieces are one message; a long one has a length of eight bytes. */
		ws_send(ws, false, (struct http_piece[]){ { "ab", 2 }, { "", 0 }, { data, 60000 }, { data, 5600 } }, 4);
		fix_read(&f, fd, &g, 500);
		CHECK(!memcmp(g.data,
			      "\x82\x7f\0\0\0\0\0\1\0\x42"
			      "ab",
			      12));
	}
	fix_pump(&f, 10);
	CHECK_EQ(gone, 1);
	fix_down(&f);
}

/* What the server's close frame says. */
static int close_code(void)
{
	const uint8_t *p = memchr(g.data, 0x88, g.len);

	return p && g.closed ? p[2] << 8 | p[3] : 0;
}

static int broken(uint8_t first, const char *data, size_t len)
{
	AUTO_CLOSE int fd = open_ws();

	send_frame(fd, first, data, len);
	shutdown(fd, SHUT_WR);
	fix_read(&f, fd, &g, 500);
	return gone == 1 ? close_code() : -1;
}

TEST(what_breaks_the_rules_is_closed_with_its_code)
{
	static char large[60001];

	fix_up(&f, NULL, upgrade);
	CHECK_EQ(broken(0x82, large, 60001), 1009);
	CHECK_EQ(broken(0x81, "\xff\xfe", 2), 1007);
	CHECK_EQ(broken(0xf1, "x", 1), 1002);
	CHECK_EQ(broken(0x83, "x", 1), 1002);
	CHECK_EQ(broken(0x80, "x", 1), 1002);
	CHECK_EQ(broken(0x09, "x", 1), 1002);
	CHECK_EQ(broken(0x89, large, 126), 1002);
	CHECK_EQ(broken(0x88, "\x03\xe8", 2), 1000);
	CHECK_EQ(messages, 0);
	{
		AUTO_CLOSE int fd = open_ws();

		fix_send(&f, fd, "\x81\x02hi", 4); /* not masked */
		fix_read(&f, fd, &g, 500);
		CHECK_EQ(close_code(), 1002);
		CHECK_EQ(messages, 0);
		CHECK_EQ(gone, 1);
	}
	fix_down(&f);
}

TEST(a_message_of_countless_frames_is_refused)
{
	static char many[60000];
	size_t n = frame(many, 0x02, "", 0);

	while (n + 6 < sizeof(many))
		n += frame(many + n, 0x00, "", 0);
	fix_up(&f, NULL, upgrade);
	{
		AUTO_CLOSE int fd = open_ws();

		fix_send(&f, fd, many, n);
		fix_read(&f, fd, &g, 500);
		CHECK_EQ(close_code(), 1008);
		CHECK_EQ(gone, 1);
	}
	fix_down(&f);
}

TEST(paused_means_that_no_message_comes_until_resumed)
{
	static char three[64];
	size_t n = frame(three, 0x81, "a", 1);

	n += frame(three + n, 0x81, "b", 1);
	n += frame(three + n, 0x81, "c", 1);
	fix_up(&f, NULL, upgrade);
	{
		AUTO_CLOSE int fd = open_ws();

		pause_now = true;
		fix_send(&f, fd, three, n);
		fix_pump(&f, 10);
		CHECK_EQ(messages, 1);
		ws_resume(ws);
		CHECK_EQ(messages, 1); /* not from within */
		fix_pump(&f, 10);
		CHECK_EQ(messages, 2);
		pause_now = false;
		ws_resume(ws);
		fix_pump(&f, 10);
		CHECK_EQ(messages, 3);
		CHECK_STR(last, "c");
	}
	fix_pump(&f, 10);
	CHECK_EQ(gone, 1);
	fix_down(&f);
}

TEST(closing_sends_what_is_queued_and_says_nothing_more)
{
	static char data[1 << 16];
	size_t all = 0;

	fix_up(&f, NULL, upgrade);
	{
		AUTO_CLOSE int fd = open_ws();

		while (ws_queued(ws) < HTTP_HIGH) {
			ws_send(ws, false, &(struct http_piece){ data, 65000 }, 1);
			all += 65004;
		}
		CHECK_EQ(drains, 0);
		ws_close(ws, 1001, "going");
		for (;;) {
			ssize_t r = recv(fd, g.data, sizeof(g.data), MSG_DONTWAIT);

			if (!r)
				break;
			if (r > 0) {
				CHECK((size_t)r <= all + 9);
				all -= (size_t)r;
				g.len = (size_t)r;
			}
			uv_run(&f.loop, UV_RUN_NOWAIT);
		}
		CHECK_EQ(all, (size_t)-9);
		CHECK(!memcmp(g.data + g.len - 9, "\x88\x07\x03\xe9going", 9));
	}
	fix_pump(&f, 10);
	CHECK_EQ(gone, 0);
	CHECK_EQ(http_server_conns(f.server), 0);
	{
		AUTO_CLOSE int fd = open_ws();

		close_now = true; /* from within a message's callback, with another behind it */
		send_frame(fd, 0x81, "x", 1);
		send_frame(fd, 0x81, "y", 1);
		shutdown(fd, SHUT_WR);
		fix_read(&f, fd, &g, 500);
		CHECK_EQ(close_code(), 1000);
	}
	CHECK_EQ(messages, 1);
	CHECK_EQ(gone, 0);
	fix_down(&f);
}

TEST(a_full_queue_that_falls_is_said_once)
{
	static char data[1 << 16];

	fix_up(&f, NULL, upgrade);
	{
		AUTO_CLOSE int fd = open_ws();

		while (ws_queued(ws) < HTTP_HIGH)
			ws_send(ws, false, &(struct http_piece){ data, sizeof(data) }, 1);
		fix_pump(&f, 10);
		CHECK_EQ(drains, 0);
		while (ws_queued(ws)) {
			(void)recv(fd, g.data, sizeof(g.data), MSG_DONTWAIT);
			uv_run(&f.loop, UV_RUN_NOWAIT);
		}
		CHECK_EQ(drains, 1);
	}
	fix_down(&f);
	CHECK_EQ(gone, 1);
}

TEST(a_client_that_never_says_what_it_wants_is_cut)
{
	asks = true;
	fix_up(&f, NULL, upgrade);
	f.server->wait_ms[WAIT_PING] = 200;
	{
		AUTO_CLOSE int fd = open_ws(), other = open_ws();

		gone = 0;
		send_frame(other, 0x81, "hello", 5);
		send_frame(fd, 0x8a, "", 0); /* it is there, and that is all */
		send_frame(fd, 0x01, "he", 2); /* half of a message */
		CHECK(fix_until(&f, &gone, 1));
		fix_read(&f, other, &g, 5000);
		CHECK_EQ(gone, 1);
	}
	asks = false;
	fix_down(&f);
}

TEST(a_silent_client_is_pinged_and_cut_when_it_stays_silent)
{
	fix_up(&f, NULL, upgrade);
	f.server->wait_ms[WAIT_PING] = 200;
	{
		AUTO_CLOSE int fd = open_ws();

		for (unsigned i = 0; i < 3; i++) {
			fix_read(&f, fd, &g, 5000);
			CHECK_EQ(g.len, 2);
			CHECK(!memcmp(g.data, "\x89\0", 2));
			CHECK_EQ(gone, 0);
			if (i < 2)
				send_frame(fd, 0x8a, "", 0);
		}
		CHECK(fix_until(&f, &gone, 1));
	}
	fix_down(&f);
	CHECK_EQ(gone, 1);
}
