/*
 * An image from an archive: of `docker save`, an OCI layout, or a root filesystem, compressed or not. The archive comes
 * as a stream, and is parsed by cloche-tar. All content is checked against the digests of the archive's own manifest.
 */
#pragma once
#include "service/image/image.h"

struct archive_import;

/* Called once, later, unless it was cancelled. @i is NULL when it failed. */
typedef void archive_import_fn(void *arg, struct image *i, const struct err *e);

struct archive_request {
	const char *name; /* the image's new name; NULL: the one in the archive */
	const char *ref; /* which image of several, by its name in the archive; NULL: the only one */
	const char *format; /* "auto", "image" or "rootfs"; NULL: auto */
	/* For a root filesystem: JSON of a configuration, like "config" of an image; NULL: empty */
	const char *config;
};

/* @ret_stream: where the archive is written to, the caller's; shut down or closed after the last byte. */
int archive_import(struct service *s, const struct who *who, const struct archive_request *w, archive_import_fn *fn,
		   void *arg, struct archive_import **ret, int *ret_stream, struct err *e);
void archive_import_cancel(struct archive_import *x);
/* id of its operation: service/image/operation.h */
const char *archive_import_operation(const struct archive_import *x);
