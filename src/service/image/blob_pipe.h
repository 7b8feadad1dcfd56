/* A thread that moves bytes from a hostile pipe into a file, until the pipe ends, is cut, or is silent for too long. */
#pragma once
#include <uv.h>

#include "base/err.h"

struct blob_pipe;

struct blob_pipe_plan {
	uv_loop_t *loop;
	int from; /* taken over on success; must be the reading end of a pipe */
	int to; /* stays the caller's */
	uint64_t size; /* expected number of bytes */
	uint64_t stall_ms;
	const char *what; /* for messages; copied */
};

/* Called once, in the loop; the pipe is gone after that. */
typedef void blob_pipe_fn(void *arg, uint64_t moved, int r, const struct err *e);

int blob_pipe_start(const struct blob_pipe_plan *p, blob_pipe_fn *fn, void *arg, struct blob_pipe **ret, struct err *e);
uint64_t blob_pipe_moved(const struct blob_pipe *p);
void blob_pipe_cut(struct blob_pipe *p); /* ends it soon, with -ECANCELED */
