/* `cloche port-forward`: connections to ports of this machine end at servers inside a sandbox. */
#include "client/client.h"
#include "base/base.h"
#include "base/fd.h"
#include "base/str.h"
#include "client/show.h"
#include "client/upgrade.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORTS_MAX 64
#define CONNS_MAX 512
#define PIECE (64 * KIB)

static const char help[] =
	"usage: cloche port-forward SANDBOX [LOCAL:]PORT…\n"
	"\n"
	"Listens on 127.0.0.1 and forwards each connection to a port inside the sandbox, until it is interrupted.\n"
	"The server inside may listen on 127.0.0.1, ::1 or all addresses; the sandbox needs no network.\n"
	"\n"
	"  8000          from 127.0.0.1:8000 to port 8000 inside\n"
	"  9000:8000     from 127.0.0.1:9000\n"
	"  0:8000        from a free port, which is printed\n";

struct forward {
	struct conn *conn;
	const char *sandbox;
	atomic_uint conns;
};

struct listener {
	int fd;
	uint16_t local, port;
};

/* One connection, in its own thread, so that connections do not wait for each other. */
struct carried {
	struct forward *f;
	uint16_t port;
	int fd; /* here */
	struct upgrade up; /* there */
	/* Read and not yet written: from here, and from there. */
	char *out, *in;
	size_t out_at, out_len, in_at, in_len;
	bool out_end, in_end; /* nothing more comes */
	bool out_shut, in_shut; /* and the other side knows */
};

/* ---- one connection ---- */

static int read_here(struct carried *c)
{
	ssize_t n;

	if (c->out_len || c->out_end)
		return 0;
	n = recv(c->fd, c->out, PIECE, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	c->out_end = !n;
	c->out_at = 0;
	c->out_len = (size_t)n;
	return n > 0;
}

static int read_there(struct carried *c)
{
	size_t n = 0;
	CURLcode code;

	if (c->in_len || c->in_end)
		return 0;
	if (c->up.early.len) {
		n = c->up.early.len < PIECE ? c->up.early.len : PIECE;
		memcpy(c->in, c->up.early.data, n);
		buf_drop(&c->up.early, n);
	} else {
		code = curl_easy_recv(c->up.easy, c->in, PIECE, &n);
		if (code == CURLE_AGAIN)
			return 0;
		if (code != CURLE_OK)
			return -ECONNRESET;
		c->in_end = !n;
	}
	c->in_at = 0;
	c->in_len = n;
	return n > 0;
}

static int write_here(struct carried *c)
{
	ssize_t n = 0;

	if (c->in_len)
		n = send(c->fd, c->in + c->in_at, c->in_len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	c->in_at += (size_t)n;
	c->in_len -= (size_t)n;
	if (c->in_end && !c->in_len && !c->in_shut) {
		c->in_shut = true;
		(void)shutdown(c->fd, SHUT_WR);
	}
	return n > 0;
}

static int write_there(struct carried *c)
{
	size_t n = 0;
	CURLcode code = CURLE_OK;

	if (c->out_len)
		code = curl_easy_send(c->up.easy, c->out + c->out_at, c->out_len, &n);
	if (code != CURLE_OK && code != CURLE_AGAIN)
		return -ECONNRESET;
	c->out_at += n;
	c->out_len -= n;
	if (c->out_end && !c->out_len && !c->out_shut) {
		c->out_shut = true;
		return upgrade_shut(&c->up);
	}
	return n > 0;
}

/* Until both have said all, or one breaks: then the other shall see that, and not a proper end. */
static int carry(struct carried *c)
{
	while (!c->in_shut || !c->out_shut) {
		int (*const steps[])(struct carried *) = { read_here, write_there, read_there, write_here };
		struct pollfd p[2] = { { .fd = c->fd }, { .fd = c->up.fd } };
		bool moved = false;

		for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
			int r = steps[i](c);

			if (r < 0)
				return r;
			moved = moved || r;
		}
		if (moved || (c->in_shut && c->out_shut))
			continue;
		if (!c->out_len && !c->out_end)
			p[0].events |= POLLIN;
		if (c->in_len)
			p[0].events |= POLLOUT;
		if (!c->in_len && !c->in_end)
			p[1].events |= POLLIN;
		if (c->out_len)
			p[1].events |= POLLOUT;
		/* A side without events would make poll() return at once after its end. */
		for (int i = 0; i < 2; i++)
			if (!p[i].events)
				p[i].fd = -1;
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return -errno;
	}
	return 0;
}

static void *run_one(void *arg)
{
	struct carried *c = arg;
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct linger hard = { .l_onoff = 1 };
	struct err e = { 0 };
	int r = url_add(&path, "/v1/sandboxes/%s/tunnels/%u", c->f->sandbox, (unsigned long long)c->port);

	c->out = malloc(PIECE);
	c->in = malloc(PIECE);
	if (r < 0 || !c->out || !c->in)
		r = err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	if (r == 0)
		r = upgrade_open(c->f->conn, &(struct upgrade_spec){ buf_str(&path), "tcp", NULL }, &c->up, &e);
	if (r < 0)
		show_warn("port %u: %s", c->port, e.msg);
	else
		r = carry(c);
	if (r < 0)
		(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	fd_close(c->fd);
	upgrade_done(&c->up);
	free(c->out);
	free(c->in);
	c->f->conns--;
	free(c);
	return NULL;
}

/* ---- listening ---- */

/* "8000", "9000:8000". */
static int read_spec(const char *text, struct listener *ret, struct err *e)
{
	const char *colon = strchr(text, ':');
	char first[8] = "";
	uint64_t local = 0, port = 0;
	int r = colon && colon - text < (ptrdiff_t)sizeof(first) ? 0 : colon ? -EINVAL : 0;

	if (colon && r == 0)
		memcpy(first, text, (size_t)(colon - text));
	if (r == 0)
		r = parse_u64(colon ? colon + 1 : text, &port, NULL);
	local = port;
	if (r == 0 && colon)
		r = parse_u64(first, &local, NULL);
	if (r < 0 || !port || port > UINT16_MAX || local > UINT16_MAX) {
		err_set(e, ERR_INVALID, -EINVAL, "invalid port '%.40s'", text);
		err_remedy(e, "use PORT or LOCAL:PORT, as 8000 or 9000:8000; a port is at most 65535");
		return -EINVAL;
	}
	*ret = (struct listener){ .fd = -1, .local = (uint16_t)local, .port = (uint16_t)port };
	return 0;
}

static int listen_on(struct listener *l, struct err *e)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(l->local) };
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t len = sizeof(a);
	int one = 1;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 128) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0) {
		int r = -errno;

		err_sys(e, ERR_CONFLICT, r, "listen on 127.0.0.1:%u", l->local);
		err_remedy(e, "choose another with LOCAL:%u, or 0:%u for any", l->port, l->port);
		return r;
	}
	l->local = ntohs(a.sin_port);
	l->fd = TAKE_FD(fd);
	return 0;
}

