/*
 * JSON from strangers, read strictly: one object, no repeated or unknown key, no NUL, bounded depth. Fields are asked
 * for one by one; the first thing that is wrong sticks, and jin_end() tells it, together with keys nobody asked for.
 *
 *	struct jin j = JIN_INIT(object, e);
 *	jin_str(&j, "name", &name, 64);
 *	jin_ms(&j, "timeout", &timeout);
 *	r = jin_end(&j);
 *
 * What is missing, or null, leaves the variable as it is; each returns whether it was there.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define JIN_DEPTH 32
#define JIN_KEYS 48
#define JIN_MS_MAX (100ULL * 366 * 24 * 3600 * 1000) /* then nanoseconds since 1970 still fit */

struct jin {
	const json_t *o;
	struct err *e;
	int r;
	unsigned asked;
	const char *key[JIN_KEYS];
};
#define JIN_INIT(o_, e_) { .o = (o_), .e = (e_) }

/* An object, or ERR_INVALID. The caller frees it with json_decref. An empty text is an empty object. */
int jin_parse(const char *text, size_t len, json_t **ret, struct err *e);

/* Whether an earlier field was wrong. For errors of the caller's own: jin_bad(). */
int jin_bad(struct jin *j, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const json_t *jin_any(struct jin *j, const char *key);
bool jin_str(struct jin *j, const char *key, const char **ret, size_t max);
bool jin_bool(struct jin *j, const char *key, bool *ret);
bool jin_u64(struct jin *j, const char *key, uint64_t *ret, uint64_t min, uint64_t max);
bool jin_size(struct jin *j, const char *key, uint64_t *ret_bytes); /* bytes or "512M" */
bool jin_ms(struct jin *j, const char *key, uint64_t *ret_ms); /* seconds or "30s" */
bool jin_cpus(struct jin *j, const char *key, uint32_t *ret_milli); /* 0.5 or "0.5" */
const json_t *jin_object(struct jin *j, const char *key);
const json_t *jin_array(struct jin *j, const char *key, size_t max);
/* 0, or the first error. */
int jin_end(struct jin *j);
