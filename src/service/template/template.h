/*
 * A name for the settings of a create. A template is stored as it was given; the settings of a create are merged over
 * it, and the result is read by the code that reads every create, with the rights of the caller: so a template allows
 * nothing that would not be allowed without it.
 */
#pragma once
#include <jansson.h>

#include "service/sandbox/sandbox.h"
#include "service/service.h"
#include "service/state/named.h"

#define TEMPLATES_MAX 256U /* of one tenant */
#define TEMPLATE_SIZE (256U * 1024U) /* of one, as JSON */

struct pool;

struct template;

/* @t is NULL when it failed; *e says why. */
typedef void template_put_fn(void *arg, struct template *t, bool created, const struct err *e);
/* Adds or replaces. Stored when @fn is called. */
void template_put(struct service *s, const struct who *who, struct tenant *tenant, const char *name, const json_t *body,
		  template_put_fn *fn, void *arg);
/* NULL and ERR_NOT_FOUND. */
struct template *template_find(struct service *s, const struct tenant *tenant, const char *name, struct err *e);
/* Removal: ERR_CONFLICT while a pool uses it. */
extern const struct named_kind template_kind;

/*
 * The request of a create: @from, below it the template that it names, and below that the checkpoint that one of the
 * two names. An admin may name another tenant's checkpoint: then @who->tenant is that tenant, which owns what is made
 * from it.
 */
int request_from(struct service *s, struct who *who, const json_t *from, struct sandbox_request **ret, struct err *e);
/* What a ready one should be. */
int template_request(const struct template *t, struct sandbox_request **ret, struct err *e);
/* Runs the start command of a sandbox that is ready now, in the same transaction. 0 when it has none. */
int template_start(struct sandbox *b, struct err *e);

/*
 * Whether a create from it failed because its warm image is of no use on this host as it is now: after an upgrade, say.
 * Then it can be made again, at most once a minute; @fn as template_put's.
 */
bool template_stale(const struct template *t, const struct err *e);
void template_rewarm(struct template *t, template_put_fn *fn, void *arg);
/* A template that uses this checkpoint, also as its warm image, or NULL. */
const struct template *template_on(struct service *s, const char *checkpoint);
/* ERR_CONFLICT: one uses it. */
int template_based(struct service *s, const char *checkpoint, struct err *e);
/* All that are stored; pools too. */
int templates_load(struct service *s, struct err *e);
/* The tenant goes, and its rows with it. */
void templates_forget(struct service *s, const struct tenant *t);
/* A name may be that of another image now: those that have one are read again. */
void templates_image_changed(struct service *s);
