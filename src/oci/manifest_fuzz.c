#include "oci/manifest.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever is accepted is within the bounds. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct oci_manifest m;

	if (oci_manifest_parse((const char *)data, size, NULL, &m, NULL) < 0)
		return 0;
	assert(m.nlayers <= OCI_LAYERS_MAX);
	assert(m.kind == OCI_INDEX ? oci_digest_ok(m.chosen.digest) : oci_digest_ok(m.config.digest));
	for (unsigned i = 0; i < m.nlayers; i++)
		assert(oci_digest_ok(m.layer[i].digest));
	return 0;
}
