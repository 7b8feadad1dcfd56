/* Reading untrusted JSON with jansson: what every file of this folder needs. */
#pragma once
#include <jansson.h>

#include "base/base.h"

/* Parses an object of at most @max bytes, without duplicate keys. @what names it in the error. */
static inline json_t *oci_json(const char *text, size_t len, size_t max, const char *what, struct err *e)
{
	json_error_t why;
	json_t *o;

	if (len > max) {
		err_set(e, ERR_TOO_LARGE, -E2BIG, "%s: longer than %zu bytes", what, max);
		return NULL;
	}
	o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (json_is_object(o))
		return o;
	if (o)
		err_set(e, ERR_INVALID, -EBADMSG, "%s: not a JSON object", what);
	else
		err_set(e, ERR_INVALID, -EBADMSG, "%s: invalid JSON in line %d: %.80s", what, why.line, why.text);
	json_decref(o);
	return NULL;
}
