/*
 * Building an image from a Dockerfile. Its steps run one after the other; the result of a step is a layer, found again
 * by its key (docs/design/0018-images.md, "Building").
 */
#pragma once
#include <jansson.h>

#include "service/image/image.h"

#define BUILD_TAGS_MAX 16U
#define BUILD_ARGS_MAX 512U
#define BUILDS_RUNNING 16U /* of one tenant at a time */

struct build;

/*
 * Events, as one JSON object each, and the end: @e is NULL when the image exists. Neither is called from within
 * build_start.
 */
struct build_calls {
	void (*event)(void *arg, const struct buf *object);
	bool (*full)(void *arg); /* whether commands should wait with their output, until build_read() */
	void (*done)(void *arg, const struct image *image, const struct err *e); /* @build is freed after this */
};

/*
 * @request: {dockerfile, tags, args, target, network, no_cache, labels, secrets, context_bytes}; see docs/api.md.
 * ->stream: where the context's tar is written, the caller's; -1: there is none (`context` is false). ERR_INVALID, with
 * the line of the Dockerfile, before anything is made.
 */
struct build_begun {
	struct build *build;
	struct operation *operation; /* its operation, of kind "build" */
	int stream; /* see above */
	char missing[OCI_NAME_MAX]; /* with -ENOENT: a missing image that the Dockerfile names; "": another error */
};
int build_start(struct service *s, const struct who *who, const json_t *request, const struct build_calls *calls,
		void *arg, struct build_begun *ret, struct err *e);
/* Ends the build; only layers of finished steps stay. No callback follows. */
void build_cancel(struct build *b);
void build_read(struct build *b); /* what was said has been taken */

/* Forgets the tenant's steps; layers that nothing else needs are removed. */
struct build_forgotten {
	uint64_t steps, layers, bytes;
};
int build_cache_forget(struct service *s, const struct who *who, struct build_forgotten *ret, struct err *e);
/* Forgets steps that were not used for two weeks. */
void build_cache_expire(struct service *s, struct tenant *t);
/* Stores that the step @key of @t has made @chain, which counts for it from now on. ERR_QUOTA. */
int build_cache_keep(struct service *s, struct tenant *t, const char *key, const char *chain, struct err *e);
/* At the start: what the steps in the store have made counts for their tenants. */
int build_cache_load(struct service *s, struct err *e);
