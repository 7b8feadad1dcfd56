/* Makes a sandbox, or a checkpoint, an image: the layers of its image and one more. */
#pragma once
#include "service/checkpoint/checkpoint.h"
#include "service/image/image.h"

struct image_commit;

/* called once, later, unless it was cancelled */
typedef void image_commit_fn(void *arg, struct image *i, const struct err *e);

struct image_commit_request {
	struct sandbox *sandbox; /* exactly one of these two */
	struct checkpoint *checkpoint;
	const char *name; /* name of the new image */
	const char *comment; /* for its history; NULL: none */
};

int image_commit(struct service *s, const struct who *who, const struct image_commit_request *w, image_commit_fn *fn,
		 void *arg, struct image_commit **ret, struct err *e);
void image_commit_cancel(struct image_commit *x);
