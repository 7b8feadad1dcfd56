/* The verbs of `cloche image`, a file for each that is more than a table. */
#pragma once
#include "client/client.h"

extern const struct command image_bootstrap, image_export, image_commit, image_import, image_build, image_pull,
	image_update, image_outdated;

/* /v1/images/NAME and what follows: '/' of the name is written as '+'. */
int image_url(struct buf *b, const char *name, const char *more);
