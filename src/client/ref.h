/* CHECKPOINT on the command line: its id, or SANDBOX:NAME. */
#pragma once
#include <jansson.h>

#include "base/buf.h"
#include "client/conn.h"

/* Appends "/v1/checkpoints/{c}", @sub ("/export", or "") and the query it needs; @query ("text=1", or "") is more of it. */
int ref_url(struct buf *b, const char *word, const char *sub, const char *query);
/* The id that is meant. Only SANDBOX:NAME needs to be asked for; what has no colon may be anything. */
int ref_id(struct conn *c, const char *word, char **ret, struct err *e);
/* Puts the id in the place of a text in @body, if there is one. */
int ref_resolve(struct conn *c, json_t *body, const char *key, struct err *e);
