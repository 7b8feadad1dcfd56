/* Connections that were upgraded to bytes: both halves, backpressure, ends. */
#include "http/conn.h"
#include "http/http_test.h"

#define ASK "GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

static struct fix f;
static struct got g;
static struct {
	struct tunnel *t;
	char data[256];
	size_t len;
	unsigned eofs, gone, drains;
	bool echo;
} x;

static void on_data(void *arg, const char *p, size_t len)
{
	(void)arg;
	if (x.len + len < sizeof(x.data))
		memcpy(x.data + x.len, p, len);
	x.len += len;
	if (x.echo)
		tunnel_write(x.t, p, len);
}

static void on_eof(void *arg)
{
	(void)arg;
	x.eofs++;
}

static void on_gone(void *arg)
{
	(void)arg;
	x.gone++;
	x.t = NULL;
}

static void on_drain(void *arg)
{
	(void)arg;
	x.drains++;
}

static const struct tunnel_calls calls = { .data = on_data, .eof = on_eof, .drain = on_drain, .gone = on_gone };

static void later(struct fix *fix, struct http_req *q)
{
	(void)fix;
	(void)q;
}

static void accept_it(struct fix *fix, struct http_req *q)
{
	(void)fix;
	http_set(q, "X-Own", "yes");
	if (tunnel_accept(q, "tcp", &calls, NULL, &x.t) < 0)
		http_send(q, 426, "text/plain", "no", 2);
}

static void up(void (*handle)(struct fix *fix, struct http_req *q))
{
	memset(&x, 0, sizeof(x));
	fix_up(&f, NULL, handle);
}

TEST(bytes_go_both_ways_behind_the_answer)
{
	up(accept_it);
	x.echo = true;
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, ASK, sizeof(ASK) - 1);
		fix_read(&f, fd, &g, 1000);
		CHECK_EQ(got_status(&g), 101);
		CHECK(strstr(g.data, "\r\nUpgrade: tcp\r\n") != NULL);
		CHECK(strstr(g.data, "\r\nX-Own: yes\r\n") != NULL);
		fix_send(&f, fd, "ping", 4);
		fix_read(&f, fd, &g, 1000);
		CHECK_STR(g.data, "ping");
	}
	CHECK(fix_until(&f, &x.eofs, 1));
	tunnel_end(x.t);
	fix_down(&f);
	CHECK_EQ(x.gone, 0);
}

TEST(what_came_with_the_request_is_delivered_once_it_is_accepted)
{
	up(later);
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, ASK "early", sizeof(ASK "early") - 1);
		CHECK(fix_until(&f, &f.requests, 1));
		CHECK_EQ(tunnel_accept(f.last, "tcp", &calls, NULL, &x.t), 0);
		for (unsigned i = 0; i < 100 && x.len < 5; i++)
			fix_pump(&f, 10);
		CHECK_EQ(x.len, 5);
		CHECK(!memcmp(x.data, "early", 5));
		tunnel_cut(x.t);
		fix_read(&f, fd, &g, 1000);
		CHECK(g.closed);
	}
	fix_down(&f);
	CHECK_EQ(x.gone, 0);
}

