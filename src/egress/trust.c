/* Loads the certificates that servers are verified by. */
#include "egress/trust.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/base.h"
#include "base/buf.h"
#include "proto/net_rule.h"
#include "tls/ca.h"

#define BUNDLE_MAX (8 * MIB)

struct trust {
	SSL_CTX *ctx;
};

/* From text, not by OpenSSL's own functions for files: those would look into folders of their own as well. */
static unsigned add_all(X509_STORE *store, const struct buf *pem)
{
	BIO *b = BIO_new_mem_buf(buf_str(pem), (int)pem->len);
	STACK_OF(X509_INFO) *all = b ? PEM_X509_INFO_read_bio(b, NULL, NULL, NULL) : NULL;
	unsigned n = 0;

	for (int i = 0; i < sk_X509_INFO_num(all); i++) {
		const X509_INFO *x = sk_X509_INFO_value(all, i);

		n += x->x509 && X509_STORE_add_cert(store, x->x509) == 1;
	}
	sk_X509_INFO_pop_free(all, X509_INFO_free);
	BIO_free(b);
	ERR_clear_error();
	return n;
}

int trust_new(const char *ca_file, struct trust **ret, struct err *e)
{
	static const unsigned char alpn[] = "\x08http/1.1";
	AUTO(buf_done) struct buf pem = BUF_INIT(BUNDLE_MAX);
	struct trust *t;
	int r;

	r = ca_system(ca_file, &pem, e);
	if (r < 0)
		return r;
	t = calloc(1, sizeof(*t));
	if (t)
		t->ctx = SSL_CTX_new(TLS_client_method());
	if (!t || !t->ctx || SSL_CTX_set_min_proto_version(t->ctx, TLS1_2_VERSION) != 1 ||
	    SSL_CTX_set_alpn_protos(t->ctx, alpn, sizeof(alpn) - 1) != 0) {
		trust_free(t);
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "trust");
	}
	if (!add_all(SSL_CTX_get_cert_store(t->ctx), &pem)) {
		trust_free(t);
		return err_set(e, ERR_INVALID, -EINVAL, "no certificate in '%s'",
			       *ca_file ? ca_file : "the host's bundle");
	}
	SSL_CTX_set_verify(t->ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_options(t->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_session_cache_mode(t->ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(t->ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
					 SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	*ret = t;
	return 0;
}

void trust_free(struct trust *t)
{
	if (!t)
		return;
	SSL_CTX_free(t->ctx);
	free(t);
}

SSL *trust_connect(const struct trust *t, const char *name)
{
	SSL *ssl = SSL_new(t->ctx);
	char own[NET_NAME_MAX]; /* OpenSSL's macro casts const away */

	snprintf(own, sizeof(own), "%s", name);
	if (!ssl || SSL_set1_host(ssl, own) != 1 || SSL_set_tlsext_host_name(ssl, own) != 1) {
		SSL_free(ssl);
		return NULL;
	}
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	SSL_set_connect_state(ssl);
	return ssl;
}

void trust_why(SSL *ssl, const char *name, char *out, unsigned size)
{
	long code = SSL_get_verify_result(ssl);
	unsigned long error = ERR_peek_last_error();
	const char *text = error ? ERR_reason_error_string(error) : NULL;

	if (code != X509_V_OK)
		snprintf(out, size, "the certificate of %s is not trusted: %s", name,
			 X509_verify_cert_error_string(code));
	else
		snprintf(out, size, "no TLS connection to %s: %s", name,
			 text ? text : "it closed the connection early");
}
