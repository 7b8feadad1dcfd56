/*
 * One layer of an image, from its bytes: unpacked by cloche-tar into a hidden sandbox on the layers below, then sealed.
 * After a wrong digest, an exceeded limit, or the death of a process, nothing is left. docs/design/0018-images.md, "One
 * layer".
 */
#pragma once
#include "service/image/image.h"

struct layer_making;
struct sandbox_request;

/* Called once, later, unless it was cancelled. @c is pinned for the callee; NULL: *e has the reason. */
typedef void image_layer_fn(void *arg, struct image_chain *c, const struct err *e);

struct image_layer_plan {
	const char *parent; /* chain id below, pinned by the caller; "" = none */
	int fd; /* read from its offset; a duplicate is used, with the same offset */
	uint64_t size; /* of the layer's archive; 0 = up to the end */
	const char *digest; /* of the archive, NULL = any */
	const char *diff; /* its diff id, NULL = any */
	bool compressed; /* whether a registry may have the archive under this digest */
};

/* The chain of @diff above @parent, if it exists. */
struct image_chain *image_layer_above(struct service *s, const char *parent, const char *diff);
/* If the same layer is being made already, for any tenant, it is made once. */
int image_layer_make(struct service *s, const struct who *who, const struct image_layer_plan *p, image_layer_fn *fn,
		     void *arg, struct layer_making **ret, struct err *e);
void image_layer_cancel(struct layer_making *m);

/*
 * A request for a sandbox on @chain ("" = none) for unmodified files: fills in spec and limits. @memory: so many bytes of files
 * are in memory; 0: they are on a disk.
 */
int image_work_request(struct service *s, const char *chain, uint64_t memory, struct sandbox_request **ret,
		       struct err *e);
