/* Makes a certificate authority, and certificates of it. */
#include "tls/ca.h"

#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

#define NAMES_MAX 64U
#define LEAF_SECONDS (24 * 3600)
#define SLACK_SECONDS 3600 /* clocks inside may be behind */

struct leaf {
	char *name;
	SSL_CTX *ctx;
	time_t made;
	uint64_t used;
};

struct ca {
	X509 *cert;
	EVP_PKEY *key;
	EVP_PKEY *leaf_key; /* for all names: a process that could use one could use all */
	uint64_t turn;
	struct leaf leaf[NAMES_MAX];
};

static void x509_freep(X509 **x)
{
	X509_free(*x);
}

static void bio_freep(BIO **b)
{
	BIO_free(*b);
}

static void pkey_freep(EVP_PKEY **k)
{
	EVP_PKEY_free(*k);
}

static int broken(struct err *e, enum err_kind kind, const char *what)
{
	char text[120];

	ERR_error_string_n(ERR_peek_last_error(), text, sizeof(text));
	ERR_clear_error();
	return err_set(e, kind, -EINVAL, "%s: %s", what, text);
}

static bool extend(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX c;
	X509_EXTENSION *ext;
	int r;

	X509V3_set_ctx_nodb(&c);
	X509V3_set_ctx(&c, issuer, x, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &c, nid, value);
	r = ext ? X509_add_ext(x, ext, -1) : 0;
	X509_EXTENSION_free(ext);
	return r == 1;
}

static bool name_it(X509_NAME *n, const char *field, const char *text)
{
	return X509_NAME_add_entry_by_txt(n, field, MBSTRING_UTF8, (const unsigned char *)text, -1, -1, 0) == 1;
}

/* A certificate without extensions and without a signature. */
static X509 *begin(EVP_PKEY *key, const char *cn, long seconds)
{
	X509 *x = X509_new();
	unsigned char serial[16];
	BIGNUM *n = NULL;
	bool ok;

	/* Programs remember certificates by issuer and serial number. */
	ok = x && RAND_bytes(serial, sizeof(serial)) == 1;
	if (ok) {
		serial[0] = (unsigned char)((serial[0] & 0x7f) | 0x40);
		n = BN_bin2bn(serial, sizeof(serial), NULL);
	}
	ok = ok && n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x)) && X509_set_version(x, X509_VERSION_3) == 1 &&
	     X509_gmtime_adj(X509_getm_notBefore(x), -SLACK_SECONDS) &&
	     X509_gmtime_adj(X509_getm_notAfter(x), seconds + SLACK_SECONDS) && X509_set_pubkey(x, key) == 1 &&
	     name_it(X509_get_subject_name(x), "O", "Cloche") && name_it(X509_get_subject_name(x), "CN", cn);
	BN_free(n);
	if (ok)
		return x;
	X509_free(x);
	return NULL;
}

static int add_bio(BIO *b, struct buf *out)
{
	char *data;
	long n = BIO_get_mem_data(b, &data);

	return n <= 0 ? -EINVAL : buf_add(out, data, (size_t)n);
}

/* Memory BIOs that held a key are wiped by OpenSSL when freed (BIO_s_secmem wipes on growth as well). */
static int write_pem(X509 *x, EVP_PKEY *key, struct buf *cert, struct buf *priv)
{
	__attribute__((cleanup(bio_freep))) BIO *c = BIO_new(BIO_s_mem());
	__attribute__((cleanup(bio_freep))) BIO *k = BIO_new(BIO_s_secmem());
	int r;

	if (!c || !k || PEM_write_bio_X509(c, x) != 1 ||
	    PEM_write_bio_PrivateKey(k, key, NULL, NULL, 0, NULL, NULL) != 1)
		return -ENOMEM;
	r = add_bio(c, cert);
	return r < 0 ? r : add_bio(k, priv);
}

