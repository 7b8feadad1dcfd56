/*
 * Terminated streams for real: a client and a server with TLS of their own, each in a thread, and the stream between
 * them in a loop. The world has a CA, the sandbox another.
 */
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
#include "base/test.h"

#define NAME "api.example.test"
#define GET "GET /a HTTP/1.1\r\nHost: " NAME "\r\n\r\n"
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
	struct ca *world, *box;
	struct buf world_pem, box_pem;
	struct trust *trust;
	struct inject *inject;
	struct mitm *m;
	struct peer client, server;
	uint64_t out, in, most;
	unsigned requests, allowed;
	unsigned pending; /* threads */
	int go[2]; /* a pipe: the server waits for a byte of the test */
	bool ended;
	uint8_t verdict;
	char reason[EGRESS_TEXT_MAX];
} f;

static const char *on_request(void *arg, bool first)
{
	(void)arg;
	(void)first;
	return ++f.requests > f.allowed ? "too many requests" : NULL;
}

static bool on_moved(void *arg, size_t out, size_t in)
{
	(void)arg;
	f.out += out;
	f.in += in;
	return !f.most || f.out + f.in <= f.most;
}

static void on_ended(void *arg, uint8_t verdict, const char *reason)
{
	(void)arg;
	f.ended = true;
	f.m = NULL;
	f.verdict = verdict;
	snprintf(f.reason, sizeof(f.reason), "%s", reason);
}

static const struct mitm_ops ops = { .request = on_request, .moved = on_moved, .ended = on_ended };

static void make_ca(struct ca **ret, struct buf *pem)
{
	struct buf key = BUF_INIT(CA_PEM_MAX);
	struct err e = { 0 };

	*pem = (struct buf)BUF_INIT(CA_PEM_MAX);
	if (ca_make("test", 2, pem, &key, &e) < 0 || ca_open(buf_str(pem), buf_str(&key), ret, &e) < 0)
		printf("# %s\n", e.msg);
	ca_wipe(&key);
}

static void pair(int *ours, int *theirs)
{
	struct timeval limit = { .tv_sec = 60 };
	int fds[2] = { -1, -1 };

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 || fd_set_nonblock(fds[0]) < 0)
		printf("# socketpair: %d\n", errno);
	setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fds[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	*ours = fds[0];
	*theirs = fds[1];
}

static void *peer_run(void *arg)
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

static int say(struct peer *p, const void *data, size_t len)
{
	if (!p->ssl)
		return fd_write_all(p->fd, data, len);
	return len && SSL_write(p->ssl, data, (int)len) != (int)len ? -EIO : 0;
}

static ssize_t hear(struct peer *p, void *data, size_t len)
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
static bool hear_until(struct peer *p, const char *text)
{
	ssize_t n = 1;

	while (!(text && memmem(p->got, p->len, text, strlen(text))) && n > 0 && p->len < sizeof(p->got) - 1) {
		n = hear(p, p->got + p->len, sizeof(p->got) - 1 - p->len);
		if (n > 0)
			p->len += (size_t)n;
	}
	return n > 0;
}

static SSL_CTX *client_ctx(const struct buf *pem)
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

static void set_inject(const char *value, bool tls)
{
	struct egress_inject i = { EGRESS_HEADER, tls, tls ? 443 : 80, NAME, "X-Key", value, "KEY" };
	struct err e = { 0 };

	if (inject_new(&i, 1, &f.inject, &e) < 0)
		printf("# %s\n", e.msg);
}

static void up(bool tls)
{
	char path[] = "/tmp/cloche-mitm-XXXXXX";
	int fd = mkstemp(path);
	struct err e = { 0 };

	memset(&f, 0, sizeof(f));
	signal(SIGPIPE, SIG_IGN);
	f.allowed = 100;
	loop_init(&f.loop);
	make_ca(&f.world, &f.world_pem);
	make_ca(&f.box, &f.box_pem);
	fd_write_all(fd, f.world_pem.data, f.world_pem.len);
	if (trust_new(path, &f.trust, &e) < 0)
		printf("# %s\n", e.msg);
	fd_close(fd);
	unlink(path);
	set_inject("s3cret", tls);
	f.client.fd = f.server.fd = -1;
	if (tls)
		f.client.ctx = client_ctx(&f.box_pem);
}

