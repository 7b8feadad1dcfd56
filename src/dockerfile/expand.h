/*
 * Quotes and variables of a Dockerfile's words: $name, ${name}, ${name:-word}, ${name:+word}, ${name:?word} (each with
 * and without the colon), ${name#pattern}, ${name##pattern}, ${name%pattern}, ${name%%pattern}, ${name/pattern/word},
 * ${name//pattern/word}. Single quotes keep everything, double quotes all but variables, the escape character quotes one.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "dockerfile/words.h"

#define EXPAND_MAX (1U << 20) /* bytes of one result */
#define EXPAND_WORK (256ULL << 20)

struct expand {
	/* The value of a variable, NULL when it is not set. */
	const char *(*get)(void *data, const char *name, size_t len);
	void *data;
	char escape; /* '\\' or '`' */
	bool keep_quotes; /* keep quotes in the result */
	bool keep_escapes;
	bool keep_unset; /* keep variables that are not set as they are written */
	bool plain_quotes; /* quotes are ordinary bytes, as in here-documents */
	/* steps that are left for all that share it, about a nanosecond each or less; NULL: EXPAND_WORK for this text */
	uint64_t *work;
};

/* Expands one word; spaces stay. -EINVAL with a message that quotes the invalid part. */
int expand_word(const struct expand *x, const char *text, struct buf *ret, struct err *e);
/* Also splits at unquoted spaces, after expanding. Appends to @ret. */
int expand_words(const struct expand *x, const char *text, struct words *ret, struct err *e);
