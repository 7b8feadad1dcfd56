/* What differs between two states of files: an image, a checkpoint, a sandbox as it is just now. */
#pragma once
#include "base/buf.h"
#include "layers/diff.h"
#include "service/checkpoint/checkpoint.h"

struct state { /* one of these, or none: the image */
	struct sandbox *sandbox;
	struct checkpoint *checkpoint;
	/* sealed layers, whatever they belong to; not of machines. As ->to: with all it says */
	const struct sandbox_spec *chain;
};

struct compare_request {
	struct state from, to; /* ->to: a sandbox or a checkpoint */
	unsigned flags; /* DIFF_* */
	uint32_t max; /* entries in the answer, 0 = all */
};

/* "image", "checkpoint:ID", "sandbox:ID or NAME". */
int state_find(struct service *s, const struct who *who, const char *text, struct state *ret, struct err *e);

void state_ref(const struct state *t);
void state_unref(const struct state *t);
/* Image, kind of root, limits and layers of a sandbox that lives or a checkpoint that is whole. */
int state_spec(const struct state *t, struct sandbox_spec *ret, struct err *e);

/* @fd is the stream (proto/change.h), the callee's; -1: *e says why not. */
typedef void compare_fn(void *arg, int fd, const struct err *e);
/* -errno: it was not begun, and @fn is not called. Both states must be of one tenant and image. */
int compare_open(struct service *s, const struct compare_request *w, compare_fn *fn, void *arg, struct err *e);

/* The whole stream, which the callee may take over; NULL: *e says why not. */
typedef void compare_list_fn(void *arg, struct buf *stream, const struct err *e);
#define COMPARE_STREAM_MAX (96U << 20)
int compare_list(struct service *s, const struct compare_request *w, compare_list_fn *fn, void *arg, struct err *e);
