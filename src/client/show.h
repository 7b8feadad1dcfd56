/* What answers look like: fields of JSON objects, and JSON itself on stdout. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* A field, or "" and 0 when it is missing or of another type. */
const char *show_str(const json_t *o, const char *key);
uint64_t show_u64(const json_t *o, const char *key);

/* One line on stdout; indented when @pretty. Safe to be looked at on a terminal. */
enum show_style { SHOW_LINE, SHOW_PRETTY };
int show_json(const json_t *v, enum show_style style, struct err *e);
/* Appends the same text without the line feed. */
int show_dump(const json_t *v, enum show_style style, struct buf *b);
/* A line of text from elsewhere on stdout, escaped. */
void show_line(const char *text);
/* "cloche: …" on stderr, escaped. */
void show_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The line that says which output is kept nowhere any more: @lost bytes, up to @offset. */
void show_gap(char *text, size_t size, const char *stream, uint64_t lost, uint64_t offset);
/* An error in the shape of the API's. */
void show_error(const struct err *e);

/* "2026-11-15T03:41:24.123Z" in ms since 1970, or 0 when it is not such a text. */
uint64_t show_time_ms(const char *iso);
/* "12m" since that time. */
const char *show_age(const char *iso, char *buf, size_t size);
/* "a=1 b=2" of an object of strings. */
int show_pairs(const json_t *o, struct buf *b);

/* Sets @key to TEXT's part behind the first '=' in the object @o; its name before it. -EINVAL without one. */
int show_set_pair(json_t *o, const char *text, struct err *e);

/* What could not be done for the processes of a sandbox that was made of a checkpoint, on stderr. */
enum show_much { SHOW_NOTES, SHOW_WARNINGS }; /* warnings alone: that there are no processes at all */
void show_not_done(const json_t *sandbox, enum show_much much);
/* Connections to the outside that it, or a sandbox from it, does not have. */
void show_cut(const json_t *answer);
/* The answer {"sandboxes":[…]}: as it is, or the ids. */
int show_made(bool json, const json_t *answer, struct err *e);
