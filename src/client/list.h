#pragma once
#include "client/conn.h"

/*
 * A list of the API, page by page, as one array: @path with "?limit=…", and @query, which is more of the query
 * ("&state=running", say). @key is the array's name in each page.
 */
int list_all(struct conn *c, const char *path, const char *key, const char *query, json_t **ret, struct err *e);
int list_sandboxes(struct conn *c, const char *query, json_t **ret, struct err *e);
int list_checkpoints(struct conn *c, const char *query, json_t **ret, struct err *e);
