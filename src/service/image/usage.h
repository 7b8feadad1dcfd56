/*
 * How many bytes of images a tenant has, which its quota `image_bytes` limits. A layer counts once for each tenant that
 * needs it: for its images, for steps of its builds, for its sandboxes and checkpoints, or for work under way. What several
 * tenants need is on the disk once and counts for each of them, so that a tenant's use never depends on what others do. Bytes
 * that are not a layer yet count as well: fetched blobs and the files of imports.
 */
#pragma once
#include "base/json.h"
#include "service/image/image.h"

/*
 * @chain, and what it is based on, counts for @t until image_unuse(). ERR_QUOTA: the bytes that are new for @t do not
 * fit. "" is no chain.
 */
int image_use(struct service *s, struct tenant *t, const char *chain, struct err *e);
void image_use_force(struct service *s, struct tenant *t, const char *chain); /* found in the store, at the start */
void image_unuse(struct service *s, struct tenant *t, const char *chain);
void image_uses_forget(struct service *s, const struct tenant *t); /* it was removed */
/*
 * Whether @t has the files of @c already: by itself, or by a public image. Another tenant's chain is only given to who brings
 * its bytes: a digest is no secret.
 */
bool image_is_had(struct service *s, const struct tenant *t, const struct image_chain *c);

/*
 * Counts what a sandbox or a checkpoint of @t is based on: the first @n layers of @of, which are an image's. *held notes it, and
 * with @n == 0 is given back. Layers of another tenant's public image do not count. Never refused: what is based on them is there.
 */
void image_hold(struct service *s, struct tenant *t, const struct sandbox_spec *of, uint32_t n, char **held);
/* One chain after the other that some tenant needs; NULL after the last one. */
const char *image_use_next(struct service *s, size_t *at);

/* ERR_QUOTA, with what to do. */
int image_bytes_take(struct tenant *t, uint64_t bytes, struct err *e);
/* Blobs that are only kept for a repeated pull are removed if that helps. */
int image_bytes_take_in(struct service *s, struct tenant *t, uint64_t bytes, struct err *e);
void image_bytes_give(struct tenant *t, uint64_t bytes);
/* Whether that many would fit now. */
int image_bytes_check(struct tenant *t, uint64_t bytes, struct err *e);
/* How many more may be written; at most @max. */
uint64_t image_bytes_room(const struct tenant *t, uint64_t max);
/* Replaces @e, the error of a writer that was given image_bytes_room(), when that was less than @max. */
void image_bytes_explain(const struct tenant *t, uint64_t given, uint64_t max, struct err *e);

/* Files that grow while they are written: they are looked at several times a second. */
struct image_meter;
typedef void image_meter_fn(void *arg, const struct err *e);
#define METER_FILES 2
/* @full: called once, when what was written does not fit. The files stay the caller's. */
int image_meter_new(struct service *s, struct tenant *t, const int fd[METER_FILES], image_meter_fn *full, void *arg,
		    struct image_meter **ret, struct err *e);
void image_meter_drop(struct image_meter *m, unsigned i); /* the file @i is about to be closed */
void image_meter_free(struct image_meter *m); /* nothing of it counts any more; NULL: nothing */

/* The use of @t (NULL: of every tenant, and of the disk) as one object. */
void image_usage_write(struct service *s, struct tenant *t, struct json *j);
