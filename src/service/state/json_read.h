/*
 * Strict reading of hostile JSON: one object, no repeated or unknown key, no NUL, bounded depth. Fields are read one by
 * one; the first error is kept, and json_read_end() returns it, or an error for keys that were not read.
 *
 *	struct json_read j = JIN_INIT(object, e);
 *	json_read_str(&j, "name", &name, 64);
 *	json_read_ms(&j, "timeout", &timeout);
 *	r = json_read_end(&j);
 *
 * A missing or null field leaves the variable as it is; each function returns whether the field was there.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define JIN_DEPTH 32
#define JIN_VALUES 65536 /* of a whole text: no request needs more than some thousand */
#define JIN_KEYS 48
#define JIN_MS_MAX (100ULL * 366 * 24 * 3600 * 1000) /* then nanoseconds since 1970 still fit */

struct json_read {
	const json_t *o;
	struct err *e;
	int r;
	unsigned asked;
	const char *key[JIN_KEYS];
};
#define JIN_INIT(o_, e_)                                                                                               \
	{                                                                                                              \
		.o = (o_), .e = (e_)                                                                                   \
	}

/* An object, or ERR_INVALID. The caller frees it with json_decref. An empty text is an empty object. */
int json_read_begin(const char *text, size_t len, json_t **ret, struct err *e);
/* The same, and texts may have NULs: json_read_str() refuses those. */
int json_read_begin_nul(const char *text, size_t len, json_t **ret, struct err *e);

/* Whether an earlier field was wrong. For errors of the caller's own: json_read_bad(). */
int json_read_bad(struct json_read *j, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const json_t *json_read_any(struct json_read *j, const char *key);
bool json_read_str(struct json_read *j, const char *key, const char **ret, size_t max);
bool json_read_bool(struct json_read *j, const char *key, bool *ret);
bool json_read_u64(struct json_read *j, const char *key, uint64_t *ret, uint64_t min, uint64_t max);
bool json_read_size(struct json_read *j, const char *key, uint64_t *ret_bytes); /* bytes or "512M" */
bool json_read_ms(struct json_read *j, const char *key, uint64_t *ret_ms); /* seconds or "30s" */
bool json_read_cpus(struct json_read *j, const char *key, uint32_t *ret_milli); /* 0.5 or "0.5" */
const json_t *json_read_object(struct json_read *j, const char *key);
const json_t *json_read_array(struct json_read *j, const char *key, size_t max);
/* 0, or the first error. */
int json_read_end(struct json_read *j);
