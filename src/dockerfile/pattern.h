/*
 * Two kinds of patterns. Those of paths (.dockerignore, sources of COPY): `*` and `?` stop at a slash, `[a-z]` is a set,
 * a backslash quotes, and `**` between slashes is any number of folders. Those of ${name#pattern}: `*` and `?` match
 * everything, and there are no sets.
 *
 * The time of every function is bounded by the product of the two lengths.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Is @pattern one that path_match() accepts? (A set must end, a backslash must have something to quote.) */
bool path_pattern_ok(const char *pattern);
/* Does it contain `*`, `?`, `[` or a backslash? */
bool path_pattern_is(const char *pattern);
/* Does @pattern match the whole of @path? */
bool path_match(const char *pattern, const char *path);

/*
 * The ends of the shortest and of the longest prefix of @text that @pattern matches. 1 when it matches, 0 when it does
 * not, -ENOMEM, -EINVAL for a backslash before a character that needs none.
 */
int shell_prefix(const char *pattern, const char *text, size_t *ret_short, size_t *ret_long);
/* The same for suffixes: where the shortest and the longest one begin. */
int shell_suffix(const char *pattern, const char *text, size_t *ret_short, size_t *ret_long);
