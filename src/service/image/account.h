/*
 * The user of an image as numbers: its configuration may name one, and the image's own /etc/passwd and /etc/group have
 * its numbers. They are read once, by a file worker in a sandbox of the image.
 */
#pragma once
#include "service/image/image.h"

struct account_reading;

/*
 * Called once, later, unless it was cancelled. @user: "UID:GID"; "": the image does not have that user. NULL: *e says
 * what failed.
 */
typedef void image_account_fn(void *arg, const char *user, const struct err *e);

/* @chain is pinned by the caller, "" = none. @user: from the configuration, NULL = root. */
int image_account(struct service *s, const struct who *who, const char *chain, const char *user, image_account_fn *fn,
		  void *arg, struct account_reading **ret, struct err *e);
void image_account_cancel(struct account_reading *a);
