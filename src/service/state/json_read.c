/* Reads fields of JSON, and reports what is wrong with them. */
#include "service/state/json_read.h"
#include "base/base.h"
#include "base/near.h"
#include "base/str.h"
#include "service/state/json_long.h"

#include <stdarg.h>

/*
 * The library's own bound on depth is fixed, and larger, and it has none on how many values there are: each takes it some
 * 0.2 us and 32 bytes, for which all other requests wait. What is inside of strings does not count.
 */
static int check_shape(const char *text, size_t len, struct err *e)
{
	const char *const end = text + len;
	unsigned depth = 0, values = 1;

	for (const char *at = text; at < end; at++) {
		const char c = *at;

		if (c == '"') {
			at = json_string_end(at + 1, end);
		} else if (c == '{' || c == '[') {
			values++;
			if (++depth > JIN_DEPTH)
				return err_set(e, WHY_BAD_JSON, -EINVAL, "JSON: nested deeper than %d levels",
					       JIN_DEPTH);
		} else if ((c == '}' || c == ']') && depth) {
			depth--;
		} else if (c == ',') {
			values++;
		}
		if (values > JIN_VALUES)
			return err_set(e, WHY_BAD_JSON, -E2BIG, "JSON: more than %d values", JIN_VALUES);
	}
	return 0;
}

static int begin(const char *text, size_t len, size_t flags, json_t **ret, struct err *e)
{
	json_t *o;
	int r;

	if (!len) {
		o = json_object();
		if (!o)
			return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a request");
		*ret = o;
		return 0;
	}
	r = check_shape(text, len, e);
	if (r < 0)
		return r;
	o = json_long_load(text, len, JSON_REJECT_DUPLICATES | flags, e);
	if (!o)
		return -EINVAL;
	if (!json_is_object(o)) {
		json_decref(o);
		return err_set(e, WHY_BAD_JSON, -EINVAL, "the body must be a JSON object");
	}
	*ret = o;
	return 0;
}

int json_read_begin(const char *text, size_t len, json_t **ret, struct err *e)
{
	return begin(text, len, 0, ret, e);
}

int json_read_begin_nul(const char *text, size_t len, json_t **ret, struct err *e)
{
	return begin(text, len, JSON_ALLOW_NUL, ret, e);
}

int json_read_bad(struct json_read *j, const char *key, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	if (j->r < 0)
		return j->r;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A predicate follows its subject: 'cmd' must be an array of strings. */
	j->r = err_set(j->e, WHY_BAD_FIELD, -EINVAL, "'%s'%s %s", key,
		       !strncmp(text, "must ", 5) || !strncmp(text, "is ", 3) || !strncmp(text, "has ", 4) ? "" : ":",
		       text);
	return j->r;
}

const json_t *json_read_any(struct json_read *j, const char *key)
{
	const json_t *v;

	assert(j->asked < JIN_KEYS);
	j->key[j->asked++] = key;
	v = j->r < 0 ? NULL : json_object_get(j->o, key);
	return v && !json_is_null(v) ? v : NULL;
}

bool json_read_str(struct json_read *j, const char *key, const char **ret, size_t max)
{
	const json_t *v = json_read_any(j, key);

	if (!v)
		return false;
	if (!json_is_string(v)) {
		json_read_bad(j, key, "must be a string");
		return false;
	}
	if (json_string_length(v) > max) {
		json_read_bad(j, key, "must be at most %zu bytes", max);
		return false;
	}
	if (strlen(json_string_value(v)) != json_string_length(v)) {
		json_read_bad(j, key, "must be a string without NULs");
		return false;
	}
	*ret = json_string_value(v);
	return true;
}

bool json_read_bool(struct json_read *j, const char *key, bool *ret)
{
	const json_t *v = json_read_any(j, key);

	if (!v)
		return false;
	if (!json_is_boolean(v)) {
		json_read_bad(j, key, "must be true or false");
		return false;
	}
	*ret = json_is_true(v);
	return true;
}

