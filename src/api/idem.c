/* Idempotency keys: reserving one, and repeating the stored answer. */
#include "api/idem.h"
#include "base/base.h"

#include <openssl/evp.h>

int idem_read(struct call *c, const char *data, size_t len, char key[KEY_MAX_LEN + 1], uint8_t hash[32], struct err *e)
{
	const char *given = http_header(c->q, "Idempotency-Key");
	bool ok, ascii = true;
	EVP_MD_CTX *m;

	if (!given)
		return 0;
	for (const char *p = given; *p; p++)
		ascii = ascii && *p >= ' ' && *p < 0x7f;
	if (!*given || strlen(given) > KEY_MAX_LEN || !ascii)
		return err_set(e, ERR_INVALID, -EINVAL, "Idempotency-Key must be 1 to 128 printable ASCII characters");
	m = EVP_MD_CTX_new();
	ok = m && EVP_DigestInit_ex(m, EVP_sha256(), NULL) &&
	     EVP_DigestUpdate(m, http_path(c->q), strlen(http_path(c->q)) + 1) && EVP_DigestUpdate(m, data, len) &&
	     EVP_DigestFinal_ex(m, hash, NULL);
	EVP_MD_CTX_free(m);
	if (!ok)
		return err_set(e, ERR_INTERNAL, -EIO, "hash the request");
	memcpy(key, given, strlen(given) + 1);
	return 1;
}

/* -EBUSY when another request with it is under way. */
static int idem_hold(struct call *c, const char *key, struct err *e)
{
	char text[192];

	snprintf(text, sizeof(text), "%s/%s", tenant_id(c->who.tenant), key);
	if (map_get(&c->api->busy, text))
		return err_set(e, WHY_KEY_REUSED, -EBUSY,
			       "the first request with this Idempotency-Key is still in progress");
	c->busy = strdup(text);
	if (!c->busy || map_put(&c->api->busy, text, c) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a request");
	return 0;
}

void call_replay(struct call *c)
{
	http_set(c->q, "Idempotent-Replay", "true");
}

int idem_begin(struct call *c, const struct tenant *t, const char *data, size_t len, char key[KEY_MAX_LEN + 1],
	       uint8_t hash[32], idem_again_fn *again)
{
	struct err e = { 0 };
	const char *ids;
	int r = idem_read(c, data, len, key, hash, &e);

	if (r == 0)
		return 0;
	if (r > 0)
		r = idem_answer(c->api->s, t, key, hash, &ids, &e);
	if (r > 0) {
		r = again(c, ids, &e);
		if (r == 0)
			return 1;
	} else if (r == 0) {
		r = idem_hold(c, key, &e);
		if (r == 0)
			return 0;
	}
	call_fail(c, &e);
	return r;
}
