/*
 * .dockerignore: which files of a context are left out. One pattern per line; `!` makes an exception; the last matching
 * pattern decides. A pattern that matches a folder matches everything in it.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define IGNORE_MAX 8192 /* maximal number of patterns */

struct ignore_pattern {
	char *text;
	bool back; /* an exception (`!`) */
};

struct ignore {
	struct ignore_pattern *at;
	size_t n;
	bool backs; /* there is an exception */
};

/* @text is the content of the file. -EINVAL with "line N: …". */
int ignore_parse(const char *text, size_t len, struct ignore *ret, struct err *e);
/* Adds one pattern, of COPY --exclude. */
int ignore_add(struct ignore *ig, const char *pattern, struct err *e);
void ignore_done(struct ignore *ig);
static inline void ignore_donep(struct ignore *ig)
{
	ignore_done(ig);
}

/* Whether @path (relative, without "./" and a slash at the end) is left out. */
bool ignore_has(const struct ignore *ig, const char *path);
/* Whether all of an ignored folder may be skipped. Not when an exception may match something in it. */
bool ignore_prunes(const struct ignore *ig, const char *folder);