/* A number of no unit, times @scale. Fractions of the unit are fine where @scale is not 1. */
static bool number(struct json_read *j, const char *key, const json_t *v, double scale, uint64_t *ret)
{
	double d = json_number_value(v);

	if (json_is_integer(v) && scale <= 1) {
		json_int_t n = json_integer_value(v);

		if (n >= 0) {
			*ret = (uint64_t)n;
			return true;
		}
	} else if (d >= 0 && d * scale < 9e15 && (scale > 1 || d == (double)(uint64_t)d)) {
		*ret = (uint64_t)(d * scale + 0.5);
		/* What is so small that nothing is left of it would mean "no limit". */
		if (d > 0 && !*ret) {
			json_read_bad(j, key, "must be at least %g, or 0 (got %g)", 1 / scale, d);
			return false;
		}
		return true;
	}
	if (scale > 1)
		json_read_bad(j, key, "must be between 0 and %g (got %.15g)", 9e15 / scale, d);
	else
		json_read_bad(j, key, "must be a whole number between 0 and 9e15 (got %.15g)", d);
	return false;
}

bool json_read_u64(struct json_read *j, const char *key, uint64_t *ret, uint64_t min, uint64_t max)
{
	const json_t *v = json_read_any(j, key);
	uint64_t n;

	if (!v)
		return false;
	if (!json_is_number(v)) {
		json_read_bad(j, key, "must be a number");
		return false;
	}
	if (!number(j, key, v, 1, &n))
		return false;
	if (n < min || n > max) {
		json_read_bad(j, key, "must be between %llu and %llu", (unsigned long long)min,
			      (unsigned long long)max);
		return false;
	}
	*ret = n;
	return true;
}

static bool measure(struct json_read *j, const char *key, double scale,
		    int (*parse)(const char *, uint64_t *, struct err *), const char *like, uint64_t *ret)
{
	const json_t *v = json_read_any(j, key);
	struct err why = { 0 };

	if (!v)
		return false;
	if (json_is_number(v))
		return number(j, key, v, scale, ret);
	if (!json_is_string(v)) {
		json_read_bad(j, key, "must be a number, or a string like \"%s\"", like);
		return false;
	}
	if (parse(json_string_value(v), ret, &why) < 0) {
		json_read_bad(j, key, "%.180s", why.msg);
		return false;
	}
	return true;
}

bool json_read_size(struct json_read *j, const char *key, uint64_t *ret_bytes)
{
	return measure(j, key, 1, parse_size, "512M", ret_bytes);
}

bool json_read_ms(struct json_read *j, const char *key, uint64_t *ret_ms)
{
	uint64_t ms;

	if (!measure(j, key, 1000, parse_duration, "30s", &ms))
		return false;
	if (ms > JIN_MS_MAX) {
		json_read_bad(j, key, "must be at most 100 years");
		return false;
	}
	*ret_ms = ms;
	return true;
}

static int parse_milli(const char *text, uint64_t *ret, struct err *e)
{
	uint32_t milli;
	int r = parse_cpus(text, &milli, e);

	if (r == 0)
		*ret = milli;
	return r;
}

bool json_read_cpus(struct json_read *j, const char *key, uint32_t *ret_milli)
{
	uint64_t milli;

	if (!measure(j, key, 1000, parse_milli, "0.5", &milli))
		return false;
	if (milli > 1000000) {
		json_read_bad(j, key, "must be at most 1000 cores");
		return false;
	}
	*ret_milli = (uint32_t)milli;
	return true;
}

const json_t *json_read_object(struct json_read *j, const char *key)
{
	const json_t *v = json_read_any(j, key);

	if (v && !json_is_object(v)) {
		json_read_bad(j, key, "must be an object");
		return NULL;
	}
	return v;
}

const json_t *json_read_array(struct json_read *j, const char *key, size_t max)
{
	const json_t *v = json_read_any(j, key);

	if (v && !json_is_array(v)) {
		json_read_bad(j, key, "must be an array");
		return NULL;
	}
	if (v && json_array_size(v) > max) {
		json_read_bad(j, key, "must have at most %zu entries", max);
		return NULL;
	}
	return v;
}

static int unknown_field(struct json_read *j, const char *key)
{
	const char *near = near_word(key, j->key, j->asked);

	err_set(j->e, WHY_UNKNOWN_FIELD, -EINVAL, "'%.60s': unknown field", key);
	if (near)
		err_remedy(j->e, "did you mean '%s'?", near);
	return -EINVAL;
}

int json_read_end(struct json_read *j)
{
	const char *key;
	json_t *o, *v;

	if (j->r < 0)
		return j->r;
	memcpy(&o, &j->o, sizeof(o)); /* the library's walk takes no const, and changes nothing */
	json_object_foreach(o, key, v)
	{
		bool known = false;

		for (unsigned i = 0; i < j->asked && !known; i++)
			known = !strcmp(j->key[i], key);
		if (!known)
			return unknown_field(j, key);
	}
	return 0;
}
