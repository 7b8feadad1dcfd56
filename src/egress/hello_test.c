/* OpenSSL's own ClientHello, whole, in pieces, and with its name forged. */
#include "egress/hello.h"

#include <openssl/ssl.h>

#include "base/base.h"
#include "base/test.h"

#define NAME "good.example.test"

static uint8_t made[HELLO_MAX * 2], cut[HELLO_MAX * 8];

static size_t make(const char *name, const char *alpn, int version)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	char own[300]; /* OpenSSL's macro casts const away */
	SSL *ssl;
	int n;

	SSL_CTX_set_max_proto_version(ctx, version);
	ssl = SSL_new(ctx);
	SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	SSL_set_connect_state(ssl);
	snprintf(own, sizeof(own), "%s", name ? name : "");
	if (name)
		SSL_set_tlsext_host_name(ssl, own);
	if (alpn)
		SSL_set_alpn_protos(ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
	SSL_do_handshake(ssl);
	n = BIO_read(SSL_get_wbio(ssl), made, sizeof(made));
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	return n > 0 ? (size_t)n : 0;
}

/* The same hello in records of @size bytes each. */
static size_t in_records(size_t len, size_t size)
{
	size_t to = 0, part;

	for (size_t at = 5; at < len; at += part) {
		part = len - at < size ? len - at : size;
		memcpy(cut + to, made, 3);
		cut[to + 3] = (uint8_t)(part >> 8);
		cut[to + 4] = (uint8_t)part;
		memcpy(cut + to + 5, made + at, part);
		to += 5 + part;
	}
	return to;
}

static const char *refused(size_t len)
{
	const char *why = "";
	struct hello h;

	return hello_look(made, len, &h, &why) == LOOK_BAD ? why : "not refused";
}

/* The hello for NAME, with another name of the same length. */
static const char *forged(const char *name)
{
	size_t len = make(NAME, NULL, TLS1_3_VERSION);
	uint8_t *at = memmem(made, len, NAME, strlen(NAME));

	if (!at)
		return "no name found";
	memcpy(at, name, strlen(NAME));
	return refused(len);
}

TEST(name_and_protocols_are_found)
{
	int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };
	const char *why = "";
	struct hello h;

	for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
		size_t len = make(NAME, "\x02h2\x08http/1.1", versions[i]);

		CHECK_EQ(hello_look(made, len, &h, &why), LOOK_YES);
		CHECK_STR(h.name, NAME);
		CHECK(h.alpn && h.h2 && h.http1 && !h.ech);
	}
	CHECK_EQ(hello_look(made, make(NULL, NULL, TLS1_3_VERSION), &h, &why), LOOK_YES);
	CHECK_STR(h.name, "");
	CHECK(!h.alpn && !h.h2 && !h.http1);
}

TEST(every_beginning_needs_more_and_bytes_behind_do_not_matter)
{
	size_t len = make(NAME, NULL, TLS1_3_VERSION);
	const char *why = "";
	struct hello h;

	for (size_t i = 0; i < len; i++)
		CHECK_EQ(hello_look(made, i, &h, &why), LOOK_MORE);
	memset(made + len, 0xee, 100);
	CHECK_EQ(hello_look(made, len + 100, &h, &why), LOOK_YES);
}

TEST(a_hello_split_over_records_is_one)
{
	size_t sizes[] = { 1, 2, 3, 7, 40, 100 }, len = make(NAME, NULL, TLS1_3_VERSION);
	const char *why = "";
	struct hello h;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		size_t n = in_records(len, sizes[i]);

		memset(&h, 0, sizeof(h));
		CHECK_EQ(hello_look(cut, n, &h, &why), LOOK_YES);
		CHECK_STR(h.name, NAME);
		for (size_t j = 0; j < n; j += 5)
			CHECK_EQ(hello_look(cut, j, &h, &why), LOOK_MORE);
	}
}

TEST(a_name_is_the_same_in_capitals)
{
	size_t len = make("GOOD.Example.Test", NULL, TLS1_3_VERSION);
	const char *why = "";
	struct hello h;

	CHECK_EQ(hello_look(made, len, &h, &why), LOOK_YES);
	CHECK_STR(h.name, "good.example.test");
}

TEST(forged_names_are_refused)
{
	CHECK_CONTAINS(forged("good.example\0test"), "not a host name");
	CHECK_CONTAINS(forged("good.example.tes."), "not a host name");
	CHECK_CONTAINS(forged("good.example.1234"), "not a host name");
	CHECK_CONTAINS(forged("good..xample.test"), "not a host name");
	CHECK_CONTAINS(forged("good.example.te t"), "not a host name");
	CHECK_CONTAINS(forged("good.example.te/t"), "not a host name");
	CHECK_CONTAINS(forged("000127.000.000.01"), "not a host name");
	CHECK_CONTAINS(forged("g\xc3\xb6od.exmple.test"), "not a host name");
	make("127.0.0.1", NULL, TLS1_3_VERSION);
	CHECK_CONTAINS(refused(make("127.0.0.1", NULL, TLS1_3_VERSION)), "not a host name");
}

