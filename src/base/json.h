/*
 * Writes JSON into a buffer, one value after the other; commas and nesting are kept here. An error (a full buffer, too
 * deep) sticks: later calls do nothing and jout_done() returns it. There is no reader: code that must parse JSON uses
 * jansson (its names begin with json_), outside the engine.
 *
 *	struct json j = JSON_INIT(&buf);
 *	jout_object(&j, NULL);
 *	jout_str(&j, "name", name);
 *	jout_array(&j, "ids");
 *	jout_u64(&j, NULL, 7);
 *	jout_end(&j);
 *	jout_end(&j);
 *	r = jout_done(&j);
 *
 * @key is NULL outside objects. Strings may hold any bytes: what is not UTF-8 becomes U+FFFD, and control characters
 * are escaped, C1, DEL and what turns the
 * direction of text too, so that the output is safe to show on a terminal.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define JSON_DEPTH_MAX 32

struct json {
	struct buf *buf;
	int r;
	unsigned depth;
	bool comma; /* the next value needs a comma before it */
	char close[JSON_DEPTH_MAX]; /* '}' or ']' of each open level */
};

#define JSON_INIT(buf_)                                                                                                \
	{                                                                                                              \
		.buf = (buf_)                                                                                          \
	}

/* Programs that also link jansson must not call one for the other: three of its functions have the same names. */
#define JSON_LINK_NAME(name) __asm__("cloche_" #name)
void jout_object(struct json *j, const char *key) JSON_LINK_NAME(json_object);
void jout_array(struct json *j, const char *key) JSON_LINK_NAME(json_array);
void jout_end(struct json *j); /* the innermost open object or array */

void jout_str(struct json *j, const char *key, const char *text); /* null when @text is NULL */
void jout_strn(struct json *j, const char *key, const void *data, size_t len);
/* A value that is JSON already, ours or checked. */
void jout_raw(struct json *j, const char *key, const char *text, size_t len);
void jout_u64(struct json *j, const char *key, uint64_t v);
void jout_i64(struct json *j, const char *key, int64_t v);
void jout_bool(struct json *j, const char *key, bool v);
void jout_null(struct json *j, const char *key) JSON_LINK_NAME(json_null);

/* 0 when one whole value was written, else the first error: -E2BIG, -ENOMEM, -EINVAL (misuse). */
int jout_done(const struct json *j);
