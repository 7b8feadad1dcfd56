/*
 * What differs between two states of a sandbox's files, as a stream of changes (proto/change.h) into a pipe. Each
 * comparison is done by a process of its own, cloche-layers, that gets only what is here: so a slow reader delays
 * nothing else.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/spec.h"

#define DIFF_TEXT 1U /* with the content of small files, before and now */
/*
 * With all that is needed to apply the changes elsewhere: content, extended attributes, holes. Times count as changes;
 * of a folder that is gone only the folder itself is reported. What cannot be expressed is then an error.
 */
#define DIFF_DATA 2U
/* also compares /etc/machine-id, which each sandbox gets anew: for layers that no sandbox has changed */
#define DIFF_MACHINE_ID 4U
#define DIFF_FLAGS (DIFF_TEXT | DIFF_DATA | DIFF_MACHINE_ID)

#define DIFF_TEXT_MAX (1U << 20) /* bytes of a file, and in all: */
#define DIFF_TEXT_ALL (24U << 20)

struct diff_state {
	int writable; /* of a live sandbox: its writable layer, in its current state; -1: none */
	uint32_t uid_base; /* of the writable layer */
	uint32_t layers; /* sealed layers below it, the oldest first */
	char layer[SPEC_LAYERS][ID_SIZE];
};

/* All descriptors stay the caller's, and may be closed after the start. */
struct diff_opts {
	int program; /* cloche-layers, open; -1: it is not installed */
	struct diff_state from, to;
	unsigned flags;
	uint32_t max; /* entries that are reported; the rest is only counted; 0: all */
	uint32_t spec_flags; /* SPEC_READ_ONLY, SPEC_SYSTEM_WRITABLE: they decide which trees there are */
	int store; /* of layers; -1: none */
	int image, usr, dpkg; /* below all layers; -1: none */
	const char *workdir;
	int out; /* without @ret_fd: a pipe's end to write to */
	const char *opaque; /* the attribute that marks folders which hide what is below */
};

struct diff;

/* *ret_fd, the pipe's end to read from, is the caller's. NULL: it goes to @o->out. */
int diff_start(const struct diff_opts *o, struct diff **ret, int *ret_fd, struct err *e);
/* Whether the process does not need the folders any more, however it has ended. */
bool diff_over(const struct diff *d);
/* Ends the process, and returns when it has ended. */
void diff_free(struct diff *d);
