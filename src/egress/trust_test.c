/* Which certificates are trusted, with real handshakes in memory. */
#include "egress/trust.h"

#include <openssl/ssl.h>
#include <unistd.h>

#include "base/base.h"
#include "base/test.h"
#include "tls/ca.h"

static struct ca *world;
static char path[64];

/* A CA, its certificate in a file with @before in front; *ret trusts it. */
static int up(const char *before, struct trust **ret, struct err *e)
{
	AUTO(buf_done) struct buf pem = BUF_INIT(CA_PEM_MAX);
	struct buf key = BUF_INIT(CA_PEM_MAX);
	int fd, r;

	snprintf(path, sizeof(path), "/tmp/cloche-trust-XXXXXX");
	fd = mkstemp(path);
	r = ca_make("world", 1, &pem, &key, e);
	if (!r)
		r = ca_open(buf_str(&pem), buf_str(&key), &world, e);
	if (!r && fd_write_all(fd, before, strlen(before)) == 0 && fd_write_all(fd, pem.data, pem.len) == 0)
		r = trust_new(path, ret, e);
	ca_wipe(&key);
	fd_close(fd);
	return r;
}

static void down(struct trust *t)
{
	trust_free(t);
	ca_close(world);
	world = NULL;
	unlink(path);
}

/* "" when a server with that certificate and that newest protocol is trusted as @name, else why not. */
static const char *shake(const struct trust *t, const char *cert_name, const char *name, int version)
{
	static char why[256];
	SSL_CTX *ctx = NULL;
	SSL *c = trust_connect(t, name), *s;
	struct err e;
	BIO *a, *b;
	int r = -1;

	if (ca_context(world, cert_name, &ctx, &e) < 0)
		return "no certificate could be made";
	s = SSL_new(ctx);
	SSL_set_min_proto_version(s, 0);
	SSL_set_max_proto_version(s, version);
	SSL_set_security_level(s, 0);
	BIO_new_bio_pair(&a, 0, &b, 0);
	SSL_set_bio(c, a, a);
	SSL_set_bio(s, b, b);
	SSL_set_accept_state(s);
	for (int i = 0; i < 10 && r != 1; i++) {
		r = SSL_do_handshake(c);
		if (r == 1 || SSL_get_error(c, r) != SSL_ERROR_WANT_READ)
			break;
		SSL_do_handshake(s);
	}
	why[0] = '\0';
	if (r != 1)
		trust_why(c, name, why, sizeof(why));
	SSL_free(c);
	SSL_free(s);
	return why;
}

TEST(a_server_is_trusted_for_its_own_name_only)
{
	struct trust *t = NULL;
	struct err e = { 0 };

	CHECK_EQ(up("# a comment, as bundles have\n", &t, &e), 0);
	CHECK_STR(shake(t, "a.test", "a.test", TLS1_3_VERSION), "");
	CHECK_STR(shake(t, "a.test", "a.test", TLS1_2_VERSION), "");
	CHECK_STR(shake(t, "*.a.test", "x.a.test", TLS1_3_VERSION), "");
	CHECK_CONTAINS(shake(t, "a.test", "b.test", TLS1_3_VERSION), "the certificate of b.test is not trusted");
	CHECK_CONTAINS(shake(t, "*.a.test", "a.test", TLS1_3_VERSION), "not trusted");
	CHECK_CONTAINS(shake(t, "*.a.test", "x.y.a.test", TLS1_3_VERSION), "not trusted");
	CHECK_CONTAINS(shake(t, "x*.a.test", "xy.a.test", TLS1_3_VERSION), "not trusted");
	down(t);
}

TEST(old_protocols_are_not_spoken)
{
	struct trust *t = NULL;
	struct err e = { 0 };

	CHECK_EQ(up("", &t, &e), 0);
	CHECK_CONTAINS(shake(t, "a.test", "a.test", TLS1_1_VERSION), "no TLS connection to a.test");
	down(t);
}

TEST(another_world_is_not_trusted)
{
	struct trust *t = NULL, *other = NULL;
	struct ca *first;
	struct err e = { 0 };

	CHECK_EQ(up("", &t, &e), 0);
	first = world;
	unlink(path);
	CHECK_EQ(up("", &other, &e), 0);
	CHECK_CONTAINS(shake(t, "a.test", "a.test", TLS1_3_VERSION), "not trusted");
	CHECK_STR(shake(other, "a.test", "a.test", TLS1_3_VERSION), "");
	ca_close(first);
	trust_free(t);
	down(other);
}

TEST(no_file_and_a_file_with_nothing_in_it_are_errors)
{
	char empty[] = "/tmp/cloche-trust-XXXXXX";
	int fd = mkstemp(empty);
	struct trust *t = NULL;
	struct err e = { 0 };

	CHECK_EQ(fd_write_all(fd, "no certificate\n", 15), 0);
	CHECK_EQ(trust_new(empty, &t, &e), -EINVAL);
	CHECK_CONTAINS(e.msg, empty);
	CHECK_EQ(trust_new("/nonexistent/ca.pem", &t, &e), -ENOENT);
	CHECK_CONTAINS(e.remedy, "network_ca");
	CHECK(!t);
	fd_close(fd);
	unlink(empty);
}
