/* Packs the differences between two states of files as the archive of an image's layer. */
#pragma once
#include "oci/manifest.h"
#include "service/checkpoint/compare.h"
#include "service/image/image.h"

struct layer_pack;

/*
 * Called once, later, unless it was cancelled. @fd: the archive, whose digest and size are in @d; the callee's. -1: *e
 * has the reason.
 */
typedef void layer_pack_fn(void *arg, int fd, const struct oci_descriptor *d, const struct err *e);

/* @w->flags: added to those that are needed. */
int layer_pack(struct service *s, const struct who *who, struct compare_request *w, layer_pack_fn *fn, void *arg,
	       struct layer_pack **ret, struct err *e);
void layer_pack_cancel(struct layer_pack *p);
/* makes a file without a name in the data folder; returns a descriptor */
int image_spool(const struct service *s, struct err *e);
