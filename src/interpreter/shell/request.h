/*
 * Requests of a context (docs/design/0019-interpreter.md), as far as the shell's kernel needs them. All bytes are
 * checked: invalid JSON is refused.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define REQUEST_ENV_MAX 256

struct request_var {
	char *name;
	char *value; /* NULL removes the variable */
};

struct request {
	char *type; /* NULL if it is missing, or not a text */
	char *id; /* JSON, unchanged; "null" if it is missing */
	char *code; /* NULL if it is missing, or not a text */
	size_t code_len;
	char *cwd;
	bool restricted;
	uint64_t output_max, result_max, last, cursor; /* UINT64_MAX: not given */
	struct request_var env[REQUEST_ENV_MAX];
	size_t env_count;
};

/*
 * -EINVAL with a message for the sender; @r->id is set if it was read before the error. request_done() must always
 * follow.
 */
int request_read(struct request *r, const char *data, size_t len, struct err *e);
void request_done(struct request *r);
bool request_is_json(const char *data, size_t len); /* one value, and UTF-8 */
