#pragma once
#include "client/conn.h"

/* All sandboxes, page by page, as one array. @query is more of the query, "&state=running", say. */
int list_sandboxes(struct conn *c, const char *query, json_t **ret, struct err *e);