int ca_make(const char *id, unsigned days, struct buf *ret_cert, struct buf *ret_key, struct err *e)
{
	__attribute__((cleanup(pkey_freep))) EVP_PKEY *key = EVP_EC_gen("P-256");
	__attribute__((cleanup(x509_freep))) X509 *x = NULL;
	size_t before = ret_cert->len;
	char cn[64];
	int r;

	snprintf(cn, sizeof(cn), "sandbox %.48s", id); /* names have 64 characters at most */
	if (key)
		x = begin(key, cn, (long)days * 24 * 3600);
	if (!x || X509_set_issuer_name(x, X509_get_subject_name(x)) != 1 ||
	    !extend(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
	    !extend(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") ||
	    !extend(x, x, NID_subject_key_identifier, "hash") ||
	    !extend(x, x, NID_authority_key_identifier, "keyid:always") || !X509_sign(x, key, EVP_sha256()))
		return broken(e, ERR_INTERNAL, "make a certificate authority");
	r = write_pem(x, key, ret_cert, ret_key);
	if (r < 0) {
		buf_cut(ret_cert, before);
		return err_sys(e, ERR_INTERNAL, r, "make a certificate authority");
	}
	return 0;
}

int ca_bundle(const char *theirs, const char *cert, struct buf *out, struct err *e)
{
	size_t before = out->len, n = strlen(theirs);
	int r;

	r = buf_add(out, theirs, n);
	if (!r && n && theirs[n - 1] != '\n')
		r = buf_addc(out, '\n');
	if (!r)
		r = buf_adds(out, cert);
	if (!r)
		return 0;
	buf_cut(out, before);
	return err_sys(e, ERR_TOO_LARGE, r, "bundle of certificates");
}

static int read_all(int fd, struct buf *out)
{
	for (;;) {
		void *p = buf_room(out, 65536);
		ssize_t n;

		if (!p)
			return -E2BIG;
		n = read(fd, p, 65536);
		if (n <= 0)
			return n < 0 ? -errno : 0;
		buf_added(out, (size_t)n);
	}
}

int ca_system(const char *file, struct buf *out, struct err *e)
{
	static const char *const usual[] = { "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
					     "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem" };
	AUTO_CLOSE int fd = -1;
	size_t before = out->len;
	int r = -ENOENT;

	if (file && *file) {
		fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
		r = fd < 0 ? -errno : 0;
	}
	for (size_t i = 0; !(file && *file) && fd < 0 && i < ARRAY_LEN(usual); i++) {
		fd = open(usual[i], O_RDONLY | O_CLOEXEC | O_NOCTTY);
		r = fd < 0 ? -errno : 0;
	}
	if (!r)
		r = read_all(fd, out);
	if (!r)
		return 0;
	buf_cut(out, before);
	r = err_sys(e, ERR_NOT_FOUND, r, "certificates of authorities%s%s", file && *file ? ": " : "",
		    file ? file : "");
	err_remedy(e, "install the package ca-certificates, or set network_ca to a PEM file");
	return r;
}

void ca_wipe(struct buf *b)
{
	if (b->data)
		OPENSSL_cleanse(b->data, b->cap);
	buf_done(b);
}

int ca_open(const char *cert_pem, const char *key_pem, struct ca **ret, struct err *e)
{
	__attribute__((cleanup(bio_freep))) BIO *c = BIO_new_mem_buf(cert_pem, -1);
	__attribute__((cleanup(bio_freep))) BIO *k = BIO_new_mem_buf(key_pem, -1);
	struct ca *ca = calloc(1, sizeof(*ca));
	int r;

	if (!ca || !c || !k) {
		free(ca);
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "certificate authority");
	}
	ca->cert = PEM_read_bio_X509(c, NULL, NULL, NULL);
	ca->key = PEM_read_bio_PrivateKey(k, NULL, NULL, NULL);
	if (ca->cert && ca->key && X509_check_private_key(ca->cert, ca->key) == 1 && X509_check_ca(ca->cert) == 1)
		ca->leaf_key = EVP_EC_gen("P-256");
	if (ca->leaf_key) {
		*ret = ca;
		return 0;
	}
	r = broken(e, ERR_INVALID, "certificate authority");
	ca_close(ca);
	return r;
}

static void leaf_done(struct leaf *l)
{
	SSL_CTX_free(l->ctx);
	free(l->name);
	*l = (struct leaf){ 0 };
}

void ca_close(struct ca *ca)
{
	if (!ca)
		return;
	for (size_t i = 0; i < NAMES_MAX; i++)
		leaf_done(&ca->leaf[i]);
	X509_free(ca->cert);
	EVP_PKEY_free(ca->key);
	EVP_PKEY_free(ca->leaf_key);
	free(ca);
}

/* ALPN: clients that offer other protocols, too (h2), get http/1.1; those that offer none get no answer. */
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

static X509 *make_leaf(struct ca *ca, const char *name)
{
	char san[300], cn[64];
	X509 *x;

	snprintf(san, sizeof(san), "DNS:%s", name);
	snprintf(cn, sizeof(cn), "%.63s", name); /* clients no longer check this field */
	x = begin(ca->leaf_key, cn, LEAF_SECONDS);
	if (x && X509_set_issuer_name(x, X509_get_subject_name(ca->cert)) == 1 &&
	    extend(x, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
	    extend(x, ca->cert, NID_key_usage, "critical,digitalSignature") &&
	    extend(x, ca->cert, NID_ext_key_usage, "serverAuth") && extend(x, ca->cert, NID_subject_alt_name, san) &&
	    extend(x, ca->cert, NID_subject_key_identifier, "hash") &&
	    extend(x, ca->cert, NID_authority_key_identifier, "keyid:always") && X509_sign(x, ca->key, EVP_sha256()))
		return x;
	X509_free(x);
	return NULL;
}

static SSL_CTX *make_context(struct ca *ca, const char *name)
{
	__attribute__((cleanup(x509_freep))) X509 *x = make_leaf(ca, name);
	SSL_CTX *ctx = x ? SSL_CTX_new(TLS_server_method()) : NULL;

	if (!ctx)
		return NULL;
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
				      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_alpn_select_cb(ctx, choose, NULL);
	if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 && SSL_CTX_use_certificate(ctx, x) == 1 &&
	    SSL_CTX_use_PrivateKey(ctx, ca->leaf_key) == 1)
		return ctx;
	SSL_CTX_free(ctx);
	return NULL;
}

int ca_context(struct ca *ca, const char *name, SSL_CTX **ret, struct err *e)
{
	struct leaf *l = &ca->leaf[0];
	time_t now = time(NULL);

	for (size_t i = 0; i < NAMES_MAX; i++) {
		struct leaf *at = &ca->leaf[i];

		if (at->name && !strcmp(at->name, name)) {
			l = at;
			break;
		}
		if (at->used < l->used)
			l = at;
	}
	/* The clock may also have been set back. */
	if (!l->name || strcmp(l->name, name) != 0 || now - l->made >= LEAF_SECONDS || now < l->made) {
		struct leaf fresh = { .name = strdup(name), .made = now };

		fresh.ctx = fresh.name ? make_context(ca, name) : NULL;
		if (!fresh.ctx) {
			leaf_done(&fresh);
			return broken(e, ERR_INTERNAL, "make a certificate");
		}
		leaf_done(l);
		*l = fresh;
	}
	l->used = ++ca->turn;
	*ret = l->ctx;
	return 0;
}
