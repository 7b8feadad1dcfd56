/*
 * For tests: terminated streams for real. A client and a server with TLS of their own, each in a thread, and the stream
 * between them in a loop. The world has a CA, the sandbox another.
 */
#pragma once
#include "egress/mitm.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

#define NAME "api.example.test"
#define GET "GET /a HTTP/1.1\r\nHost: " NAME "\r\n\r\n"
#define PLAIN "Accept-Encoding: identity\r\n" /* with what is injected */
#define OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/* One end: a blocking socket, plain or TLS. */
struct peer {
	int fd;
	SSL_CTX *ctx; /* NULL: plain */
	SSL *ssl;
	pthread_t thread;
	void (*fn)(struct peer *p);
	char got[4096]; /* all that was read by hear() */
	size_t len;
	int shook; /* SSL_do_handshake's */
	bool torn; /* an end without TLS's farewell */
	uint64_t count;
};

static struct {
	struct loop loop;
	struct ca *world, *sandbox;
	struct buf world_pem, sandbox_pem;
	struct trust *trust;
	struct inject *inject;
	struct mitm *m;
	struct peer client, server;
	uint64_t out, in, most;
	unsigned requests, allowed;
	unsigned uneven; /* 0: all requested bytes may move; else every third time a few, and sockets take few, too */
	unsigned pending; /* threads */
	int go[2]; /* a pipe: the server waits for a byte of the test */
	bool ended;
	uint8_t verdict;
	char reason[EGRESS_TEXT_MAX];
} f;

static inline const char *on_request(void *arg, bool first)
{
	(void)arg;
	(void)first;
	return ++f.requests > f.allowed ? "too many requests" : NULL;
}

static inline size_t on_may(void *arg, size_t want)
{
	(void)arg;
	return f.uneven && f.uneven++ % 3 == 0 && want > 100 ? 100 : want;
}

static inline bool on_moved(void *arg, size_t out, size_t in)
{
	(void)arg;
	f.out += out;
	f.in += in;
	return !f.most || f.out + f.in <= f.most;
}

static inline void on_ended(void *arg, uint8_t verdict, const char *reason)
{
	(void)arg;
	f.ended = true;
	f.m = NULL;
	f.verdict = verdict;
	snprintf(f.reason, sizeof(f.reason), "%s", reason);
}

static const struct mitm_ops ops = { .request = on_request, .may = on_may, .moved = on_moved, .ended = on_ended };

static inline void make_ca(struct ca **ret, struct buf *pem)
{
	struct buf key = BUF_INIT(CA_PEM_MAX);
	struct err e = { 0 };

	*pem = (struct buf)BUF_INIT(CA_PEM_MAX);
	if (ca_make("test", 2, pem, &key, &e) < 0 || ca_open(buf_str(pem), buf_str(&key), ret, &e) < 0)
		printf("# %s\n", e.msg);
	ca_wipe(&key);
}

static inline void pair(int *ours, int *theirs)
{
	struct timeval limit = { .tv_sec = 60 };
	int fds[2] = { -1, -1 }, small = 4096;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 || fd_set_nonblock(fds[0]) < 0)
		printf("# socketpair: %d\n", errno);
	setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fds[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (f.uneven)
		setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	*ours = fds[0];
	*theirs = fds[1];
}

static inline void *peer_run(void *arg)
{
	struct peer *p = arg;

	if (p->ssl)
		p->shook = SSL_do_handshake(p->ssl);
	if (!p->ssl || p->shook == 1)
		p->fn(p);
	if (p->ssl && p->shook == 1 && !p->torn)
		SSL_shutdown(p->ssl);
	shutdown(p->fd, SHUT_WR);
	__atomic_sub_fetch(&f.pending, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static inline int say(struct peer *p, const void *data, size_t len)
{
	if (!p->ssl)
		return fd_write_all(p->fd, data, len);
	return len && SSL_write(p->ssl, data, (int)len) != (int)len ? -EIO : 0;
}

static inline ssize_t hear(struct peer *p, void *data, size_t len)
{
	ssize_t n;

	if (!p->ssl)
		return recv(p->fd, data, len, 0);
	n = SSL_read(p->ssl, data, (int)len);
	if (n <= 0)
		p->torn = SSL_get_error(p->ssl, (int)n) != SSL_ERROR_ZERO_RETURN;
	return n;
}

/* Until @text has come, or the end. */
static inline bool hear_until(struct peer *p, const char *text)
{
	ssize_t n = 1;

	while (!(text && memmem(p->got, p->len, text, strlen(text))) && n > 0 && p->len < sizeof(p->got) - 1) {
		n = hear(p, p->got + p->len, sizeof(p->got) - 1 - p->len);
		if (n > 0)
			p->len += (size_t)n;
	}
	return n > 0;
}

static inline SSL_CTX *client_ctx(const struct buf *pem)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	BIO *b = BIO_new_mem_buf(buf_str(pem), -1);
	X509 *x = PEM_read_bio_X509(b, NULL, NULL, NULL);

	X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), x);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	X509_free(x);
	BIO_free(b);
	return ctx;
}

