/* Passes events to listeners, and keeps the last ones. */
#include "service/state/event.h"
#include "base/base.h"
#include "base/clock.h"
#include "service/sandbox/struct.h"

#define KEPT 1024

struct events {
	uint64_t seq;
	struct event ring[KEPT];
	struct event_listener *first;
	struct event_listener *walking; /* the next one to be called */
};

int events_new(struct events **ret, struct err *e)
{
	struct events *v = calloc(1, sizeof(*v));

	if (!v)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for events");
	/*
	 * Beyond all numbers that an earlier daemon has sent, so that a client that comes back with one of those gets
	 * all events.
	 */
	v->seq = clock_real_ns() / 1000000ULL;
	*ret = v;
	return 0;
}

void event_add(struct service *s, const struct sandbox *b, const char *kind, const char *fields)
{
	if (!b->pooled)
		event_of(s, b->tenant, b->id, kind, fields);
}

void event_of(struct service *s, const struct tenant *t, const char *sandbox, const char *kind, const char *fields)
{
	struct events *v = s->events;
	struct event *ev = &v->ring[v->seq % KEPT];
	AUTO(buf_done) struct buf text = BUF_INIT(64 * KIB);
	char when[32], field[ID_SIZE + 16] = "";

	clock_iso(clock_real_ns(), when);
	if (*sandbox)
		snprintf(field, sizeof(field), "\"sandbox\":\"%s\",", sandbox);
	if (buf_addf(&text, "{\"kind\":\"%s\",%s\"time\":\"%s\"%s%s}", kind, field, when, *fields ? "," : "", fields) <
	    0)
		return;
	free(ev->json);
	ev->json = buf_take(&text);
	ev->seq = ++v->seq;
	snprintf(ev->tenant, sizeof(ev->tenant), "%s", t->id);
	snprintf(ev->sandbox, sizeof(ev->sandbox), "%s", sandbox);
	snprintf(ev->kind, sizeof(ev->kind), "%s", kind);
	if (!ev->json)
		return;
	for (struct event_listener *l = v->first; l; l = v->walking) {
		v->walking = l->next;
		l->fn(l->arg, ev);
	}
}

void event_listen(struct service *s, struct event_listener *l, void (*fn)(void *arg, const struct event *ev), void *arg)
{
	*l = (struct event_listener){
		.events = s->events, .next = s->events->first, .prev = &s->events->first, .fn = fn, .arg = arg
	};
	if (l->next)
		l->next->prev = &l->next;
	s->events->first = l;
}

void event_unlisten(struct event_listener *l)
{
	if (!l->prev)
		return;
	if (l->events->walking == l)
		l->events->walking = l->next;
	*l->prev = l->next;
	if (l->next)
		l->next->prev = l->prev;
	l->prev = NULL;
}

void event_replay(struct service *s, uint64_t seq, void (*fn)(void *arg, const struct event *ev), void *arg)
{
	const struct events *v = s->events;
	uint64_t from = v->seq > KEPT ? v->seq - KEPT : 0;

	for (uint64_t i = seq > from ? seq : from; i < v->seq; i++)
		if (v->ring[i % KEPT].json)
			fn(arg, &v->ring[i % KEPT]);
}