static void accept_one(struct forward *f, const struct listener *l)
{
	struct carried *c;
	pthread_attr_t detached;
	pthread_t id;
	int one = 1, r, fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c = f->conns < CONNS_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		show_warn("port %u: too many connections", l->port);
		fd_close(fd);
		return;
	}
	*c = (struct carried){ .f = f, .port = l->port, .fd = fd };
	f->conns++;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&id, &detached, run_one, c);
	pthread_attr_destroy(&detached);
	if (r) {
		show_warn("port %u: cannot start a thread: %s", l->port, strerror(r));
		f->conns--;
		fd_close(fd);
		free(c);
	}
}

static int serve(struct forward *f, const struct listener *l, int n, struct err *e)
{
	struct pollfd p[PORTS_MAX];

	for (int i = 0; i < n; i++) {
		p[i] = (struct pollfd){ .fd = l[i].fd, .events = POLLIN };
		printf("127.0.0.1:%u -> %u\n", l[i].local, l[i].port);
	}
	if (fflush(stdout) != 0)
		return err_sys(e, ERR_INTERNAL, -EPIPE, "write to stdout");
	for (;;) {
		if (poll(p, (nfds_t)n, -1) < 0 && errno != EINTR)
			return err_sys(e, ERR_INTERNAL, -errno, "wait for connections");
		for (int i = 0; i < n; i++)
			if (p[i].revents)
				accept_one(f, &l[i]);
	}
}

static int run(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *box = NULL;
	struct listener l[PORTS_MAX];
	struct forward f = { 0 };
	int n, r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_count(a, 2, 1 + PORTS_MAX, "SANDBOX [LOCAL:]PORT…", e);
	n = a->nrest - 1;
	for (int i = 0; r == 0 && i < n; i++)
		r = read_spec(a->rest[i + 1], &l[i], e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s", a->rest[0]);
	/* Better now than with the first connection. */
	if (r == 0)
		r = conn_get(c, buf_str(&path), &box, e);
	for (int i = 0; r == 0 && i < n; i++)
		r = listen_on(&l[i], e);
	if (r < 0)
		return r;
	f.conn = c;
	f.sandbox = a->rest[0];
	return serve(&f, l, n, e);
}

const struct command cmd_port_forward = {
	.name = "port-forward",
	.text = "forward local ports to servers inside a sandbox",
	.help = help,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
