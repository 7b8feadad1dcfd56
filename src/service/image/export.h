/*
 * An image as one file: an OCI layout that `docker load` takes as well. Its layers are packed anew from the files in
 * the store, so they have other bytes and digests than the original archives.
 */
#pragma once
#include "service/image/image.h"

struct image_export;

/* Called once, later, unless it was cancelled: the file is ready to be read. NULL: *e has the reason. */
typedef void image_export_fn(void *arg, struct image_export *x, const struct err *e);

int image_export(struct image *i, const struct who *who, image_export_fn *fn, void *arg, struct image_export **ret,
		 struct err *e);
uint64_t image_export_size(const struct image_export *x);
ssize_t image_export_read(struct image_export *x, void *buf, size_t len); /* 0 at the end, or -errno */
void image_export_free(struct image_export *x); /* allowed at any time, and with NULL */
