/*
 * What differs between two states of a sandbox's files, told as a stream of changes (proto/change.h) into a pipe. Each
 * comparison has a thread of its own, that sees nothing but what it is given here: a reader may be as slow as it likes.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/spec.h"

#define DIFF_TEXT 1U /* with the content of small files, before and now */
/*
 * With what it takes to do the same elsewhere: content, extended attributes, holes. Times count as changes; of a folder
 * that is gone only itself is told. What cannot be told is then an error.
 */
#define DIFF_DATA 2U
#define DIFF_FLAGS (DIFF_TEXT | DIFF_DATA)

#define DIFF_TEXT_MAX (1U << 20) /* a file; in all: */
#define DIFF_TEXT_ALL (24U << 20)

struct diff_state {
	int writable; /* of a sandbox that lives: its writable layer, read as it is just then; -1: none. Copied */
	uint32_t uid_base; /* of it */
	uint32_t layers; /* sealed ones below it, the oldest first */
	char layer[SPEC_LAYERS][ID_SIZE];
};

struct diff_opts {
	struct diff_state from, to;
	unsigned flags;
	uint32_t max; /* entries told, the rest is counted; 0: all */
	uint32_t spec_flags; /* SPEC_READ_ONLY, SPEC_SYSTEM_WRITABLE: which trees there are */
	int store; /* of layers; the caller's, must stay; -1: none */
	int image, usr, dpkg; /* below it all; -1: none. Copied */
	const char *workdir;
	int out; /* without @ret_fd: a pipe's end to write to. Copied */
	const char *opaque; /* the attribute that marks folders which hide what is below */
};

struct diff;

/* *ret_fd, the pipe's end to read from, is the caller's. NULL: it goes to @o->out. */
int diff_start(const struct diff_opts *o, struct diff **ret, int *ret_fd, struct err *e);
/* Whether it has said all it will: it can be freed without a wait. */
bool diff_over(const struct diff *d);
/* Stops it when it is not over, and waits for that. */
void diff_free(struct diff *d);
