/*
 * Sandboxes of a template, made ahead and kept ready. A ready one is an ordinary sandbox, with a row whose state is
 * "pooled", and hidden. A create that fits takes it: that is one change of its row, stored before the answer, so it is
 * handed out at most once, whichever process dies when. It never comes back.
 *
 * Ready ones count for the tenant's quotas and the host's, and give way: a create that would be refused for lack of
 * room gets the room of a ready one.
 */
#pragma once
#include "service/sandbox/sandbox.h"
#include "service/service.h"
#include "service/state/named.h"

#define POOLS_MAX 64U /* of one tenant */
#define POOL_MIN_MAX 256U
#define POOL_MAX_MAX 1024U

struct template;

struct pool;

/* Adds, or changes template, min and max. Stored with the turn. *ret_new: it was not there. */
int pool_put(struct service *s, const struct who *who, struct tenant *tenant, const char *name, const char *template,
	     uint32_t min, uint32_t max, struct pool **ret, bool *ret_new, struct err *e);
/* Removal: its ready sandboxes end; those that were handed out continue. */
extern const struct named_kind pool_kind;

/*
 * For a create: 1 and a ready sandbox, which leaves the pool, or 0: one is to be made, and counted for the pool that
 * @request->origin then names. -EDQUOT when every pool is at its maximum.
 */
int pools_take(struct service *s, const struct who *who, struct sandbox_request *request, struct sandbox **ret,
	       struct err *e);
/* Ends one that is ready, of the tenant (NULL: of any), so that its room can be used. False when there is none. */
bool pool_yield(struct service *s, const struct tenant *t);
/* For a create: 1 and a referenced one that was ready, stored with the turn; then @request is taken over. 0: there is none. */
int sandbox_from_pool(struct service *s, const struct who *who, struct sandbox_request *request, struct sandbox **ret,
		      struct err *e);
/* The template has changed: what is ready is of no use. */
void pool_renew(struct pool *p);
/* A sandbox of a pool begins to be, or was found again; and has ended. */
void pool_joined(struct sandbox *b);
void pool_left(struct sandbox *b);

int pools_load(struct service *s, struct err *e);
/* Everything was found again: what does not fit any more goes, and what is missing is made. */
void pools_start(struct service *s);
/* Whether all the sandboxes the tenant has are ready ones. */
bool pools_only(struct service *s, const struct tenant *t);
/* The tenant is being removed: its ready sandboxes end, since no caller could end them later. */
void pools_clear(struct service *s, const struct tenant *t);
/* It is gone: its pools and their rows go with their templates. */
void pools_forget(struct service *s, const struct tenant *t);
unsigned pools_ready(const struct service *s); /* in all of them */
bool pools_settled(const struct service *s); /* none is in the making */
/* Looks what is missing, in a moment. */
void pools_soon(struct service *s);
