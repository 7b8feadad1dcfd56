/*
 * Blobs between a registry and layers, as files of the data folder, named by their digest and the number of the tenant
 * that fetched them, whose quota they count in. A complete one stays until its layer is made, at most for a day: a
 * repeated pull uses it.
 */
#pragma once
#include "oci/manifest.h"
#include "service/service.h"

#define BLOB_PART (OCI_DIGEST_SIZE + ID_SIZE + 48)

/* Removes incomplete blobs of an earlier process, and old ones. */
int blob_store_start(struct service *s, struct err *e);
void blob_store_sweep(struct service *s, uint64_t now_ns); /* @now_ns: wall clock */
/* Opens a complete blob: a descriptor at its start, or -ENOENT. Until blob_store_release() it is in use. */
int blob_store_open(struct service *s, struct tenant *t, const struct oci_descriptor *d);
/*
 * Makes a new, empty one, whose name is written to @part: to be ended by blob_store_keep(), which begins its use, or
 * blob_store_drop(). ERR_QUOTA.
 */
int blob_store_new(struct service *s, struct tenant *t, const struct oci_descriptor *d, char part[BLOB_PART],
		   struct err *e);
int blob_store_keep(struct service *s, struct tenant *t, const struct oci_descriptor *d, const char *part,
		    struct err *e);
void blob_store_drop(struct service *s, struct tenant *t, const struct oci_descriptor *d, const char *part);
void blob_store_release(struct service *s, struct tenant *t, const struct oci_descriptor *d);
bool blob_store_has(const struct service *s, const struct tenant *t, const struct oci_descriptor *d);
void blob_store_remove(struct service *s, struct tenant *t, const struct oci_descriptor *d);
/* Removes those of @t that are not in use. Returns how many bytes they had. */
uint64_t blob_store_forget(struct service *s, struct tenant *t);
