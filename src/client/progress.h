/* A line on stderr that shows the progress of a transfer: only on a terminal, and only after half a second. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *what;
	uint64_t total; /* 0: not known */
	uint64_t done, start_ns, drawn_ns;
	bool on, drawn;
};

void progress_init(struct progress *p, const char *what, uint64_t total);
void progress_add(struct progress *p, uint64_t bytes);
/* For what has no bytes to count: ->what, and since when. To be called now and then. */
void progress_wait(struct progress *p);
/* Removes the line. */
void progress_done(struct progress *p);
static inline void progress_donep(struct progress *p)
{
	progress_done(p);
}
