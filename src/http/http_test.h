/* A real server on loopback and a client of bytes, in one thread: the loop runs while the client waits. */
#pragma once
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "http/http.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

struct fix {
	uv_loop_t loop;
	struct http_server *server;
	int port;
	void (*handle)(struct fix *f, struct http_req *q);
	struct http_req *last; /* for handlers that answer later */
	unsigned requests, gone, done, drains;
	char seen[256];
};

static void fix_request(void *arg, struct http_req *q)
{
	struct fix *f = arg;

	f->requests++;
	f->last = q;
	f->handle(f, q);
}

static int fix_socket(int *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 4096) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		abort();
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static inline void fix_up(struct fix *f, const struct http_opts *o, void (*handle)(struct fix *f, struct http_req *q))
{
	struct http_opts opts = o ? *o : (struct http_opts){ 0 };
	struct err e = { 0 };

	*f = (struct fix){ .handle = handle };
	uv_loop_init(&f->loop);
	opts.loop = &f->loop;
	opts.request = fix_request;
	opts.arg = f;
	if (http_server_new(&opts, &f->server, &e) < 0 ||
	    http_server_listen(f->server, fix_socket(&f->port), opts.tls_cert, &e) < 0) {
		printf("# %s\n", e.msg);
		abort();
	}
}

static inline void fix_down(struct fix *f)
{
	http_server_free(f->server);
	uv_run(&f->loop, UV_RUN_ONCE);
	if (uv_loop_close(&f->loop) != 0) {
		printf("# handles are left\n");
		abort();
	}
}

static inline int fix_dial(struct fix *f)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)f->port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		abort();
	return fd;
}

static inline void fix_pump(struct fix *f, unsigned ms)
{
	uint64_t until = clock_mono_ns() + ms * 1000000ULL;

	do {
		uv_run(&f->loop, UV_RUN_NOWAIT);
		usleep(200);
	} while (clock_mono_ns() < until);
}

/* Runs the loop until *@what is @value, for 5 s at most. */
static inline bool fix_until(struct fix *f, const unsigned *what, unsigned value)
{
	for (unsigned i = 0; i < 500 && *what != value; i++)
		fix_pump(f, 10);
	return *what == value;
}

struct got {
	char data[1 << 16];
	size_t len;
	bool closed;
};

/* Reads until the server closes, or has sent something and then nothing for 10 ms, or @ms are over. */
static inline void fix_read(struct fix *f, int fd, struct got *g, unsigned ms)
{
	uint64_t start = clock_mono_ns(), last = 0;

	*g = (struct got){ 0 };
	while (!g->closed && clock_mono_ns() - start < ms * 1000000ULL &&
	       !(last && clock_mono_ns() - last > 10000000)) {
		ssize_t r;

		uv_run(&f->loop, UV_RUN_NOWAIT);
		r = recv(fd, g->data + g->len, sizeof(g->data) - 1 - g->len, MSG_DONTWAIT);
		if (r > 0) {
			g->len += (size_t)r;
			last = clock_mono_ns();
		} else if (!r || errno != EAGAIN) {
			g->closed = true;
		} else {
			usleep(100);
		}
	}
	g->data[g->len] = '\0';
}

static inline void fix_send(struct fix *f, int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t r = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (r < 0 && errno != EAGAIN)
			return;
		if (r > 0) {
			data += r;
			len -= (size_t)r;
		}
		uv_run(&f->loop, UV_RUN_NOWAIT);
	}
}

/* One connection: @text in, the answer out. */
static inline void fix_ask(struct fix *f, const char *text, struct got *g)
{
	AUTO_CLOSE int fd = fix_dial(f);

	fix_send(f, fd, text, strlen(text));
	fix_read(f, fd, g, 1000);
}

static inline int got_status(const struct got *g)
{
	return g->len > 12 && !strncmp(g->data, "HTTP/1.1 ", 9) ?
		       (g->data[9] - '0') * 100 + (g->data[10] - '0') * 10 + (g->data[11] - '0') :
		       0;
}

static inline unsigned got_answers(const struct got *g)
{
	unsigned n = 0;

	for (const char *p = g->data; (p = strstr(p, "HTTP/1.1 ")); p++)
		n++;
	return n;
}

static inline const char *got_body(const struct got *g)
{
	const char *p = strstr(g->data, "\r\n\r\n");

	return p ? p + 4 : "";
}
