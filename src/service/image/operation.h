/*
 * A long task, such as a pull or a build: it has an id, callers watch its events, and may cancel it. It ends with this
 * process; its result is an image, or nothing. Ended ones are kept for a while.
 */
#pragma once
#include "base/json.h"
#include "service/service.h"

struct operation;
struct buf;

enum operation_state { OPERATION_RUNNING, OPERATION_DONE, OPERATION_FAILED, OPERATION_CANCELED };
const char *operation_state_name(enum operation_state s);

#define OPERATIONS_RUNNING 16U /* limit per tenant at the same time */
#define OPERATIONS_ENDED 64U /* ended ones that are kept per tenant */

struct operation_new {
	const char *kind; /* "pull", "build", … */
	const char *what; /* the image, or another subject */
	void (*cancel)(void *arg); /* a caller cancels it: it must call operation_end(), now or later */
	void *arg;
};

/* ERR_EXHAUSTED when the tenant has too many. In use until operation_end(). */
int operation_begin(struct service *s, const struct who *who, const struct operation_new *n, struct operation **ret,
		    struct err *e);
/* Sends an event to all watches. @fields: JSON fields without braces, "" = none. */
void operation_event(struct operation *o, const char *kind, const char *fields);
/*
 * Its progress, as JSON fields without braces: shown, and sent as an event ("progress"). A later watch gets the newest.
 */
void operation_progress(struct operation *o, const char *fields);
/* Ends it. @result: JSON, or NULL; @e: the error, NULL = success. It must not be used after this. */
void operation_end(struct operation *o, const char *result, const struct err *e);

/* --- for callers --- */
/* Finds an operation of the tenant, or any for an admin. */
struct operation *operation_find(struct service *s, const struct who *who, const char *id, struct err *e);
const char *operation_id(const struct operation *o);
/* Operations of @t (NULL: all), the newest first. The list is the caller's to free. */
void operations_list(struct service *s, const struct tenant *t, struct operation ***ret, size_t *ret_n);
/* ERR_CONFLICT when it has ended. */
int operation_cancel(struct operation *o, const struct who *who, struct err *e);
void operation_write(const struct operation *o, struct json *j); /* as one object */

struct operation_event {
	uint64_t seq; /* from 1; 0: progress, which a newer one replaces */
	const char *kind, *json; /* one object */
	bool last; /* no event follows */
};
struct operation_watch {
	struct operation_watch *next, **prev;
	void (*fn)(void *arg, const struct operation_event *ev); /* it may end the watch */
	void *arg;
};
/*
 * Sends the events after @seq and the newest progress, from within the call; then sends new ones. After the last event
 * the watch has been removed.
 */
void operation_listen(struct operation *o, uint64_t seq, struct operation_watch *w,
		      void (*fn)(void *arg, const struct operation_event *ev), void *arg);
void operation_unlisten(struct operation_watch *w); /* also allowed when it does not watch */
