/* How one text becomes another, as people read it: unified, with three lines around each change. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Bytes that are text: UTF-8 without a NUL. */
bool text_is(const char *p, size_t len);
/*
 * Appends the hunks to @out, nothing when both are the same. Costs a few times the length: past a bound, the lines
 * that differ are shown as replaced as a whole, without a search for the shortest diff. -E2BIG when @out is full,
 * -ENOMEM.
 */
int text_diff(const char *a, size_t alen, const char *b, size_t blen, struct buf *out);
