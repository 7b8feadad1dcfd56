/*
 * Warm images: a process that has done what takes long, saved once and continued in every sandbox. It runs in a hidden
 * sandbox of the template, which ends when the image is made, or when the daemon dies meanwhile. The image is a
 * checkpoint with memory that belongs to the template and is not listed.
 */
#pragma once
#include <jansson.h>

#include "service/sandbox/sandbox.h"

#define WARM_NAME ".warm" /* of its checkpoint: a name that callers cannot choose */
#define WARM_CODE_MAX (64U * 1024U)
#define WARM_READY_MAX 256U

/* Checks {"python"}, {"cmd","ready"} or {"context"}, each with "timeout". */
int warm_check(const json_t *warm, struct err *e);

/* @image is the checkpoint's id, in the store with this turn; NULL when it failed. */
typedef void warm_fn(void *arg, const char *image, const struct err *e);
/* Takes @request over; @warm is referenced. @fn is called later, once. */
void warm_make(struct service *s, struct tenant *t, struct sandbox_request *request, json_t *warm, warm_fn *fn,
	       void *arg);
/* Images that no template has: made in the moment we died. */
void warm_sweep(struct service *s);
/* Whether all the checkpoints the tenant has are such images; and they go, with the tenant. */
bool warm_only(struct service *s, const struct tenant *t);
void warm_clear(struct service *s, const struct tenant *t);
void warm_drop(struct service *s, const char *image); /* "" is fine; stored with the turn */
