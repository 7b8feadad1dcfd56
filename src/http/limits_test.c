/* Limits of time, memory and number, and back pressure. */
#include "http/conn.h"
#include "http/http_test.h"

#include <sys/resource.h>

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

TEST(a_client_that_reads_no_answers_gets_no_more_requests_read)
{
	static char text[400000];
	size_t n = 0;

	fix_up(&f, NULL, answer);
	while (n + sizeof(GET) < sizeof(text))
		n += (size_t)snprintf(text + n, sizeof(text) - n, GET);
	{
		AUTO_CLOSE int fd = fix_dial(&f);
		unsigned last = 0, still = 0;

		/* Until the answers have filled the sockets between us. */
		for (unsigned i = 0; i < 100000 && still < 100; i++) {
			(void)send(fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);
			uv_run(&f.loop, UV_RUN_NOWAIT);
			still = f.requests == last ? still + 1 : 0;
			last = f.requests;
		}
		CHECK(last > 1000 && still == 100);
		fix_pump(&f, 20);
		CHECK_EQ(f.requests, last);
	}
	fix_down(&f);
}

TEST(many_requests_at_once_are_all_answered_but_not_in_one_go)
{
	static char text[60000];
	size_t n = 0;

	while (n + sizeof(GET) < 27000)
		n += (size_t)snprintf(text + n, sizeof(text) - n, GET);
	fix_up(&f, NULL, answer);
	{
		AUTO_CLOSE int fd = fix_dial(&f);
		unsigned all = (unsigned)(n / (sizeof(GET) - 1)), got = 0, first = 0;

		CHECK_EQ(send(fd, text, n, 0), (ssize_t)n);
		while (!first) {
			uv_run(&f.loop, UV_RUN_NOWAIT);
			first = f.requests;
		}
		CHECK(first < 40);
		for (unsigned i = 0; i < 1000 && got < all; i++) {
			fix_read(&f, fd, &g, 20);
			got += got_answers(&g);
		}
		CHECK_EQ(f.requests, all);
	}
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

TEST(a_quiet_stream_of_events_carries_comments)
{
	fix_up(&f, NULL, events);
	f.server->wait_ms[WAIT_SSE] = 50;
	{
		AUTO_CLOSE int fd = fix_dial(&f);
		char *at;

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		fix_pump(&f, 400);
		fix_read(&f, fd, &g, 100);
		at = strstr(g.data, "\r\n3\r\n:\n\n\r\n");
		CHECK(at);
		CHECK(strstr(at + 3, "3\r\n:\n\n\r\n"));
		http_end(f.last);
		fix_read(&f, fd, &g, 100);
		CHECK(g.len >= 5 && !memcmp(g.data + g.len - 5, "0\r\n\r\n", 5));
	}
	fix_down(&f);
	CHECK_EQ(f.gone, 0);
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

TEST(a_quiet_stream_whose_client_half_closed_is_given_up_in_the_end)
{
	fix_up(&f, NULL, begin);
	f.server->wait_ms[WAIT_FIN] = 300;
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		shutdown(fd, SHUT_WR);
		fix_pump(&f, 30);
		CHECK_EQ(f.gone, 0);
		http_write(f.last, "x", 1);
		CHECK(fix_until(&f, &f.gone, 1));
	}
	fix_down(&f);
}

/* The loop of a real server sleeps; here, a limit in ms must hold within a few more. */
static bool cut_after(int fd, unsigned ms, const char *trickle)
{
	uint64_t start = clock_mono_ns(), took;
	char ch;

	for (;;) {
		ssize_t r;

		uv_run(&f.loop, UV_RUN_NOWAIT);
		if (trickle)
			(void)send(fd, trickle, strlen(trickle), MSG_NOSIGNAL | MSG_DONTWAIT);
		r = recv(fd, &ch, 1, MSG_DONTWAIT);
		took = (clock_mono_ns() - start) / 1000000;
		if (!r || (r < 0 && errno != EAGAIN) || took > 20ULL * ms + 2000)
			break;
		usleep(1000);
	}
	if (took + 5 < ms || took > 4ULL * ms + 500)
		printf("# cut after %llu ms\n", (unsigned long long)took);
	return took + 5 >= ms && took <= 4ULL * ms + 500;
}

TEST(slow_heads_and_idle_connections_are_cut_however_they_trickle)
{
	fix_up(&f, &(struct http_opts){ .head_ms = 100, .idle_ms = 150 }, answer);
	{
		AUTO_CLOSE int silent = fix_dial(&f), trickling = fix_dial(&f), idle = fix_dial(&f);

		CHECK(cut_after(silent, 100, NULL));
		for (unsigned i = 0; i < 100 && http_server_conns(f.server); i++)
			fix_pump(&f, 20);
		CHECK(http_server_conns(f.server) == 0);
		fd_close(trickling);
		trickling = fix_dial(&f);
		fix_send(&f, trickling, "GET / HTTP/1.1\r\nX: ", 19);
		CHECK(cut_after(trickling, 100, "a"));
		fd_close(idle);
		idle = fix_dial(&f);
		fix_send(&f, idle, GET, sizeof(GET) - 1);
		fix_read(&f, idle, &g, 500);
		CHECK_EQ(got_status(&g), 200);
		CHECK(cut_after(idle, 130, NULL));
	}
	CHECK_EQ(f.gone, 0);
	fix_down(&f);
}

TEST(three_hundred_half_open_connections_hinder_nobody_and_are_cut)
{
	int fds[300];
	uint64_t start;

	fix_up(&f, &(struct http_opts){ .head_ms = 1200 }, answer);
	for (unsigned i = 0; i < 300; i++) {
		fds[i] = fix_dial(&f);
		(void)send(fds[i], "GET / HTTP/1.1\r\nX: ", 19, MSG_NOSIGNAL);
		uv_run(&f.loop, UV_RUN_NOWAIT);
	}
	start = clock_mono_ns();
	fix_ask(&f, GET, &g);
	CHECK_EQ(got_status(&g), 200);
	CHECK(clock_mono_ns() - start < 1000000000);
	for (unsigned i = 0; i < 250 && http_server_conns(f.server); i++) {
		fix_pump(&f, 20);
		for (unsigned k = 0; k < 300; k++)
			(void)send(fds[k], "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	CHECK_EQ(http_server_conns(f.server), 0);
	fd_close_many(fds, 300);
	fix_down(&f);
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

TEST(slow_bodies_are_cut_and_so_are_those_that_trickle)
{
	static const char text[] = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n";

	fix_up(&f, &(struct http_opts){ .body_ms = 100 }, whole);
	{
		AUTO_CLOSE int silent = fix_dial(&f), trickling = fix_dial(&f);
		uint64_t until;

		fix_send(&f, silent, text, sizeof(text) - 1);
		CHECK(cut_after(silent, 100, NULL));
		CHECK_EQ(f.gone, 1);
		/* One byte in 30 ms keeps the silence short, but is less than 64 in a second. */
		fix_send(&f, trickling, text, sizeof(text) - 1);
		until = clock_mono_ns() + 5000000000;
		while (f.gone < 2 && clock_mono_ns() < until) {
			(void)send(trickling, "a", 1, MSG_NOSIGNAL);
			fix_pump(&f, 30);
		}
		CHECK_EQ(f.gone, 2);
	}
	fix_down(&f);
	CHECK_EQ(f.gone, 2);
}

TEST(a_body_beyond_the_limit_is_413_and_its_handler_told)
{
	static char text[4000];

	fix_up(&f, NULL, whole);
	snprintf(text, sizeof(text),
		 "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n%02000d\r\n0\r\n\r\n", 1);
	fix_ask(&f, text, &g);
	CHECK_EQ(got_status(&g), 413);
	CHECK_EQ(f.gone, 1);
	fix_ask(&f, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", &g);
	CHECK_EQ(got_status(&g), 413);
	CHECK_EQ(f.gone, 2);
	snprintf(text, sizeof(text), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n%01000d", 1);
	fix_ask(&f, text, &g);
	CHECK_EQ(got_status(&g), 200);
	CHECK_EQ(strlen(got_body(&g)), 1000);
	CHECK_EQ(f.gone, 2);
	fix_down(&f);
}

TEST(a_body_nobody_asked_for_is_skipped_if_short_and_cut_if_long)
{
	static char text[300000];
	size_t n;

	fix_up(&f, NULL, answer);
	n = (size_t)snprintf(text, sizeof(text), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n%020000d",
			     1);
	snprintf(text + n, sizeof(text) - n, GET);
	fix_ask(&f, text, &g);
	CHECK_EQ(got_answers(&g), 2);
	n = (size_t)snprintf(text, sizeof(text),
			     "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n%0200000d", 1);
	snprintf(text + n, sizeof(text) - n, GET);
	fix_ask(&f, text, &g);
	CHECK_EQ(got_answers(&g), 1);
	CHECK(g.closed);
	fix_down(&f);
}

static void piece(void *arg, const char *data, size_t len)
{
	struct fix *fix = arg;

	(void)data;
	fix->drains += (unsigned)len; /* bytes, here */
	http_body_pause(fix->last);
}

static void piece_end(void *arg)
{
	struct fix *fix = arg;

	fix->done++;
	http_send(fix->last, 200, NULL, "ok", 2);
}

static void pieces(struct fix *fix, struct http_req *q)
{
	http_set_gone(q, on_gone, fix);
	http_stream_body(q, piece, piece_end, fix);
}

TEST(a_streamed_body_stands_still_while_it_is_paused)
{
	static const char head[] = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\n\r\n";

	fix_up(&f, &(struct http_opts){ .body_ms = 500 }, pieces);
	{
		AUTO_CLOSE int fd = fix_dial(&f);
		size_t sent = 0;
		unsigned seen;
		ssize_t r;

		fix_send(&f, fd, head, sizeof(head) - 1);
		while (f.done == 0 && f.gone == 0) {
			r = send(fd, big + sent, sizeof(big) - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
			sent += r > 0 ? (size_t)r : 0;
			uv_run(&f.loop, UV_RUN_NOWAIT);
			seen = f.drains;
			if (seen > 1000000 && seen < 1100000) {
				/* Paused for longer than the time limit of bodies: the client is not the slow side. */
				fix_pump(&f, 700);
				CHECK_EQ(f.drains, seen);
			}
			http_body_resume(f.last);
		}
		fix_read(&f, fd, &g, 500);
	}
	CHECK_EQ(f.drains, 4194304);
	CHECK_EQ(f.done, 1);
	CHECK_EQ(f.gone, 0);
	CHECK_STR(got_body(&g), "ok");
	fix_down(&f);
}

TEST(who_does_not_read_fills_the_queue_once_and_is_cut)
{
	fix_up(&f, &(struct http_opts){ .send_ms = 600 }, begin);
	{
		AUTO_CLOSE int fd = fix_dial(&f), slow = fix_dial(&f);
		size_t queued, sent = 0, read = 0;
		ssize_t r;

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		fix_pump(&f, 5);
		while (http_queued(f.last) <= HTTP_HIGH && sent < 64 << 20) {
			http_write(f.last, big, 65536);
			sent += 65536;
		}
		queued = http_queued(f.last);
		CHECK(queued > HTTP_HIGH && queued < HTTP_HIGH + 70000);
		fix_pump(&f, 20);
		CHECK_EQ(http_queued(f.last), queued);
		CHECK_EQ(f.drains, 0);
		/* Reading brings it down, and that is said once. */
		while (read < sent) {
			r = recv(fd, big, sizeof(big), MSG_DONTWAIT);
			read += r > 0 ? (size_t)r : 0;
			uv_run(&f.loop, UV_RUN_NOWAIT);
		}
		CHECK_EQ(http_queued(f.last), 0);
		CHECK_EQ(f.drains, 1);
		http_end(f.last);

		fix_send(&f, slow, GET, sizeof(GET) - 1);
		fix_pump(&f, 5);
		while (http_queued(f.last) <= HTTP_HIGH)
			http_write(f.last, big, 65536);
		CHECK_EQ(f.gone, 0);
		fix_pump(&f, 100);
		CHECK_EQ(f.gone, 0);
		CHECK(fix_until(&f, &f.gone, 1));
	}
	fix_down(&f);
	CHECK_EQ(f.gone, 1);
}

TEST(who_writes_without_looking_is_cut)
{
	fix_up(&f, NULL, begin);
	{
		AUTO_CLOSE int fd = fix_dial(&f);

		fix_send(&f, fd, GET, sizeof(GET) - 1);
		fix_pump(&f, 5);
		for (unsigned i = 0; i < 40 && !f.gone; i++)
			http_write(f.last, big, sizeof(big));
		CHECK_EQ(f.gone, 0); /* not from within */
		fix_pump(&f, 5);
		CHECK_EQ(f.gone, 1);
	}
	fix_down(&f);
}

TEST(more_connections_than_allowed_wait_their_turn)
{
	fix_up(&f, &(struct http_opts){ .conns_max = 2 }, answer);
	{
		AUTO_CLOSE int a = fix_dial(&f), b = fix_dial(&f), c = fix_dial(&f);

		fix_send(&f, c, GET, sizeof(GET) - 1);
		fix_pump(&f, 20);
		CHECK_EQ(http_server_conns(f.server), 2);
		CHECK_EQ(f.requests, 0);
		fd_close(TAKE_FD(a));
		fix_read(&f, c, &g, 500);
		CHECK_EQ(got_status(&g), 200);
		(void)b;
	}
	fix_down(&f);
}

static long resident(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (file && fscanf(file, "%*d %ld", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return pages * 4096;
}

TEST(an_idle_connection_costs_less_than_eight_kilobytes)
{
	enum { N = 1000 };
	static int fds[N];
	struct rlimit nofile = { 4096, 4096 };
	long before;

	(void)setrlimit(RLIMIT_NOFILE, &nofile);
	fix_up(&f, NULL, answer);
	fix_ask(&f, GET, &g);
	before = resident();
	for (unsigned i = 0; i < N; i++) {
		fds[i] = fix_dial(&f);
		fix_send(&f, fds[i], GET, sizeof(GET) - 1);
	}
	fix_pump(&f, 50);
	CHECK_EQ(http_server_conns(f.server), N);
	printf("# %ld bytes each\n", (resident() - before) / N);
#ifndef __SANITIZE_ADDRESS__
	CHECK((resident() - before) / N < 8192);
#endif
	fd_close_many(fds, N);
	fix_down(&f);
}

TEST(running_out_of_descriptors_only_makes_clients_wait)
{
	struct rlimit old, low;

	fix_up(&f, NULL, answer);
	{
		AUTO_CLOSE int fd = fix_dial(&f);
		int next = dup(fd);

		fd_close(next);
		CHECK_EQ(send(fd, GET, sizeof(GET) - 1, 0), sizeof(GET) - 1);
		getrlimit(RLIMIT_NOFILE, &old);
		low = (struct rlimit){ .rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max };
		setrlimit(RLIMIT_NOFILE, &low);
		fix_pump(&f, 50);
		setrlimit(RLIMIT_NOFILE, &old);
		CHECK_EQ(f.requests, 0);
		CHECK_EQ(http_server_conns(f.server), 0);
		fix_read(&f, fd, &g, 5000);
		CHECK_EQ(got_status(&g), 200);
	}
	fix_down(&f);
}
