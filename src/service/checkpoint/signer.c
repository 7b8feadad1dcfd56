/* Signs exports, and checks signatures. */
#include "service/checkpoint/signer.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <unistd.h>

#include "base/base.h"
#include "base/base64.h"
#include "service/secret/vault.h"

#define KEY 32U
#define SIGNATURE 64U
#define TRUSTED_MAX 16U
#define PREFIX "ed25519:"

static const uint8_t head[] = {
	0x5c, 0x2a, 0x4d, 0x18, SIGNER_BLOCK - 8,
	0,    0,    0, /* a frame to be skipped, and its length */
	'c',  'l',  'o',  'c',	'h',
	'e',  '-',  'e',  'd',	'2',
	'5',  '5',  '1',  '9',	'-',
	'1',  '\n',
};
static const char context[] = "cloche export 1";

static_assert(sizeof(head) + KEY + SIGNATURE == SIGNER_BLOCK, "a block is all of that");

struct signer {
	char path[4096];
	bool ready;
	EVP_PKEY *own;
	uint8_t public[KEY];
	unsigned ntrusted;
	uint8_t trusted[TRUSTED_MAX][KEY];
};

static int read_key(const char *text, uint8_t ret[KEY])
{
	const char *p = text + strlen(PREFIX);
	uint8_t raw[KEY + 1];

	/* 32 bytes are 43 characters and one that fills them up. */
	if (strncmp(text, PREFIX, strlen(PREFIX)) != 0 || strlen(p) != 44 || p[43] != '=' || p[42] == '=' ||
	    EVP_DecodeBlock(raw, (const unsigned char *)p, 44) != KEY + 1)
		return -EINVAL;
	memcpy(ret, raw, KEY);
	return 0;
}

static void write_key(const uint8_t key[KEY], char ret[SIGNER_TEXT])
{
	memcpy(ret, PREFIX, strlen(PREFIX));
	base64_encode(key, KEY, ret + strlen(PREFIX));
}

int signer_key_ok(const char *text)
{
	uint8_t key[KEY];

	return read_key(text, key);
}

int signer_new(const char *data, const char *const *trusted, unsigned n, struct signer **ret, struct err *e)
{
	AUTO_FREE struct signer *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the export key");
	if (n > TRUSTED_MAX || snprintf(s->path, sizeof(s->path), "%s/export.key", data) >= (int)sizeof(s->path))
		return err_set(e, ERR_INVALID, -EINVAL, "export_trust: at most %u keys", TRUSTED_MAX);
	for (; s->ntrusted < n; s->ntrusted++)
		if (read_key(trusted[s->ntrusted], s->trusted[s->ntrusted]) < 0)
			return err_set(e, ERR_INVALID, -EINVAL, "export_trust: invalid key '%.100s'",
				       trusted[s->ntrusted]);
	*ret = TAKE_PTR(s);
	return 0;
}

void signer_free(struct signer *s)
{
	if (!s)
		return;
	EVP_PKEY_free(s->own);
	free(s);
}

static int prepare(struct signer *s, struct err *e)
{
	uint8_t seed[KEY];
	size_t len = KEY;
	int r = s->ready ? 0 : vault_file_read(s->path, seed, sizeof(seed), e);

	if (s->ready)
		return 0;
	if (r == -ENOENT)
		r = RAND_priv_bytes(seed, sizeof(seed)) == 1 ? vault_file_write(s->path, seed, sizeof(seed), e) :
							       err_set(e, ERR_INTERNAL, -EIO, "no random bytes");
	if (r == 0) {
		s->own = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, sizeof(seed));
		if (!s->own || EVP_PKEY_get_raw_public_key(s->own, s->public, &len) != 1 || len != KEY)
			r = err_set(e, ERR_INTERNAL, -EIO, "'%s' is not a valid key", s->path);
	}
	OPENSSL_cleanse(seed, sizeof(seed));
	s->ready = r == 0;
	return r;
}

int signer_public(struct signer *s, char ret[SIGNER_TEXT], struct err *e)
{
	int r = prepare(s, e);

	if (r == 0)
		write_key(s->public, ret);
	return r;
}

static void signed_text(const uint8_t sum[32], uint8_t ret[sizeof(context) + 32])
{
	memcpy(ret, context, sizeof(context));
	memcpy(ret + sizeof(context), sum, 32);
}

int signer_sign(struct signer *s, const uint8_t sum[32], uint8_t ret[SIGNER_BLOCK], struct err *e)
{
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	uint8_t text[sizeof(context) + 32];
	size_t len = SIGNATURE;
	int r = prepare(s, e);

	signed_text(sum, text);
	memcpy(ret, head, sizeof(head));
	memcpy(ret + sizeof(head), s->public, KEY);
	if (r == 0 && (!c || EVP_DigestSignInit(c, NULL, NULL, NULL, s->own) != 1 ||
		       EVP_DigestSign(c, ret + sizeof(head) + KEY, &len, text, sizeof(text)) != 1 || len != SIGNATURE))
		r = err_set(e, ERR_INTERNAL, -EIO, "the export cannot be signed");
	EVP_MD_CTX_free(c);
	return r;
}

bool signer_is_block(const uint8_t *data)
{
	return !memcmp(data, head, sizeof(head));
}

static bool fits(const uint8_t key[KEY], const uint8_t *signature, const uint8_t sum[32])
{
	EVP_PKEY *k = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, KEY);
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	uint8_t text[sizeof(context) + 32];
	bool ok;

	signed_text(sum, text);
	ok = k && c && EVP_DigestVerifyInit(c, NULL, NULL, NULL, k) == 1 &&
	     EVP_DigestVerify(c, signature, SIGNATURE, text, sizeof(text)) == 1;
	EVP_MD_CTX_free(c);
	EVP_PKEY_free(k);
	return ok;
}

int signer_check(struct signer *s, const uint8_t block[SIGNER_BLOCK], const uint8_t sum[32], char ret_key[SIGNER_TEXT],
		 struct err *e)
{
	const uint8_t *key = block + sizeof(head);
	bool known;

	write_key(key, ret_key);
	if (!signer_is_block(block) || !fits(key, key + KEY, sum)) {
		err_set(e, WHY_SIGNATURE, -EKEYREJECTED,
			"the file's signature does not match: the file was changed after the export");
		err_remedy(e, "copy the file again from where it was exported");
		return -EKEYREJECTED;
	}
	/* One that has no key yet has signed nothing. */
	known = s->ready || access(s->path, F_OK) == 0 ? prepare(s, NULL) == 0 && !CRYPTO_memcmp(s->public, key, KEY) :
							 false;
	for (unsigned i = 0; !known && i < s->ntrusted; i++)
		known = !CRYPTO_memcmp(s->trusted[i], key, KEY);
	if (known)
		return 0;
	err_set(e, WHY_SIGNATURE, -ENOKEY, "the file is signed with an untrusted key: %s", ret_key);
	err_remedy(e, "an administrator can trust it: export_trust = %s", ret_key);
	return -ENOKEY;
}
