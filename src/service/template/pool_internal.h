/* Between pool.c, pool_take.c and refill.c. */
#pragma once
#include "service/template/struct.h"

/* pool.c */
enum fitness { FIT, FIT_LATER, FIT_NEVER };
enum fitness pool_fits(const struct sandbox *b, const char **ret_why);
void pool_add_ready(struct pool *p, struct sandbox *b);

/* refill.c */
void refill_again(struct pool *p); /* at once, whatever failed before */
