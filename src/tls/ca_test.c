/* A sandbox's CA, judged by OpenSSL's own client: real handshakes in memory. */
#include "tls/ca.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/base.h"
#include "base/test.h"

static struct ca *fresh(struct buf *cert)
{
	struct buf key = BUF_INIT(CA_PEM_MAX);
	struct ca *ca = NULL;
	struct err e;

	if (!ca_make("sb-0123456789", 30, cert, &key, &e))
		(void)ca_open(buf_str(cert), buf_str(&key), &ca, &e);
	ca_wipe(&key);
	return ca;
}

static X509 *read_cert(const char *pem)
{
	BIO *b = BIO_new_mem_buf(pem, -1);
	X509 *x = PEM_read_bio_X509(b, NULL, NULL, NULL);

	BIO_free(b);
	return x;
}

/* Makes a handshake as a client that trusts @pem and expects @name: an X509_V_ code, or -1 when it failed otherwise. */
static long shake(SSL_CTX *server, const char *pem, const char *name, const char *alpn, char *ret_alpn)
{
	SSL_CTX *cc = SSL_CTX_new(TLS_client_method());
	SSL *c, *s = SSL_new(server);
	X509 *root = read_cert(pem);
	BIO *a, *b;
	const unsigned char *chosen;
	char own[300]; /* OpenSSL's macro casts const away */
	unsigned n = 0;
	long r = -1;

	X509_STORE_add_cert(SSL_CTX_get_cert_store(cc), root);
	X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(cc), X509_V_FLAG_X509_STRICT);
	SSL_CTX_set_verify(cc, SSL_VERIFY_PEER, NULL);
	c = SSL_new(cc);
	SSL_set1_host(c, name);
	snprintf(own, sizeof(own), "%s", name);
	SSL_set_tlsext_host_name(c, own);
	if (alpn)
		SSL_set_alpn_protos(c, (const unsigned char *)alpn, (unsigned)strlen(alpn));
	BIO_new_bio_pair(&a, 0, &b, 0);
	SSL_set_bio(c, a, a);
	SSL_set_bio(s, b, b);
	SSL_set_connect_state(c);
	SSL_set_accept_state(s);
	for (int i = 0; i < 10 && !(SSL_is_init_finished(c) && SSL_is_init_finished(s)); i++) {
		SSL_do_handshake(c);
		SSL_do_handshake(s);
	}
	if (SSL_is_init_finished(c) || SSL_get_verify_result(c) != X509_V_OK)
		r = SSL_get_verify_result(c);
	SSL_get0_alpn_selected(c, &chosen, &n);
	if (ret_alpn)
		snprintf(ret_alpn, 16, "%.*s", (int)n, (const char *)chosen);
	SSL_free(c);
	SSL_free(s);
	SSL_CTX_free(cc);
	X509_free(root);
	return r;
}

TEST(a_client_that_trusts_it_takes_its_certificates_for_that_name_only)
{
	struct buf cert = BUF_INIT(CA_PEM_MAX);
	struct ca *ca = fresh(&cert);
	SSL_CTX *ctx = NULL;
	struct err e;

	CHECK(ca);
	CHECK_EQ(ca_context(ca, "api.example.test", &ctx, &e), 0);
	CHECK_EQ(shake(ctx, buf_str(&cert), "api.example.test", NULL, NULL), X509_V_OK);
	CHECK_EQ(shake(ctx, buf_str(&cert), "other.example.test", NULL, NULL), X509_V_ERR_HOSTNAME_MISMATCH);
	ca_close(ca);
	buf_done(&cert);
}

TEST(a_client_of_another_sandbox_does_not_trust_it)
{
	struct buf cert = BUF_INIT(CA_PEM_MAX), other = BUF_INIT(CA_PEM_MAX);
	struct ca *ca = fresh(&cert), *ca2 = fresh(&other);
	SSL_CTX *ctx = NULL;
	struct err e;

	CHECK(ca && ca2);
	CHECK_EQ(ca_context(ca, "api.example.test", &ctx, &e), 0);
	CHECK(shake(ctx, buf_str(&other), "api.example.test", NULL, NULL) > 0);
	ca_close(ca);
	ca_close(ca2);
	buf_done(&cert);
	buf_done(&other);
}

