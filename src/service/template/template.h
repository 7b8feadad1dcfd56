/*
 * A name for what a create asks for. A template is kept as it was given; what a create from it says is laid over that,
 * and the whole is read by the code that reads every create, as of whoever creates: so nothing gets in by a template
 * that would not get in without it.
 */
#pragma once
#include <jansson.h>

#include "service/sandbox/sandbox.h"
#include "service/service.h"

#define TEMPLATES_MAX 256U /* of one tenant */
#define TEMPLATE_SIZE (256U * 1024U) /* of one, as JSON */

struct pool;

struct template {
	struct service *service;
	struct tenant *tenant;
	char name[NAME_MAX_LEN + 1];
	uint64_t version; /* grows with every change of what sandboxes get */
	json_t *config; /* as given */
	json_t *start; /* an exec, or NULL */
	json_t *warm; /* as given, or NULL */
	char image[ID_SIZE]; /* of its warm process: a checkpoint with memory. "" = none */
	uint64_t since_ns; /* the image was made */
	uint64_t rewarmed_ns; /* monotonic: because the one before was refused */
	char checkpoint[ID_SIZE]; /* its sandboxes start from, "" = none. It cannot be deleted meanwhile */
	char *description;
	bool admin; /* made by one: may lift limits */
	uint64_t created_ns, updated_ns;
	struct sandbox_request
		*request; /* ->config read with today's defaults; NULL when that fails, and ->bad says why */
	struct err bad;
	struct pool *pools; /* that stand on it */
};

/* @t is NULL when it failed; *e says why. */
typedef void template_put_fn(void *arg, struct template *t, bool created, const struct err *e);
/* Adds or replaces. Stored when @fn is called. */
void template_put(struct service *s, const struct who *who, struct tenant *tenant, const char *name, const json_t *body,
		  template_put_fn *fn, void *arg);
/* NULL and ERR_NOT_FOUND. */
struct template *template_find(struct service *s, const struct tenant *tenant, const char *name, struct err *e);
/* Stored with the turn. ERR_CONFLICT while a pool stands on it. */
int template_remove(struct template *t, const struct who *who, struct err *e);
/* The wire's shape, as one object. */
void template_write(const struct template *t, struct json *j);
/* Those of the tenant (NULL: all), by name; to be freed. */
int templates_list(struct service *s, const struct tenant *tenant, struct template ***ret, size_t *ret_n);

/*
 * What a create asks for: @from, below it the template it names, and below that the checkpoint one of the two names. An
 * admin may name another tenant's checkpoint: then @who->tenant is that one, since what comes from it stays theirs.
 */
int request_from(struct service *s, struct who *who, const json_t *from, struct sandbox_request **ret, struct err *e);
/* What a ready one should be. */
int template_request(const struct template *t, struct sandbox_request **ret, struct err *e);
/* Runs the start command of a sandbox that stands now, in the same transaction. 0 when it has none. */
int template_start(struct sandbox *b, struct err *e);

/*
 * Whether a create from it failed because its warm image is of no use on this host as it is now: after an upgrade, say.
 * Then it can be made again, at most once a minute; @fn as template_put's.
 */
bool template_stale(const struct template *t, const struct err *e);
void template_rewarm(struct template *t, template_put_fn *fn, void *arg);
/* One that stands on this checkpoint, also as its warm image, or NULL. */
const struct template *template_on(struct service *s, const char *checkpoint);
/* All that are stored; pools too. */
int templates_load(struct service *s, struct err *e);
/* The tenant goes, and its rows with it. */
void templates_forget(struct service *s, const struct tenant *t);
