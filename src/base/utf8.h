/* Whether bytes are UTF-8, and where the last whole character ends. Fast for what is mostly ASCII. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

bool utf8_valid(const char *p, size_t len);
/* @len without the beginning of a character that is cut off at the end: at most 3 bytes less. */
size_t utf8_whole(const char *p, size_t len);
