/*
 * Copies bytes from one pipe to another while the other end is read, up to a maximum: between a guest, which may send
 * nothing, or never stop, and a reader that expects the stream to end.
 */
#pragma once
#include <stdint.h>
#include <uv.h>

struct bounded_pipe;

struct bounded_pipe_opts {
	uint64_t max; /* bytes; past it the stream is cut */
	uint64_t silent_ms; /* so long without a byte from where it comes, and it is cut */
	uint64_t all_ms; /* so long in all, and it is cut; 0: for ever */
	uint64_t unread_ms; /* after so long without room at the output, the reader counts as gone */
	void (*over)(void *arg); /* once, at the end; not from within a call here. The pipe is gone then */
	void *arg;
};

/* Takes @from on success. *ret_fd, to be read from, is the caller's. 0 or -errno. */
int bounded_pipe_open(uv_loop_t *loop, int from, const struct bounded_pipe_opts *o, struct bounded_pipe **ret,
		      int *ret_fd);
/* Ends it without a word to ->over. */
void bounded_pipe_free(struct bounded_pipe *x);
