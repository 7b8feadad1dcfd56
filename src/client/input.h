#pragma once
#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

/* All of a file or pipe into @b; -E2BIG past its maximum. @name is for errors. */
int input_read(int fd, const char *name, struct buf *b, struct err *e);

#define STDIN_MAX (2 * MIB) /* of what goes into one request */
/* Our whole stdin as the field "stdin_base64" of a request. */
int input_set(json_t *body, struct err *e);
