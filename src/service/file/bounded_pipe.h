/*
 * Bytes from one pipe to another, for as long as somebody reads them, and no more than so many: between a guest, who may
 * say nothing, or never stop, and whoever believes that a stream ends.
 */
#pragma once
#include <stdint.h>
#include <uv.h>

struct sluice;

struct sluice_opts {
	uint64_t max; /* bytes; past it the stream is cut */
	uint64_t silent_ms; /* so long without a byte from where it comes, and it is cut */
	uint64_t all_ms; /* so long in all, and it is cut; 0: for ever */
	uint64_t unread_ms; /* so long without room where it goes, and nobody is thought to read */
	void (*over)(void *arg); /* once, at the end; not from within a call here. The sluice is gone then */
	void *arg;
};

/* Takes @from on success. *ret_fd, to be read from, is the caller's. 0 or -errno. */
int sluice_open(uv_loop_t *loop, int from, const struct sluice_opts *o, struct sluice **ret, int *ret_fd);
/* Ends it without a word to ->over. */
void sluice_free(struct sluice *x);
