#include "oci/mirrors.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each place is text with an end, and what is renamed has no place on this machine any more. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(buf_done) struct buf once = BUF_INIT(64 * KIB), twice = BUF_INIT(64 * KIB);
	char text[4096], place[OCI_MIRRORS_MAX][OCI_PLACE_MAX];
	unsigned n;

	if (size >= sizeof(text))
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	n = oci_mirrors(text, "docker.io/library/python", place);
	assert(n <= OCI_MIRRORS_MAX);
	for (unsigned i = 0; i < n; i++)
		assert(memchr(place[i], '\0', OCI_PLACE_MAX));
	if (oci_mirrors_rename_loopback(text, "other.internal", &once) == 0) {
		assert(oci_mirrors_rename_loopback(buf_str(&once), "other.internal", &twice) == 0);
		assert(!strcmp(buf_str(&once), buf_str(&twice)));
	}
	return 0;
}
