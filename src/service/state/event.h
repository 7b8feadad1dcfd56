/* Events for listeners. The last ones are kept, so that a listener that was cut off misses none. */
#pragma once
#include "service/service.h"

struct sandbox;

struct event {
	uint64_t seq;
	char tenant[TENANT_NAME_MAX + 1];
	char sandbox[ID_SIZE];
	char kind[32];
	char *json; /* one object, whole */
};

struct event_listener {
	struct events *events;
	struct event_listener *next, **prev;
	void (*fn)(void *arg, const struct event *ev);
	void *arg;
};

int events_new(struct events **ret, struct err *e);
/*
 * Adds {"kind","sandbox","time",…fields}, unless the sandbox is hidden; @fields is a JSON object's inside ("" =
 * nothing), e.g. "\"exec\":\"…\"".
 */
void event_add(struct service *s, const struct sandbox *b, const char *kind, const char *fields);
/* The same for a sandbox that may be gone, or of none (""). */
void event_of(struct service *s, const struct tenant *t, const char *sandbox, const char *kind, const char *fields);
void event_listen(struct service *s, struct event_listener *l, void (*fn)(void *arg, const struct event *ev),
		  void *arg);
void event_unlisten(struct event_listener *l); /* fine from within the callback */
/* Calls @fn for every kept event after @seq. */
void event_replay(struct service *s, uint64_t seq, void (*fn)(void *arg, const struct event *ev), void *arg);
