/*
 * Which secrets a sandbox gets, and how, as `secrets` of a create, a template, a restore or a fork describes it:
 *
 *	{"name": "K", "as": "file", "path"?: "/etc/k"}		/run/secrets/K; a path elsewhere is a link to it
 *	{"name": "K", "as": "env", "env"?: "VAR"}  in the environment of its execs; VAR is K when missing
 *	{"name": "K", "as": "header", "header"?: "Authorization", "format"?: "Bearer {}", "to": "api.example.com[:443]"}
 *	{"name": "K", "as": "basic", "user": "x", "to": …}
 *	{"name": "K", "as": "query", "parameter": "key", "to": …} the last three are added by egress, and not visible inside
 *	{"name": "K", "as": "mask"}				not given, but masked in its output
 *
 * or "drop": none. Only names and kinds are stored with a sandbox, never values.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "engine/spec.h"

#define SECRET_USES_MAX 32U
#define SECRET_NAME_SIZE 65U
#define SECRET_DIR SPEC_SECRETS

enum secret_as { SECRET_FILE = 1, SECRET_ENV, SECRET_HEADER, SECRET_BASIC, SECRET_QUERY, SECRET_MASK };

struct secret_use {
	char name[SECRET_NAME_SIZE];
	enum secret_as as;
	bool plain; /* without TLS, if an administrator allows it */
	uint16_t port;
	char *path; /* of a file elsewhere, or NULL */
	char *field; /* the variable, header, user or parameter; else NULL */
	char *format; /* of a header: "{}" is the value */
	char *host;
};

struct secret_uses {
	struct secret_use *use;
	uint32_t n;
};

const char *secret_as_name(enum secret_as as);
static inline bool secret_injected(const struct secret_use *u)
{
	return u->as == SECRET_HEADER || u->as == SECRET_BASIC || u->as == SECRET_QUERY;
}
/* NULL: none. @admin: may ask for what goes out without TLS. */
int secret_uses_parse(const json_t *v, bool admin, struct secret_uses *ret, struct err *e);
void secret_uses_write(const struct secret_uses *u, const char *key, struct json *j); /* an array */
bool secret_uses_same(const struct secret_uses *a, const struct secret_uses *b);
bool secret_uses_have(const struct secret_uses *u, const char *name); /* in whatever way */
void secret_use_only_mask(struct secret_use *u); /* not given any more, but still looked for */
bool secret_uses_first(const struct secret_uses *u, uint32_t i); /* none before it has the same name */
bool secret_uses_as(const struct secret_uses *u, enum secret_as as); /* whether one is given like that */
bool secret_uses_inject(const struct secret_uses *u);
/*
 * What a sandbox that comes from another has had before: those of @before that are not named in @v any more, as "mask".
 * @v is what was asked now: an array, "drop", or NULL (as before). A new array, or NULL without memory.
 */
json_t *secret_uses_after(const json_t *before, const json_t *v);
void secret_uses_done(struct secret_uses *u);
