/*
 * What the instructions of a Dockerfile may contain: flags, numbers of arguments, order. All of it is checked before
 * anything is built, so that a mistake in the last line costs nothing.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "dockerfile/parse.h"

struct stage {
	const char *name; /* in lower case, NULL: it has none */
	const char *base; /* as written: variables are not expanded */
	const char *platform; /* as written, NULL: not given */
	unsigned line;
	size_t first, end; /* indexes of its instructions, without FROM */
};

struct stages {
	struct stage *at;
	size_t n;
	size_t before; /* number of ARG instructions before the first FROM */
};

/* Borrows from @d, whose FROM lines it changes (names become lower case). -EINVAL or -ENOTSUP with "line N: …". */
int stages_check(struct dockerfile *d, struct stages *ret, struct err *e);
void stages_done(struct stages *s);
/* The stage of this name or number before stage @before, or -1. */
int stages_find(const struct stages *s, const char *name, size_t before);

/* Checks one instruction by itself. */
int instruction_check(const struct instruction *in, char escape, struct err *e);
/* The value of "--name=value" ("" of "--name"), NULL when it is not given. @at finds later ones of the same name. */
const char *instruction_flag(const struct instruction *in, const char *name, size_t *at);

/* "1m30s", "500ms": nanoseconds. */
int docker_duration(const char *text, int64_t *ret_ns, struct err *e);
/* The trigger of an ONBUILD with its here-documents, as a configuration keeps it; to be freed, NULL without memory. */
char *instruction_trigger(const struct instruction *in);
