/* Digests as texts, and chain ids: see digest.h. */
#include "oci/digest.h"
#include "base/base.h"

bool oci_digest_ok(const char *text)
{
	const size_t skip = strlen(OCI_DIGEST_PREFIX);

	return strlen(text) == OCI_DIGEST_LEN && !strncmp(text, OCI_DIGEST_PREFIX, skip) &&
	       strspn(text + skip, "0123456789abcdef") == OCI_DIGEST_LEN - skip;
}

void oci_digest_text(const uint8_t sum[SHA256_SIZE], char ret[OCI_DIGEST_SIZE])
{
	static const char hex[] = "0123456789abcdef";
	char *p = ret + strlen(OCI_DIGEST_PREFIX);

	memcpy(ret, OCI_DIGEST_PREFIX, strlen(OCI_DIGEST_PREFIX));
	for (unsigned i = 0; i < SHA256_SIZE; i++) {
		*p++ = hex[sum[i] >> 4];
		*p++ = hex[sum[i] & 15];
	}
	*p = '\0';
}

void oci_digest_of(const void *data, size_t len, char ret[OCI_DIGEST_SIZE])
{
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, data, len);
	sha256_end(&s, sum);
	oci_digest_text(sum, ret);
}

void oci_chain_id(const char *parent, const char *diff_id, char ret[OCI_DIGEST_SIZE])
{
	char both[2 * OCI_DIGEST_SIZE];

	if (*parent)
		oci_digest_of(both, (size_t)snprintf(both, sizeof(both), "%s %s", parent, diff_id), ret);
	else
		snprintf(ret, OCI_DIGEST_SIZE, "%s", diff_id);
}
