/* Writes OCI manifests. */
#include "service/image/manifest.h"
#include "base/base.h"
#include "base/json.h"

static void put(struct json *j, const char *key, const char *type, const char *digest, uint64_t size)
{
	jout_object(j, key);
	jout_str(j, "mediaType", type);
	jout_str(j, "digest", digest);
	jout_u64(j, "size", size);
	jout_end(j);
}

int image_manifest_write(const struct buf *config, const struct oci_descriptor *layer, unsigned n, struct buf *out,
			 struct err *e)
{
	char digest[OCI_DIGEST_SIZE];
	struct json j = JSON_INIT(out);

	oci_digest_of(buf_str(config), config->len, digest);
	jout_object(&j, NULL);
	jout_u64(&j, "schemaVersion", 2);
	jout_str(&j, "mediaType", OCI_TYPE_MANIFEST);
	put(&j, "config", OCI_TYPE_CONFIG, digest, config->len);
	jout_array(&j, "layers");
	for (unsigned i = 0; i < n; i++)
		put(&j, NULL, layer[i].type, layer[i].digest, layer[i].size);
	jout_end(&j);
	jout_end(&j);
	return jout_done(&j) < 0 ? err_set(e, ERR_TOO_LARGE, -E2BIG, "the image's manifest is too long") : 0;
}
