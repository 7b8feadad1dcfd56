/* Moving bytes between our own stdio and the sandbox's pipes, with bounded memory. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "cli/capture.h"

/* One output stream: read from @from; passed to @to as far as the limit goes, or kept when @to is -1. */
struct out_stream {
	int from, to;
	struct capture capture;
	bool broken; /* @to takes no more */
	int error; /* why, as -errno, unless its reader just went away */
	/* Called every now and then while @to takes nothing, so that a slow reader lifts no limit; NULL = just wait. */
	void (*waiting)(void *arg);
	void *arg;
};

/* Reads what is there: 1 when more may follow, 0 at the end (from is closed then), or -errno. */
int out_stream_read(struct out_stream *s);
/* Reads what is in the pipe now: after the end of the command, when other processes may still have the pipe open. */
int out_stream_drain(struct out_stream *s);
/* Passes the kept tail on. */
int out_stream_finish(struct out_stream *s);

struct in_stream {
	int from, to; /* -1 = done */
	char data[16384];
	size_t len, at;
};
bool in_stream_wants_read(const struct in_stream *s);
void in_stream_read(struct in_stream *s);
void in_stream_write(struct in_stream *s);
