/*
 * A list of texts that owns them. Arguments and flags of an instruction are such lists.
 */
#pragma once
#include <stddef.h>

#include "base/cleanup.h"

#define WORDS_MAX 4096

struct words {
	char **at; /* NULL while empty */
	size_t n;
};

void words_done(struct words *w);
static inline void words_donep(struct words *w)
{
	words_done(w);
}
/* Adds a copy. 0, -ENOMEM, or -E2BIG above WORDS_MAX; a failed call changes nothing. */
int words_addn(struct words *w, const char *text, size_t len);
int words_add(struct words *w, const char *text);

/* Whether @c is a space in a Dockerfile: space, tab, carriage return, form feed, vertical tab, line feed. */
int words_space(char c);
