/*
 * Warm contexts: a Python interpreter that has started and has imported what plots and tables need, as a memory image of which
 * sandboxes for runs are made; some of them ahead. Nothing of it is stored: after a restart of the daemon the first run of a
 * kind is cold again, and so it is for requests that no image fits.
 */
#pragma once
#include "service/context/context.h"
#include "service/image/work_sandbox.h"

/* A ready sandbox for that create and language, or NULL. */
struct work_sandbox *warm_context_take(struct service *s, const struct tenant *t, const json_t *create,
				       const char *language);
/* 1: *ret continues from a memory image, and the default context of that language is there. 0: there is none that fits. */
int warm_context_request(struct service *s, const struct who *who, const json_t *create, const char *language,
			 struct sandbox_request **ret);
/* The image that request came from cannot be used: it is made anew. */
void warm_context_bad(struct service *s, const struct tenant *t, const json_t *create, const char *language);
/* Such a run is over: the next should find a warm one. */
void warm_context_used(struct service *s, struct tenant *t, const json_t *create, const char *language);
/* The tenant's go (NULL: all of them), with their memory. */
void warm_contexts_drop(struct service *s, const struct tenant *t);
/* Ends one that is there ahead, if @t is NULL: they count for the host only. False when there is none. */
bool warm_context_yield(struct service *s, const struct tenant *t);
