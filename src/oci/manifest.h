/*
 * Manifests of images, and indexes of several: OCI's, and those of docker's schema 2. Hostile input: too long texts,
 * too many entries and invalid digests are refused.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "oci/digest.h"

#define OCI_MANIFEST_MAX (4U << 20)
#define OCI_LAYERS_MAX 128U /* maximal number of layers in one image */
#define OCI_INDEX_MAX 256U /* maximal number of images in one index */
#define OCI_TYPE_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define OCI_TYPE_INDEX "application/vnd.oci.image.index.v1+json"
#define OCI_TYPE_CONFIG "application/vnd.oci.image.config.v1+json"
#define OCI_TYPE_LAYER "application/vnd.oci.image.layer.v1.tar"
#define OCI_TYPE_LAYER_GZIP "application/vnd.oci.image.layer.v1.tar+gzip"
#define OCI_TYPE_LAYER_ZSTD "application/vnd.oci.image.layer.v1.tar+zstd"

struct oci_descriptor {
	char type[128]; /* media type */
	char digest[OCI_DIGEST_SIZE];
	uint64_t size;
};

enum oci_manifest_kind { OCI_IMAGE, OCI_INDEX };

struct oci_manifest {
	enum oci_manifest_kind kind;
	/* OCI_IMAGE */
	struct oci_descriptor config;
	unsigned nlayers;
	struct oci_descriptor layer[OCI_LAYERS_MAX]; /* from the lowest on */
	/* OCI_INDEX: the image for this machine; size 0 and no digest: none */
	struct oci_descriptor chosen;
	char names[160]; /* available platforms, for an error */
};

/* This machine's processor as images name it: "amd64", "arm64", … */
const char *oci_architecture(void);

/* @ref: for an index without platforms (an OCI layout), the annotated name to choose; NULL: the only one. */
int oci_manifest_parse(const char *text, size_t len, const char *ref, struct oci_manifest *ret, struct err *e);
