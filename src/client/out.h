/* Our stdout or stderr, written without ever waiting: what does not fit stays and is written later. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define OUT_MAX (32 * MIB)

struct out {
	int fd;
	bool own; /* a description of our own, to be closed */
	bool socket; /* supports writes with MSG_DONTWAIT */
	bool broken; /* the reader has closed it: the rest is dropped */
	int error; /* why, unless it was EPIPE */
	struct buf pending;
};

void out_init(struct out *o, int fd);
void out_done(struct out *o);
void out_put(struct out *o, const void *data, size_t len);
/* Writes what is pending, as far as it goes. */
void out_flush(struct out *o);
