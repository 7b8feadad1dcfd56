/* TLS, with OpenSSL's own client and a certificate made here. */
#include "http/http_test.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#define GET "GET /tls HTTP/1.1\r\nHost: x\r\n\r\n"

static struct fix f;
static char cert_path[64], key_path[64];
static char big[1 << 20], back[2 << 20];

static void make_certificate(const char *cert, const char *key)
{
	EVP_PKEY *pkey = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	FILE *file;

	ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	X509_gmtime_adj(X509_getm_notBefore(x), -60);
	X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	X509_set_pubkey(x, pkey);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1,
				   -1, 0);
	X509_set_issuer_name(x, X509_get_subject_name(x));
	X509_sign(x, pkey, EVP_sha256());
	file = fopen(cert, "w");
	PEM_write_X509(file, x);
	fclose(file);
	file = fopen(key, "w");
	PEM_write_PrivateKey(file, pkey, NULL, NULL, 0, NULL, NULL);
	fclose(file);
	X509_free(x);
	EVP_PKEY_free(pkey);
}

static void up(void (*handle)(struct fix *fix, struct http_req *q))
{
	snprintf(cert_path, sizeof(cert_path), "/tmp/cloche-tls-%d.pem", getpid());
	snprintf(key_path, sizeof(key_path), "/tmp/cloche-tls-%d.key", getpid());
	make_certificate(cert_path, key_path);
	fix_up(&f, &(struct http_opts){ .tls_cert = cert_path, .tls_key = key_path }, handle);
}

static void down(void)
{
	fix_down(&f);
	unlink(cert_path);
	unlink(key_path);
}

struct client {
	SSL_CTX *ctx;
	SSL *ssl;
	int fd;
};

/* Runs the loop until OpenSSL is content. */
static int again(struct client *c, int r)
{
	int why = SSL_get_error(c->ssl, r);

	if (r > 0 || (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE))
		return 0;
	uv_run(&f.loop, UV_RUN_NOWAIT);
	return 1;
}

static bool client_new(struct client *c, int max_version)
{
	int r;

	ERR_clear_error();
	c->ctx = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_min_proto_version(c->ctx, TLS1_VERSION);
	SSL_CTX_set_security_level(c->ctx, 0);
	if (max_version)
		SSL_CTX_set_max_proto_version(c->ctx, max_version);
	SSL_CTX_load_verify_locations(c->ctx, cert_path, NULL);
	SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
	c->ssl = SSL_new(c->ctx);
	c->fd = fix_dial(&f);
	fd_set_nonblock(c->fd);
	SSL_set_fd(c->ssl, c->fd);
	SSL_set_alpn_protos(c->ssl, (const unsigned char *)"\x02h2\x08http/1.1", 12);
	do
		r = SSL_connect(c->ssl);
	while (again(c, r));
	return r == 1;
}

static void client_free(struct client *c)
{
	SSL_free(c->ssl);
	SSL_CTX_free(c->ctx);
	fd_close(c->fd);
}

static void client_send(struct client *c, const char *text, size_t len)
{
	int r;

	do
		r = SSL_write(c->ssl, text, (int)len);
	while (again(c, r));
}

/* Reads at least @want bytes into back, which is ended with a NUL. */
static size_t client_read(struct client *c, size_t want)
{
	uint64_t until = clock_mono_ns() + 5000000000ULL;
	size_t n = 0;

	while (n < want && clock_mono_ns() < until) {
		int r = SSL_read(c->ssl, back + n, (int)(sizeof(back) - 1 - n));

		if (r > 0)
			n += (size_t)r;
		else if (!again(c, r))
			break;
	}
	back[n] = '\0';
	return n;
}

static void answer(struct fix *fix, struct http_req *q)
{
	(void)fix;
	http_send(q, 200, NULL, http_path(q), strlen(http_path(q)));
}

TEST(requests_are_answered_over_tls)
{
	struct client c;

	up(answer);
	CHECK(client_new(&c, 0));
	CHECK_STR(SSL_get_version(c.ssl), "TLSv1.3");
	{
		const unsigned char *proto;
		unsigned len;

		SSL_get0_alpn_selected(c.ssl, &proto, &len);
		CHECK(len == 8 && !memcmp(proto, "http/1.1", 8));
	}
	for (unsigned i = 0; i < 3; i++) {
		client_send(&c, GET, sizeof(GET) - 1);
		client_read(&c, 50);
		CHECK_CONTAINS(back, "HTTP/1.1 200 OK\r\n");
		CHECK_CONTAINS(back, "\r\n\r\n/tls");
	}
	CHECK_EQ(f.requests, 3);
	client_send(&c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 47);
	client_read(&c, sizeof(back));
	CHECK_CONTAINS(back, "Connection: close");
	CHECK_EQ(SSL_get_shutdown(c.ssl), SSL_RECEIVED_SHUTDOWN); /* a proper end */
	client_free(&c);
	CHECK(client_new(&c, TLS1_2_VERSION));
	client_send(&c, GET, sizeof(GET) - 1);
	CHECK(client_read(&c, 50) > 50);
	client_free(&c);
	CHECK(!client_new(&c, TLS1_1_VERSION));
	client_free(&c);
	down();
}

