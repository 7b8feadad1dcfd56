/*
 * Pulling an image: its manifest and configuration, the missing layers, and then its name. It is an operation ("pull"),
 * which continues when its caller is gone.
 */
#pragma once
#include "service/image/image.h"

struct operation;

struct image_pull_plan {
	const struct oci_name *name;
	const char *login; /* base64 of USER:PASSWORD, NULL = from the administrator's file */
};

/* Called once, not from within image_pull(). @news: the image is new or has changed. @i is NULL when it failed. */
typedef void image_pull_fn(void *arg, struct image *i, bool news, const struct err *e);

/* @fn may be NULL. *ret is valid until the end of this turn of the loop. */
int image_pull(struct service *s, const struct who *who, const struct image_pull_plan *plan, image_pull_fn *fn,
	       void *arg, struct operation **ret, struct err *e);
