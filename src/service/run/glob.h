/* Patterns of artifacts: `*` is anything, also with slashes, `?` one byte, `[a-z]` and `[!a-z]` a set; a backslash quotes. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/*
 * Whether @pattern matches the whole of @text. Callers choose both, so every look at a byte of the pattern counts down *@left:
 * at 0 nothing matches any more.
 */
bool glob_match(const char *pattern, const char *text, uint64_t *left);