static void peer_start(struct peer *p, void (*fn)(struct peer *p))
{
	p->fn = fn;
	__atomic_add_fetch(&f.pending, 1, __ATOMIC_SEQ_CST);
	if (pthread_create(&p->thread, NULL, peer_run, p) != 0)
		printf("# no thread\n");
}

/* The stream and its client. */
static void begin(bool tls, void (*client)(struct peer *p))
{
	char own[] = NAME;
	struct err e = { 0 };
	int ours;

	pair(&ours, &f.client.fd);
	if (mitm_new(&(struct mitm_opts){ .loop = &f.loop, .client = ours, .name = NAME, .port = tls ? 443 : 80, .tls = tls,
					  .ca = f.box, .trust = f.trust, .inject = f.inject, .ops = &ops },
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
static void serve(struct ca *ca, const char *name, void (*server)(struct peer *p))
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
static void turn(void)
{
	for (int i = 0; i < 3000 && !f.ended; i++)
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

static void down(void)
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
	ca_close(f.box);
	buf_done(&f.world_pem);
	buf_done(&f.box_pem);
	loop_done(&f.loop);
}

static void ask_once(struct peer *p)
{
	say(p, GET, strlen(GET));
	hear_until(p, NULL);
}

static void ask_twice(struct peer *p)
{
	static const char own[] = "GET /b HTTP/1.1\r\nHost: " NAME ":443\r\nx-key: mine\r\nConnection: close\r\n\r\n";

	say(p, GET, strlen(GET));
	hear_until(p, "\r\n\r\nok");
	p->len = 0;
	say(p, own, strlen(own));
	hear_until(p, NULL);
}

static void answer_two(struct peer *p)
{
	hear_until(p, "/a HTTP/1.1\r\nHost: " NAME "\r\nX-Key: s3cret\r\n\r\n");
	say(p, OK, strlen(OK));
	hear_until(p, "Connection: close\r\nX-Key: s3cret\r\n\r\n");
	say(p, OK, strlen(OK));
}

TEST(every_request_of_a_connection_gets_the_value)
{
	up(true);
	begin(true, ask_twice);
	serve(f.world, NAME, answer_two);
	turn();
	CHECK_EQ(f.client.shook, 1);
	CHECK_STR(f.client.got, OK);
	CHECK_CONTAINS(f.server.got, "GET /b HTTP/1.1\r\nHost: " NAME ":443\r\nConnection: close\r\nX-Key: s3cret\r\n\r\n");
	CHECK(!strstr(f.server.got, "mine"));
	CHECK_EQ(f.requests, 2);
	CHECK_EQ(f.out, f.server.len);
	CHECK_EQ(f.in, 2 * strlen(OK));
	CHECK_EQ(f.verdict, EGRESS_V_OK);
	down();
}

TEST(plain_http_gets_it_when_it_is_for_plain_http)
{
	up(false);
	begin(false, ask_once);
	serve(NULL, NULL, answer_two);
	for (int i = 0; i < 3000 && f.in < strlen(OK); i++)
		loop_turn(&f.loop, 20);
	shutdown(f.client.fd, SHUT_WR);
	turn();
	CHECK_STR(f.server.got, "GET /a HTTP/1.1\r\nHost: " NAME "\r\nX-Key: s3cret\r\n\r\n");
	CHECK_CONTAINS(f.client.got, OK);
	down();
}

static void listen_only(struct peer *p)
{
	hear_until(p, NULL);
}

TEST(a_server_with_a_stranger_s_certificate_gets_nothing)
{
	up(true);
	begin(true, ask_once);
	serve(f.box, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 502 ");
	CHECK_CONTAINS(f.client.got, "\"code\":\"unreachable\"");
	CHECK_CONTAINS(f.client.got, "the certificate of " NAME " is not trusted");
	CHECK_CONTAINS(f.client.got, "network_ca");
	CHECK_EQ(f.server.len, 0);
	CHECK_EQ(f.verdict, EGRESS_V_FAILED);
	CHECK_EQ(f.out, 0);
	down();
}

TEST(a_server_with_another_name_gets_nothing)
{
	up(true);
	begin(true, ask_once);
	serve(f.world, "other.example.test", listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 502 ");
	CHECK_CONTAINS(f.client.got, "hostname mismatch");
	CHECK_EQ(f.server.len, 0);
	down();
}

TEST(without_authorities_nobody_is_trusted)
{
	up(true);
	trust_free(f.trust);
	f.trust = NULL;
	begin(true, ask_once);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 502 ");
	CHECK_EQ(f.server.len, 0);
	down();
}

TEST(a_server_that_can_not_be_reached_is_told)
{
	up(true);
	begin(true, ask_once);
	mitm_connected(f.m, -1, "connection refused");
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 502 ");
	CHECK_CONTAINS(f.client.got, "connection refused");
	CHECK_EQ(f.verdict, EGRESS_V_FAILED);
	down();
}

static void ask_other(struct peer *p)
{
	static const char other[] = "GET / HTTP/1.1\r\nHost: other.example.test\r\n\r\n";

	say(p, GET, strlen(GET));
	hear_until(p, "\r\n\r\nok");
	p->len = 0;
	memset(p->got, 0, sizeof(p->got));
	say(p, other, strlen(other));
	hear_until(p, NULL);
}

static void answer_one(struct peer *p)
{
	hear_until(p, "\r\n\r\n");
	say(p, OK, strlen(OK));
	hear_until(p, NULL);
}

TEST(a_request_for_another_host_is_refused_and_not_passed_on)
{
	up(true);
	begin(true, ask_other);
	serve(f.world, NAME, answer_one);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 421 ");
	CHECK(!strstr(f.server.got, "other"));
	CHECK_EQ(f.verdict, EGRESS_V_DENIED);
	down();
}

static void ask_badly(struct peer *p)
{
	static const char bad[] = "POST / HTTP/1.1\r\nHost: " NAME "\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";

	say(p, bad, strlen(bad));
	hear_until(p, NULL);
}

TEST(an_ambiguous_request_is_refused)
{
	up(true);
	begin(true, ask_badly);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 400 ");
	CHECK_CONTAINS(f.client.got, "two ways");
	CHECK_EQ(f.server.len, 0);
	down();
}

static void farewell(struct peer *p)
{
	hear_until(p, "\r\n\r\n");
	say(p, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall", 42);
}

static void ask_much(struct peer *p)
{
	char line[1024];

	say(p, "GET / HTTP/1.1\r\nHost: " NAME "\r\nX: ", 26 + strlen(NAME));
	memset(line, 'x', sizeof(line));
	for (int i = 0; i < 40; i++)
		say(p, line, sizeof(line));
	hear_until(p, NULL);
}

TEST(a_head_that_never_ends_is_refused)
{
	up(true);
	begin(true, ask_much);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 400 ");
	CHECK_CONTAINS(f.client.got, "too large");
	CHECK_EQ(f.server.len, 0);
	down();
}

TEST(who_is_trusted_is_settled_when_it_begins)
{
	up(true);
	begin(true, ask_once);
	trust_free(TAKE_PTR(f.trust)); /* a new configuration came */
	serve(f.world, NAME, farewell);
	turn();
	CHECK_CONTAINS(f.client.got, "all");
	down();
}

TEST(a_budget_of_requests_is_told)
{
	up(true);
	f.allowed = 0;
	begin(true, ask_once);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 429 ");
	CHECK_CONTAINS(f.client.got, "too many requests");
	CHECK_EQ(f.server.len, 0);
	CHECK_EQ(f.verdict, EGRESS_V_BUDGET);
	down();
}

TEST(a_client_that_does_not_trust_us_ends_it)
{
	up(true);
	SSL_CTX_free(f.client.ctx);
	f.client.ctx = client_ctx(&f.world_pem);
	begin(true, ask_once);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK(f.client.shook != 1);
	CHECK_CONTAINS(f.reason, "does not trust the sandbox's CA");
	CHECK_EQ(f.server.len, 0);
	down();
}

#define BIG (12 * MIB)

/* Bytes whose place can be told. */
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
	    (size_t)snprintf(head, sizeof(head), "PUT /a HTTP/1.1\r\nHost: " NAME "\r\nContent-Length: %llu\r\n\r\n", BIG));
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
	static const char next[] = "\r\n0\r\n\r\nGET /a HTTP/1.1\r\nHost: " NAME "\r\nX-Key: s3cret\r\n\r\n";
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
	hear_until(p, "s3cret\r\n\r\n");
	say(p, SWITCH, strlen(SWITCH));
	hear_until(p, "there");
	say(p, "\x81\x04""back", 6);
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

	hear_until(p, "s3cret\r\n\r\n");
	if (read(f.go[0], &c, 1) == 1)
		say(p, OK, strlen(OK));
	hear_until(p, "fresh\r\n\r\n");
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
