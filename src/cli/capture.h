/*
 * A stream's bytes within a limit: the beginning and the end are kept, the middle is counted. Memory stays bounded
 * whatever is written.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct capture {
	uint64_t limit; /* 0 = keep all */
	uint64_t total;
	size_t head_max, tail_max;
	struct buf head;
	char *tail; /* a ring */
	size_t tail_at, tail_len;
};

/* @head_max and the rest of @limit for the tail. */
int capture_init(struct capture *c, uint64_t limit, size_t head_max);
void capture_done(struct capture *c);
/*
 * Adds bytes. Returns how many of the first belong to the head (a streaming reader passes those on at once), or
 * -ENOMEM.
 */
long capture_add(struct capture *c, const char *data, size_t len, bool keep_head);
bool capture_truncated(const struct capture *c);
uint64_t capture_dropped(const struct capture *c);
/* Calls @fn with the tail in order, in at most two pieces. */
int capture_tail(const struct capture *c, int (*fn)(void *arg, const char *data, size_t len), void *arg);
