/*
 * The sandbox of one step of a build: hidden, on the layers so far. Files are made in it by cloche-tar, or a command runs in
 * it, and then it is sealed.
 */
#pragma once
#include "service/image/image.h"
#include "service/sandbox/sandbox.h"

struct build_box;

/* Called once, later: it is ready, or @e says why not. Not called after build_box_free(). */
typedef void build_box_fn(void *arg, const struct err *e);

#define BUILD_BOX_TMPFS 8U
struct build_box_plan {
	const char *chain; /* "" = an empty root */
	bool runs; /* it runs commands; else only file workers */
	bool memory; /* its files stay in memory, since few are expected */
	const json_t *network; /* as in a create; NULL: none. Only with ->runs */
	const char *tmpfs[BUILD_BOX_TMPFS]; /* folders that are not part of the layer; NULL-terminated */
	uint64_t tmpfs_size[BUILD_BOX_TMPFS]; /* 0: half of its memory */
};

int build_box_make(struct service *s, const struct who *who, const struct build_box_plan *p, build_box_fn *fn,
		   void *arg, struct build_box **ret, struct err *e);
struct sandbox *build_box_sandbox(const struct build_box *x); /* NULL: not yet, or gone */
/* Starts a file worker as root in it. */
int build_box_worker(struct build_box *x, int *ret_fd, struct err *e);
/* Makes its changes a layer above its chain; pinned for the callee. */
typedef void build_sealed_fn(void *arg, struct image_chain *c, const struct err *e);
void build_box_seal(struct build_box *x, build_sealed_fn *fn, void *arg);
void build_box_free(struct build_box *x); /* ends it; NULL is fine */