TEST(lengths_that_do_not_add_up_are_refused)
{
	size_t len = make(NAME, NULL, TLS1_3_VERSION);
	uint8_t *at = memmem(made, len, NAME, strlen(NAME));

	CHECK(at);
	at[-1]++; /* the name's length */
	CHECK_CONTAINS(refused(len), "is invalid");
	at[-1] -= 2;
	CHECK_CONTAINS(refused(len), "more than one");
	at[-1]++;
	at[-4]--; /* the list's */
	CHECK_CONTAINS(refused(len), "is invalid");
	at[-4]++;
	at[-6] += 9; /* the extension's */
	CHECK(strcmp(refused(len), "not refused") != 0);
	at[-6] -= 9;
	CHECK_STR(refused(len), "not refused");
	made[8]++; /* the hello's: one byte more than the record has */
	CHECK_STR(refused(len), "not refused");
	made[8] -= 2; /* less */
	CHECK_CONTAINS(refused(len), "after the ClientHello");
}

/* An extension more, in front of the others. */
static size_t with_extension(const char *name, const uint8_t *ext, size_t n)
{
	size_t len = make(name, NULL, TLS1_3_VERSION), at = 5 + 4 + 2 + 32, total;

	at += 1U + made[at];
	at += 2U + ((size_t)made[at] << 8 | made[at + 1]);
	at += 1U + made[at];
	total = ((size_t)made[at] << 8 | made[at + 1]) + n;
	made[at] = (uint8_t)(total >> 8);
	made[at + 1] = (uint8_t)total;
	memmove(made + at + 2 + n, made + at + 2, len - at - 2);
	memcpy(made + at + 2, ext, n);
	len += n;
	made[3] = (uint8_t)((len - 5) >> 8);
	made[4] = (uint8_t)(len - 5);
	made[7] = (uint8_t)((len - 9) >> 8);
	made[8] = (uint8_t)(len - 9);
	return len;
}

TEST(two_names_are_refused_and_an_encrypted_one_is_told)
{
	static const uint8_t sni[] = { 0, 0, 0, 11, 0, 9, 0, 0, 6, 'b', '.', 't', 'e', 's', 't' };
	static const uint8_t ech[] = { 0xfe, 0x0d, 0, 4, 0, 1, 2, 3 };
	const char *why = "";
	struct hello h;

	CHECK_CONTAINS(refused(with_extension(NAME, sni, sizeof(sni))), "more than one");
	CHECK_EQ(hello_look(made, with_extension(NAME, ech, sizeof(ech)), &h, &why), LOOK_YES);
	CHECK(h.ech);
	CHECK_STR(h.name, NAME);
}

TEST(what_is_not_tls_is_told_at_once)
{
	const char *why = "";
	struct hello h;

	CHECK_EQ(hello_look((const uint8_t *)"G", 1, &h, &why), LOOK_NOT);
	CHECK_EQ(hello_look((const uint8_t *)"\x16G", 2, &h, &why), LOOK_NOT);
	CHECK_EQ(hello_look((const uint8_t *)"", 0, &h, &why), LOOK_MORE);
	CHECK_EQ(hello_look((const uint8_t *)"\x15\x03\x01", 3, &h, &why), LOOK_NOT);
}

TEST(other_records_in_between_and_other_messages_are_refused)
{
	size_t len = make(NAME, NULL, TLS1_3_VERSION), n = in_records(len, 50);
	const char *why = "";
	struct hello h;

	cut[55] = 21;
	CHECK_EQ(hello_look(cut, n, &h, &why), LOOK_BAD);
	cut[55] = 22;
	cut[58] = cut[59] = 0; /* an empty record */
	CHECK_EQ(hello_look(cut, n, &h, &why), LOOK_BAD);
	made[5] = 2;
	CHECK_CONTAINS(refused(len), "does not begin with");
	make(NAME, NULL, TLS1_3_VERSION);
	made[9] = 2; /* SSL 2's version */
	CHECK_CONTAINS(refused(len), "SSL 3");
}

TEST(the_maximum_is_never_more)
{
	const char *why = "";
	struct hello h;
	size_t n = 0;

	/* Records of a byte each: a hello that is never done. */
	while (n + 6 <= sizeof(cut)) {
		static const uint8_t start[] = { 1, 0, 0x3f, 0xf0 };
		size_t i = n / 6;

		memcpy(cut + n, "\x16\x03\x01\x00\x01", 5);
		cut[n + 5] = i < 4 ? start[i] : 0;
		n += 6;
	}
	CHECK_EQ(hello_look(cut, HELLO_MAX - 1, &h, &why), LOOK_MORE);
	CHECK_EQ(hello_look(cut, HELLO_MAX, &h, &why), LOOK_BAD);
	CHECK_EQ(hello_look(cut, n, &h, &why), LOOK_BAD);
	memcpy(cut, "\x16\x03\x01\x40\x00\x01\x01\x00\x00", 9);
	CHECK_EQ(hello_look(cut, 9, &h, &why), LOOK_BAD);
}
