/*
 * An image in its registry: its manifest, checked against its digest, and its blobs. Only skopeo talks to the registry,
 * in a hidden sandbox whose network policy is the administrator's.
 */
#pragma once
#include "oci/manifest.h"
#include "oci/name.h"
#include "service/image/blob_proxy.h"

struct registry;

struct registry_found {
	char digest[OCI_DIGEST_SIZE]; /* of the image or index with this name */
	char image_digest[OCI_DIGEST_SIZE]; /* the image for this machine */
	const struct oci_manifest *manifest; /* its manifest, valid as long as the registry */
};

/* Called once, not from within registry_find; it may free the registry. */
typedef void registry_fn(void *arg, int r, const struct registry_found *f, const struct err *e);

struct registry_plan {
	const struct oci_name *name;
	const char *login; /* base64 of USER:PASSWORD; NULL = from the administrator's file */
	bool digest_only; /* finds only the digest: no image is chosen, ->manifest is NULL */
};

int registry_find(struct service *s, const struct who *who, const struct registry_plan *plan, registry_fn *fn,
		  void *arg, struct registry **ret, struct err *e);
/* See blob_proxy_fetch(). */
int registry_fetch(struct registry *r, const struct oci_descriptor *d, int fd, blob_fn *fn, void *arg, struct err *e);
uint64_t registry_bytes(const struct registry *r);
/* @done (may be NULL): called when files are not written to any more. */
void registry_free(struct registry *r, void (*done)(void *arg), void *arg);
