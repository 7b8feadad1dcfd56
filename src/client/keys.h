/* The keys that leave a shell behind: found in what is typed, and held back only as long as they may be them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define KEYS_MAX 8

struct keys {
	char want[KEYS_MAX];
	size_t count; /* 0: none */
	size_t matched;
};

/* "ctrl-p,ctrl-q", single characters too; "" is none. */
int keys_parse(const char *text, struct keys *ret, struct err *e);
/*
 * Appends to @out what is to be sent of @data. True when the keys were typed; what came behind them is dropped. A start
 * of the keys is held back until it is clear what it is.
 */
bool keys_feed(struct keys *k, const char *data, size_t len, struct buf *out);