TEST(http_1_1_is_what_is_spoken)
{
	struct buf cert = BUF_INIT(CA_PEM_MAX);
	struct ca *ca = fresh(&cert);
	SSL_CTX *ctx = NULL;
	char alpn[16] = "";
	struct err e;

	CHECK(ca);
	CHECK_EQ(ca_context(ca, "a.test", &ctx, &e), 0);
	CHECK_EQ(shake(ctx, buf_str(&cert), "a.test", "\x02h2\x08http/1.1", alpn), X509_V_OK);
	CHECK_STR(alpn, "http/1.1");
	CHECK_EQ(shake(ctx, buf_str(&cert), "a.test", "\x02h2", alpn), -1);
	ca_close(ca);
	buf_done(&cert);
}

TEST(a_name_s_certificate_is_kept_and_many_names_push_out_the_oldest)
{
	struct buf cert = BUF_INIT(CA_PEM_MAX);
	struct ca *ca = fresh(&cert);
	SSL_CTX *first = NULL, *again = NULL, *ctx = NULL, *held;
	char name[32];
	struct err e;

	CHECK(ca);
	CHECK_EQ(ca_context(ca, "first.test", &first, &e), 0);
	CHECK_EQ(ca_context(ca, "first.test", &again, &e), 0);
	CHECK(first == again);
	held = first;
	SSL_CTX_up_ref(held);
	for (int i = 0; i < 70; i++) {
		snprintf(name, sizeof(name), "n%d.test", i);
		CHECK_EQ(ca_context(ca, name, &ctx, &e), 0);
	}
	CHECK_EQ(ca_context(ca, "n69.test", &again, &e), 0);
	CHECK(again == ctx);
	CHECK_EQ(ca_context(ca, "first.test", &again, &e), 0);
	CHECK(again != held);
	SSL_CTX_free(held);
	ca_close(ca);
	buf_done(&cert);
}

TEST(the_longest_name_has_a_certificate)
{
	struct buf cert = BUF_INIT(CA_PEM_MAX);
	struct ca *ca = fresh(&cert);
	SSL_CTX *ctx = NULL;
	char name[254];
	struct err e;

	CHECK(ca);
	for (size_t i = 0; i < 253; i++)
		name[i] = i % 64 == 63 ? '.' : 'a';
	name[253] = '\0';
	CHECK_EQ(ca_context(ca, name, &ctx, &e), 0);
	CHECK_EQ(shake(ctx, buf_str(&cert), name, NULL, NULL), X509_V_OK);
	ca_close(ca);
	buf_done(&cert);
}

TEST(nonsense_and_a_key_of_another_are_refused)
{
	struct buf c1 = BUF_INIT(CA_PEM_MAX), k1 = BUF_INIT(CA_PEM_MAX), c2 = BUF_INIT(CA_PEM_MAX),
		   k2 = BUF_INIT(CA_PEM_MAX);
	struct ca *ca = NULL;
	struct err e;

	CHECK_EQ(ca_make("a", 1, &c1, &k1, &e), 0);
	CHECK_EQ(ca_make("b", 1, &c2, &k2, &e), 0);
	CHECK(ca_open(buf_str(&c1), buf_str(&k2), &ca, &e) < 0);
	CHECK(ca_open("nonsense", buf_str(&k2), &ca, &e) < 0);
	CHECK(ca_open(buf_str(&c1), "", &ca, &e) < 0);
	CHECK(!ca);
	ca_wipe(&k1);
	ca_wipe(&k2);
	CHECK(!k1.data);
	buf_done(&c1);
	buf_done(&c2);
}

TEST(a_bundle_holds_the_system_s_and_ours)
{
	struct buf cert = BUF_INIT(CA_PEM_MAX), key = BUF_INIT(CA_PEM_MAX), out = BUF_INIT(64 * 1024);
	struct buf small = BUF_INIT(16);
	struct err e;

	CHECK_EQ(ca_make("a", 1, &cert, &key, &e), 0);
	CHECK_EQ(ca_bundle("# theirs", buf_str(&cert), &out, &e), 0);
	CHECK_CONTAINS(buf_str(&out), "# theirs\n-----BEGIN CERTIFICATE-----");
	CHECK_EQ(ca_bundle("# theirs", buf_str(&cert), &small, &e), -E2BIG);
	CHECK_EQ(small.len, 0);
	CHECK(ca_system("/nonexistent/bundle.pem", &out, &e) < 0);
	CHECK_CONTAINS(e.msg, "/nonexistent/bundle.pem");
	ca_wipe(&key);
	buf_done(&cert);
	buf_done(&out);
	buf_done(&small);
}