TEST(a_request_that_asks_for_no_upgrade_is_still_to_be_answered)
{
	up(accept_it);
	fix_ask(&f, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_EQ(got_status(&g), 426);
	fix_ask(&f, "POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 1\r\n\r\nx",
		&g);
	CHECK_EQ(got_status(&g), 426);
	fix_down(&f);
}

TEST(each_half_ends_for_itself)
{
	up(accept_it);
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, ASK, sizeof(ASK) - 1);
		fix_read(&f, fd, &g, 1000);
		shutdown(fd, SHUT_WR);
		CHECK(fix_until(&f, &x.eofs, 1));
		tunnel_write(x.t, "still", 5);
		fix_read(&f, fd, &g, 1000);
		CHECK_STR(g.data, "still");
		CHECK(!g.closed);
		tunnel_end(x.t);
		fix_read(&f, fd, &g, 1000);
		CHECK(g.closed);
	}
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		x.len = x.eofs = 0;
		fix_send(&f, fd, ASK, sizeof(ASK) - 1);
		fix_read(&f, fd, &g, 1000);
		tunnel_write(x.t, "last", 4);
		tunnel_shut(x.t);
		fix_read(&f, fd, &g, 1000);
		CHECK_STR(g.data, "last");
		CHECK(g.closed);
		fix_send(&f, fd, "up", 2);
		for (unsigned i = 0; i < 100 && x.len < 2; i++)
			fix_pump(&f, 10);
		CHECK_EQ(x.len, 2);
		/* Said by both, but held: it is delivered all the same. */
		tunnel_pause(x.t);
		fix_send(&f, fd, "held", 4);
		shutdown(fd, SHUT_WR);
		fix_pump(&f, 30);
		CHECK_EQ(x.len, 2);
		CHECK_EQ(x.gone, 0);
		tunnel_resume(x.t);
		CHECK(fix_until(&f, &x.eofs, 1));
		CHECK_EQ(x.len, 6);
		tunnel_end(x.t);
	}
	fix_down(&f);
	CHECK_EQ(x.gone, 0);
}

TEST(who_does_not_read_is_waited_for_and_then_told)
{
	static char big[1 << 16];
	size_t sent = 0, read = 0;

	up(accept_it);
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, ASK, sizeof(ASK) - 1);
		fix_read(&f, fd, &g, 1000);
		while (tunnel_queued(x.t) < HTTP_HIGH && sent < (64U << 20)) {
			tunnel_write(x.t, big, sizeof(big));
			sent += sizeof(big);
		}
		CHECK(tunnel_queued(x.t) >= HTTP_HIGH);
		CHECK_EQ(x.drains, 0);
		while (read < sent) {
			ssize_t r = recv(fd, big, sizeof(big), MSG_DONTWAIT);

			if (r > 0)
				read += (size_t)r;
			else if (!r)
				break;
			uv_run(&f.loop, UV_RUN_NOWAIT);
		}
		CHECK_EQ(read, sent);
		CHECK_EQ(x.drains, 1);
		tunnel_end(x.t);
	}
	fix_down(&f);
}

TEST(a_client_that_breaks_off_is_gone)
{
	struct linger hard = { .l_onoff = 1 };
	int fd;

	up(accept_it);
	fd = fix_dial(&f);
	fix_send(&f, fd, ASK, sizeof(ASK) - 1);
	fix_read(&f, fd, &g, 1000);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	fd_close(fd);
	CHECK(fix_until(&f, &x.gone, 1));
	CHECK_EQ(x.eofs, 0);
	fix_down(&f);
}

static bool is_foreign(void *arg, const struct http_req *q)
{
	(void)arg;
	return !strncmp(http_path(q), "/p/", 3);
}

static void tell(struct fix *fix, struct http_req *q)
{
	const char *query = http_query_text(q);

	(void)fix;
	if (http_foreign(q))
		http_bare(q);
	snprintf(f.seen, sizeof(f.seen), "%d %s ? %s", http_foreign(q), http_path(q), query ? query : "-");
	http_send(q, 200, "text/plain", f.seen, strlen(f.seen));
}

TEST(what_is_for_somebody_else_is_not_looked_at)
{
	struct http_opts o = { .foreign = is_foreign };

	fix_up(&f, &o, tell);
	fix_ask(&f, "GET /p//a/../%2f%zz/;x/?q=%&&x=1?y HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_STR(got_body(&g), "1 /p//a/../%2f%zz/;x/ ? q=%&&x=1?y");
	CHECK(strstr(g.data, "Server:") == NULL);
	fix_ask(&f, "GET /o/../p/ HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_EQ(got_status(&g), 400);
	fix_ask(&f, "GET /o?a=1 HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_STR(got_body(&g), "0 /o ? -");
	CHECK(strstr(g.data, "Server:") != NULL);
	fix_down(&f);
}
