/* Checks whether the registry has another image under an image's name. */
#pragma once
#include "service/image/image.h"

struct image_outdated {
	char name[OCI_NAME_MAX], digest[OCI_DIGEST_SIZE], registry_digest[OCI_DIGEST_SIZE];
};

/* Called once, later; NULL: *e has the reason. */
typedef void image_outdated_fn(void *arg, const struct image_outdated *x, const struct err *e);

/* @login: base64 of USER:PASSWORD; NULL = from the administrator's file. */
int image_outdated(struct service *s, const struct who *who, const struct image *i, const char *login,
		   image_outdated_fn *fn, void *arg, struct err *e);