TEST(plain_http_gets_an_answer_and_is_not_served)
{
	struct got g;

	up(answer);
	fix_ask(&f, GET GET, &g);
	CHECK(g.closed);
	CHECK_CONTAINS(g.data, "HTTP/1.1 400 Bad Request");
	CHECK_CONTAINS(g.data, "use https://");
	CHECK(!strstr(g.data, "200"));
	CHECK_EQ(f.requests, 0);
	down();
}

TEST(bytes_that_are_no_tls_are_cut)
{
	struct got g;

	up(answer);
	fix_ask(&f, "\x01" GET, &g);
	CHECK(g.closed);
	CHECK(!strstr(g.data, "HTTP"));
	CHECK_EQ(f.requests, 0);
	CHECK_EQ(http_server_conns(f.server), 0);
	down();
}

static void whole(void *arg, const char *data, size_t len)
{
	http_send(arg, 200, NULL, data, len);
}

static void echo(struct fix *fix, struct http_req *q)
{
	(void)fix;
	http_read_body(q, sizeof(big), whole, q);
}

TEST(large_bodies_go_both_ways)
{
	static const char head[] = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n";
	struct client c;

	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 31 + i / 777);
	up(echo);
	CHECK(client_new(&c, 0));
	client_send(&c, head, sizeof(head) - 1);
	client_send(&c, big, sizeof(big));
	CHECK(client_read(&c, sizeof(big) + 90) > sizeof(big));
	{
		const char *body = strstr(back, "\r\n\r\n");

		CHECK(body);
		CHECK(!memcmp(body + 4, big, sizeof(big) - 4096));
	}
	client_free(&c);
	down();
}

static void on_done(void *arg)
{
	((struct fix *)arg)->done++;
}

static void begin(struct fix *fix, struct http_req *q)
{
	(void)fix;
	http_begin(q, 200, NULL, -1);
}

TEST(lent_memory_is_done_when_all_of_it_is_sent)
{
	struct client c;

	up(begin);
	CHECK(client_new(&c, 0));
	client_send(&c, GET, sizeof(GET) - 1);
	client_read(&c, 50);
	for (unsigned i = 0; i < 20 && f.done == i; i++) {
		http_write_lent(f.last, &(struct http_piece){ big, sizeof(big) }, 1, on_done, &f);
		fix_pump(&f, 5);
	}
	CHECK(f.done < 20); /* it stops when the client does not read */
	CHECK(http_queued(f.last) > 0 && http_queued(f.last) < 2 * sizeof(big));
	{
		unsigned before = f.done;

		for (unsigned i = 0; i < 40 && f.done == before; i++)
			client_read(&c, sizeof(back) - 1);
		CHECK_EQ(f.done, before + 1);
	}
	client_free(&c);
	down();
}

TEST(a_key_that_does_not_fit_is_told)
{
	struct err e = { 0 };
	struct http_server *s;
	char other_cert[64], other_key[64];
	uv_loop_t loop;

	uv_loop_init(&loop);
	snprintf(cert_path, sizeof(cert_path), "/tmp/cloche-tls-%d.pem", getpid());
	snprintf(other_cert, sizeof(other_cert), "/tmp/cloche-tls-%d.pem2", getpid());
	snprintf(other_key, sizeof(other_key), "/tmp/cloche-tls-%d.key2", getpid());
	snprintf(key_path, sizeof(key_path), "/tmp/cloche-tls-%d.key", getpid());
	make_certificate(cert_path, key_path);
	make_certificate(other_cert, other_key);
	CHECK_EQ(http_server_new(&(struct http_opts){ .loop = &loop, .tls_cert = cert_path, .tls_key = other_key }, &s,
				 &e),
		 -EINVAL);
	CHECK_CONTAINS(e.msg, "key");
	CHECK_EQ(http_server_new(&(struct http_opts){ .loop = &loop, .tls_cert = "/nowhere", .tls_key = key_path }, &s,
				 &e),
		 -EINVAL);
	CHECK_CONTAINS(e.msg, "/nowhere");
	unlink(cert_path);
	unlink(key_path);
	unlink(other_cert);
	unlink(other_key);
	CHECK_EQ(uv_loop_close(&loop), 0);
}
