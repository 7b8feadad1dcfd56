/* Manifests for images without one: the configuration, and the layers in their original form or uncompressed. */
#pragma once
#include "base/buf.h"
#include "oci/manifest.h"
#include "service/image/image.h"

/*
 * @config: the configuration's JSON. @layer: the layers as blobs, from the lowest on. Writes the JSON of an OCI
 * manifest.
 */
int image_manifest_write(const struct buf *config, const struct oci_descriptor *layer, unsigned n, struct buf *out,
			 struct err *e);