static inline void set_inject(const char *value, bool tls)
{
	struct egress_inject i = { EGRESS_HEADER, tls, tls ? 443 : 80, NAME, "X-Key", value, "KEY", 0, 0 };
	struct err e = { 0 };

	if (inject_new(&i, 1, NULL, &f.inject, &e) < 0)
		printf("# %s\n", e.msg);
}

static inline void up(bool tls)
{
	char path[] = "/tmp/cloche-mitm-XXXXXX";
	int fd = mkstemp(path);
	struct err e = { 0 };

	memset(&f, 0, sizeof(f));
	signal(SIGPIPE, SIG_IGN);
	f.allowed = 100;
	loop_init(&f.loop);
	make_ca(&f.world, &f.world_pem);
	make_ca(&f.sandbox, &f.sandbox_pem);
	fd_write_all(fd, f.world_pem.data, f.world_pem.len);
	if (trust_new(path, &f.trust, &e) < 0)
		printf("# %s\n", e.msg);
	fd_close(fd);
	unlink(path);
	set_inject("s3cret", tls);
	f.client.fd = f.server.fd = -1;
	if (tls)
		f.client.ctx = client_ctx(&f.sandbox_pem);
}

static inline void peer_start(struct peer *p, void (*fn)(struct peer *p))
{
	p->fn = fn;
	__atomic_add_fetch(&f.pending, 1, __ATOMIC_SEQ_CST);
	if (pthread_create(&p->thread, NULL, peer_run, p) != 0)
		printf("# no thread\n");
}

/* The stream and its client. */
static inline void begin(bool tls, void (*client)(struct peer *p))
{
	char own[] = NAME;
	struct err e = { 0 };
	int ours;

	pair(&ours, &f.client.fd);
	if (mitm_new(&(struct mitm_opts){ .loop = &f.loop,
					  .client = ours,
					  .name = NAME,
					  .port = tls ? 443 : 80,
					  .tls = tls,
					  .ca = f.sandbox,
					  .trust = f.trust,
					  .inject = f.inject,
					  .ops = &ops },
		     &f.m, &e) < 0)
		printf("# %s\n", e.msg);
	if (tls) {
		f.client.ssl = SSL_new(f.client.ctx);
		SSL_set_fd(f.client.ssl, f.client.fd);
		SSL_set_tlsext_host_name(f.client.ssl, own);
		SSL_set1_host(f.client.ssl, own);
		SSL_set_connect_state(f.client.ssl);
	}
	peer_start(&f.client, client);
}

/* The server, with a certificate of @ca for @name; NULL: plain. */
static inline void serve(struct ca *ca, const char *name, void (*server)(struct peer *p))
{
	struct err e = { 0 };
	int ours;

	pair(&ours, &f.server.fd);
	if (ca) {
		SSL_CTX *ctx = NULL;

		if (ca_context(ca, name, &ctx, &e) < 0)
			printf("# %s\n", e.msg);
		f.server.ssl = SSL_new(ctx);
		SSL_set_fd(f.server.ssl, f.server.fd);
		SSL_set_accept_state(f.server.ssl);
	}
	peer_start(&f.server, server);
	mitm_connected(f.m, ours, NULL);
}

/* Until the stream has ended and both threads have. */
static inline void turn(void)
{
	/* How many turns that takes is the machine's matter: a busy one has more of them. */
	uint64_t until = clock_mono_ns() + 60 * LOOP_SEC;

	while (!f.ended && clock_mono_ns() < until)
		loop_turn(&f.loop, 20);
	mitm_free(f.m);
	f.m = NULL;
	while (__atomic_load_n(&f.pending, __ATOMIC_SEQ_CST))
		loop_turn(&f.loop, 20);
	if (f.client.fd >= 0)
		pthread_join(f.client.thread, NULL);
	if (f.server.fd >= 0)
		pthread_join(f.server.thread, NULL);
}

static inline void down(void)
{
	struct peer *p[] = { &f.client, &f.server };

	for (size_t i = 0; i < 2; i++) {
		SSL_free(p[i]->ssl);
		SSL_CTX_free(p[i]->ctx);
		fd_close(p[i]->fd);
	}
	inject_unref(f.inject);
	trust_free(f.trust);
	ca_close(f.world);
	ca_close(f.sandbox);
	buf_done(&f.world_pem);
	buf_done(&f.sandbox_pem);
	loop_done(&f.loop);
}

/* What clients and servers do in more than one test. */

static inline void ask_once(struct peer *p)
{
	say(p, GET, strlen(GET));
	hear_until(p, NULL);
}

static inline void answer_one(struct peer *p)
{
	hear_until(p, "\r\n\r\n");
	say(p, OK, strlen(OK));
	hear_until(p, NULL);
}

static inline void listen_only(struct peer *p)
{
	hear_until(p, NULL);
}

static inline void farewell(struct peer *p)
{
	hear_until(p, "\r\n\r\n");
	say(p, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall", 42);
}
