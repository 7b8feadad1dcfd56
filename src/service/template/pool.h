/*
 * Sandboxes of a template, made ahead and kept ready. A ready one is a sandbox like any other, with a row whose state is
 * "pooled", seen by nobody. A create that fits takes it: that is one change of its row, stored before the answer, so it
 * is given out at most once, whatever dies when. It never comes back.
 *
 * Ready ones count for the tenant's quotas and the host's, and give way: a create that would be refused for want of room
 * gets the room of a ready one.
 */
#pragma once
#include "service/sandbox/sandbox.h"
#include "service/service.h"

#define POOLS_MAX 64U /* of one tenant */
#define POOL_MIN_MAX 256U
#define POOL_MAX_MAX 1024U

struct template;

struct pool {
	struct service *service;
	struct template *template;
	struct pool *next; /* of the template's */
	char id[ID_SIZE];
	char name[NAME_MAX_LEN + 1];
	uint32_t min, max; /* 0 max = no bound */
	uint64_t created_ns;
	struct sandbox *ready, **ready_last; /* oldest first */
	unsigned nready, making;
	unsigned alive; /* ready, in the making and given out */
	uint64_t served, missed, failed; /* since the daemon started */
	unsigned fails; /* in a row */
	uint64_t again_ns; /* monotonic: not before */
	struct err last; /* of the last failure, until one is made again */
};

/* Adds, or changes template, min and max. Stored with the turn. *ret_new: it was not there. */
int pool_put(struct service *s, const struct who *who, struct tenant *tenant, const char *name, const char *template,
	     uint32_t min, uint32_t max, struct pool **ret, bool *ret_new, struct err *e);
struct pool *pool_find(struct service *s, const struct tenant *tenant, const char *name, struct err *e);
/* Its ready ones end; those given out go on. Stored with the turn. */
int pool_remove(struct pool *p, const struct who *who, struct err *e);
void pool_write(const struct pool *p, struct json *j);
/* Those of the tenant (NULL: all), by name; to be freed. */
int pools_list(struct service *s, const struct tenant *tenant, struct pool ***ret, size_t *ret_n);

/*
 * For a create: 1 and a ready one that is nobody's any more, or 0: it is to be made, and counted for the pool that
 * @request->origin then names. -EDQUOT when every pool has as many as it may.
 */
int pools_take(struct service *s, const struct who *who, struct sandbox_request *request, struct sandbox **ret,
	       struct err *e);
/* Ends one that is ready, of the tenant (NULL: of any), so that its room can be used. False when there is none. */
bool pool_yield(struct service *s, const struct tenant *t);
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
/* The tenant is to go: its ready ones end, since nobody could. */
void pools_clear(struct service *s, const struct tenant *t);
/* It is gone: its pools and their rows go with their templates. */
void pools_forget(struct service *s, const struct tenant *t);
unsigned pools_ready(const struct service *s); /* in all of them */
bool pools_settled(const struct service *s); /* none is in the making */
/* Looks what is missing, in a moment. */
void pools_soon(struct service *s);
