/*
 * What cloche-layers gets for one comparison: this struct, as a message on its control socket, and descriptors at fixed
 * places. Its only answer is the stream. It closes its end of the control socket when it does not need the folders any
 * more.
 */
#pragma once
#include <stdint.h>

#include "base/id.h"
#include "engine/spec.h"

/* Places of descriptors from SPAWN_FIRST on. Some may be empty. */
enum diff_place {
	DIFF_CONTROL,
	DIFF_OUT,
	DIFF_STORE,
	DIFF_FROM, /* writable layers */
	DIFF_TO,
	DIFF_IMAGE,
	DIFF_USR,
	DIFF_DPKG,
	DIFF_PLACES,
};

struct diff_task {
	uint32_t places; /* bits of the places that are not empty */
	uint32_t flags, max, spec_flags;
	uint32_t uid_base[2], layers[2]; /* from, to */
	char layer[2][SPEC_LAYERS][ID_SIZE];
	char workdir[SPEC_PATH], opaque[64];
};

/*
 * Compares; the stream ends with its end mark or an error. @fd, by places, stay the caller's. 0, or why the stream is
 * cut.
 */
int diff_run(const struct diff_task *t, const int fd[static DIFF_PLACES]);
/* Writes a stream that consists of this error only. */
void diff_refuse(int out, int r, const char *msg);
