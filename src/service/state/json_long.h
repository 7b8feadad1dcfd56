/*
 * Long strings of JSON, as the code of a cell. The library takes some 30 ns for each byte of a string, for which all other
 * requests wait: a second for 32 MiB. So they are cut out of the text first, and put into what the library made of the rest.
 */
#pragma once
#include <jansson.h>

#include "base/err.h"

#define JSON_LONG 128 /* bytes of a string, as written, that make it long, in a text that is not small */
#define JSON_SMALL 65536
#define JSON_NAMES (2U * 1024U * 1024U) /* bytes of long names, which are not cut out: 256 paths */

/* As json_loadb(): NULL with @e when @text is not JSON. */
json_t *json_long_load(const char *text, size_t len, size_t flags, struct err *e);
/* From behind a quote: the one that ends the string, or @end. */
const char *json_string_end(const char *at, const char *end);
