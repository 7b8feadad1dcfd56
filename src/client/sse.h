/* Server-Sent Events, as they come in pieces: names and data, one at a time. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define SSE_MAX (4 * MIB) /* of one event */

struct sse {
	struct buf line, data;
	char event[64], id[64];
	bool cr; /* the last byte was one: a line feed behind it is the same end */
	int (*on)(void *arg, const struct sse *s); /* ->event ("message" when none was named), ->id, ->data */
	void *arg;
};

void sse_init(struct sse *s, int (*on)(void *arg, const struct sse *s), void *arg);
void sse_done(struct sse *s);
/* 0, -E2BIG for an event past the limit, or what @on returned that was not 0. */
int sse_feed(struct sse *s, const char *data, size_t len);
