/*
 * Bytes from one pipe to another, for as long as somebody reads them, and no more than so many: between a guest, who may
 * say nothing, or never stop, and whoever believes that a stream ends.
 */
#pragma once
#include <stdint.h>
#include <uv.h>

struct bounded_pipe;

struct bounded_pipe_opts {
	uint64_t max; /* bytes; past it the stream is cut */
	uint64_t silent_ms; /* so long without a byte from where it comes, and it is cut */
	uint64_t all_ms; /* so long in all, and it is cut; 0: for ever */
	uint64_t unread_ms; /* so long without room where it goes, and nobody is thought to read */
	void (*over)(void *arg); /* once, at the end; not from within a call here. The pipe is gone then */
	void *arg;
};

/* Takes @from on success. *ret_fd, to be read from, is the caller's. 0 or -errno. */
int bounded_pipe_open(uv_loop_t *loop, int from, const struct bounded_pipe_opts *o, struct bounded_pipe **ret,
		      int *ret_fd);
/* Ends it without a word to ->over. */
void bounded_pipe_free(struct bounded_pipe *x);
