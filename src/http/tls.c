/* TLS on a connection, over memory. */
#include "http/conn.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/base.h"

#define TLS_RECORD 16384U

/* OpenSSL sees two buffers in memory, never the socket: reading, writing and waiting stay the connection's. */

static int broken(struct err *e, const char *what, const char *file)
{
	char text[160];
	unsigned long code = ERR_peek_last_error();

	ERR_error_string_n(code, text, sizeof(text));
	ERR_clear_error();
	return err_set(e, ERR_INVALID, -EINVAL, "TLS: %s '%s': %s", what, file, text);
}

/* Selects HTTP/1.1 by ALPN for clients that offer other protocols (h2), too. */
static int choose(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in, unsigned in_len,
		  void *arg)
{
	static const unsigned char own[] = "\x08http/1.1";
	unsigned char *found;

	(void)ssl;
	(void)arg;
	if (SSL_select_next_proto(&found, out_len, own, sizeof(own) - 1, in, in_len) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = found;
	return SSL_TLSEXT_ERR_OK;
}

int tls_new(const char *cert, const char *key, SSL_CTX **ret, struct err *e)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	int r = 0;

	if (!ctx)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "TLS");
	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS); /* idle connections keep none */
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_alpn_select_cb(ctx, choose, NULL);
	if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
		r = broken(e, "certificate", cert);
	else if (!key || SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
		r = broken(e, "key", key ? key : "");
	else if (SSL_CTX_check_private_key(ctx) != 1)
		r = broken(e, "the key does not match the certificate", cert);
	if (r < 0) {
		SSL_CTX_free(ctx);
		return r;
	}
	*ret = ctx;
	return 0;
}

void tls_free(SSL_CTX *ctx)
{
	SSL_CTX_free(ctx);
}

int tls_conn_new(struct conn *c)
{
	BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());

	c->ssl = SSL_new(c->server->tls);
	if (!c->ssl || !in || !out) {
		BIO_free(in);
		BIO_free(out);
		tls_conn_free(c);
		return -ENOMEM;
	}
	SSL_set_bio(c->ssl, in, out);
	SSL_set_accept_state(c->ssl);
	return 0;
}

void tls_conn_free(struct conn *c)
{
	SSL_free(TAKE_PTR(c->ssl));
}

/* Records that were made go to the socket, straight from OpenSSL's buffer. */
static void send_records(struct conn *c)
{
	BIO *out = SSL_get_wbio(c->ssl);
	char *data;
	long len = BIO_get_mem_data(out, &data);

	if (len <= 0)
		return;
	conn_write_raw(c, &(struct out_piece){ .data = data, .len = (size_t)len }, 1);
	(void)BIO_reset(out);
}

/* Record by record: OpenSSL's buffer keeps the size it once had, and wipes all of it when it is emptied. */
static void encrypt(struct conn *c, const char *data, size_t len)
{
	size_t part, done;

	for (; len && c->state != CONN_DEAD; data += part, len -= part) {
		part = len < TLS_RECORD ? len : TLS_RECORD;
		if (SSL_write_ex(c->ssl, data, part, &done) != 1) {
			conn_kill(c);
			return;
		}
		send_records(c);
	}
}

void tls_write(struct conn *c, const struct out_piece *p, size_t n)
{
	char joined[TLS_RECORD];
	size_t len = 0;

	ERR_clear_error();
	/* A record for each small piece would cost more than the copy. */
	for (; n; p++, n--) {
		if (len + p->len > sizeof(joined)) {
			encrypt(c, joined, len);
			len = 0;
		}
		if (p->len > sizeof(joined) / 2) {
			encrypt(c, joined, len);
			len = 0;
			encrypt(c, p->data, p->len);
		} else if (p->len) {
			memcpy(joined + len, p->data, p->len);
			len += p->len;
		}
	}
	encrypt(c, joined, len);
}

void tls_shut(struct conn *c)
{
	if (!c->ssl || !SSL_is_init_finished(c->ssl))
		return;
	ERR_clear_error();
	(void)SSL_shutdown(c->ssl);
	send_records(c);
}

int tls_feed(struct conn *c, const char *p, size_t n)
{
	return BIO_write(SSL_get_rbio(c->ssl), p, (int)n) == (int)n ? 0 : -ENOMEM;
}

ssize_t tls_read(struct conn *c, char *p, size_t n)
{
	int r, why;

	ERR_clear_error();
	r = SSL_read(c->ssl, p, (int)n);
	why = r > 0 ? SSL_ERROR_NONE : SSL_get_error(c->ssl, r);
	send_records(c);
	if (r > 0)
		return r;
	if (why == SSL_ERROR_WANT_READ)
		return 0;
	return why == SSL_ERROR_ZERO_RETURN ? -EPIPE : -EPROTO;
}
