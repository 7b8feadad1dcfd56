/* Between the parts of service/box*.c. */
#pragma once
#include "service/box.h"

/* box.c */
struct tenant_quota box_quota(const struct box_want *w);
void box_note(struct box *b, const struct who *who, const char *kind); /* in the audit log, and as an event */

/* box_pool.c: 1 and a referenced one that was ready, stored with the turn; then @want is taken over. 0: there is none */
int box_from_pool(struct service *s, const struct who *who, struct box_want *want, struct box **ret, struct err *e);

/* box_name.c */
int box_list(struct box *b, struct err *e); /* by id, name and key. ERR_CONFLICT when the name is taken */
void box_unlist(struct box *b); /* its name and key are free again; by id it is still there */
struct box *box_by_key(struct service *s, const struct who *who, const struct box_want *want); /* NULL = none */
int box_name_free(struct service *s, const struct tenant *t, const char *name, struct err *e); /* "" always is */
int box_rename(struct box *b, const char *name, struct err *e); /* not stored */
