/* Suggestions for "did you mean": the known word that is nearest to an unknown one. */
#pragma once
#include <stddef.h>

/*
 * The one of @words that is nearest to @word: another usual name for it (`ttl` for `timeout`), or the same with a letter or
 * two more, fewer or other. NULL when none is near enough. Never one that equals @word.
 */
const char *near_word(const char *word, const char *const *words, size_t n);
/* What to use in place of an option that other programs have, such as "-p": a sentence for users. NULL: not known. */
const char *near_option(const char *option);
