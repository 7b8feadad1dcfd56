/* Between the parts of service/box*.c. */
#pragma once
#include "service/box.h"

/* box_name.c */
int box_list(struct box *b, struct err *e); /* by id, name and key. ERR_CONFLICT when the name is taken */
void box_unlist(struct box *b); /* its name and key are free again; by id it is still there */
struct box *box_by_key(struct service *s, const struct who *who, const struct box_want *want); /* NULL = none */
int box_rename(struct box *b, const char *name, struct err *e); /* not stored */
