/* Announces the steps of a sandbox's life to its parts. */
#include "service/sandbox/part.h"
#include "base/base.h"

/* Calls @hook of each part that has it. */
#define ANNOUNCE(s, hook, ...)                                                                                         \
	do {                                                                                                           \
		for (const struct sandbox_part *const *p_ = (s)->parts; *p_; p_++)                                     \
			if ((*p_)->hook)                                                                               \
				(*p_)->hook(__VA_ARGS__);                                                              \
	} while (0)

/* The same, until one fails. */
#define ASK(r, s, hook, ...)                                                                                           \
	do {                                                                                                           \
		for (const struct sandbox_part *const *p_ = (s)->parts; (r) == 0 && *p_; p_++)                         \
			if ((*p_)->hook)                                                                               \
				(r) = (*p_)->hook(__VA_ARGS__);                                                        \
	} while (0)

bool sandbox_parts_ahead(struct service *s, const struct who *who, struct sandbox_request *request,
			 const struct sandbox_creation *c)
{
	for (const struct sandbox_part *const *p = s->parts; *p; p++)
		if ((*p)->ahead)
			return (*p)->ahead(s, who, request, c);
	return false;
}

int sandbox_parts_check(struct service *s, const struct tenant *t, struct sandbox_request *request, struct err *e)
{
	int r = 0;

	ASK(r, s, check, s, t, request, e);
	return r;
}

int sandbox_parts_begin(struct sandbox *b, const struct sandbox_plan *plan, struct err *e)
{
	int r = 0;

	ASK(r, b->service, begin, b, plan, e);
	return r;
}

void sandbox_parts_begun(struct sandbox *b, const struct sandbox_plan *plan, struct sandbox_spec *spec)
{
	ANNOUNCE(b->service, begun, b, plan, spec);
}

void sandbox_parts_answered(struct sandbox *b)
{
	ANNOUNCE(b->service, answered, b);
}

void sandbox_parts_made(struct sandbox *b, const struct warden_link_answer *a)
{
	ANNOUNCE(b->service, made, b, a);
}

int sandbox_parts_refused(struct sandbox *b, int r, struct err *e)
{
	for (const struct sandbox_part *const *p = b->service->parts; *p; p++)
		if ((*p)->refused)
			r = (*p)->refused(b, r, e);
	return r;
}

bool sandbox_parts_prepare(struct sandbox *b, void (*fn)(struct sandbox *b, int r, const struct err *e))
{
	for (const struct sandbox_part *const *p = b->service->parts; *p; p++)
		if ((*p)->prepare)
			return (*p)->prepare(b, fn);
	return false;
}

void sandbox_parts_entered(struct sandbox *b)
{
	ANNOUNCE(b->service, entered, b);
}

int sandbox_parts_start(struct sandbox *b, struct err *e)
{
	int r = 0;

	ASK(r, b->service, start, b, e);
	return r;
}

void sandbox_parts_noted(struct sandbox *b, const struct who *who)
{
	ANNOUNCE(b->service, noted, b, who);
}

void sandbox_parts_reached(struct sandbox *b)
{
	ANNOUNCE(b->service, reached, b);
}

void sandbox_parts_found(struct sandbox *b, struct exec *x)
{
	ANNOUNCE(b->service, found, b, x);
}

void sandbox_parts_moved(struct sandbox *b, struct sandbox *from)
{
	ANNOUNCE(b->service, moved, b, from);
}

bool sandbox_parts_tick(struct service *s, uint64_t now)
{
	bool soon = false;

	for (const struct sandbox_part *const *p = s->parts; *p; p++)
		if ((*p)->tick)
			soon |= (*p)->tick(s, now);
	return soon;
}

int sandbox_parts_load(struct sandbox *b, json_t *row, struct err *e)
{
	int r = 0;

	for (const struct sandbox_part *const *p = b->service->parts; r == 0 && *p; p++)
		if ((*p)->load)
			r = (*p)->load(b, (*p)->field ? json_object_get(row, (*p)->field) : NULL, e);
	return r;
}

json_t *sandbox_parts_take_fields(const struct service *s, json_t *row)
{
	json_t *own = json_object();

	for (const struct sandbox_part *const *p = s->parts; own && *p; p++) {
		json_t *field = (*p)->field ? json_object_get(row, (*p)->field) : NULL;

		if (!field)
			continue;
		json_object_set(own, (*p)->field, field);
		json_object_del(row, (*p)->field);
	}
	return own;
}

void sandbox_parts_loaded(struct sandbox *b)
{
	ANNOUNCE(b->service, loaded, b);
}

void sandbox_parts_store(struct sandbox *b, struct json *j)
{
	ANNOUNCE(b->service, store, b, j);
}

void sandbox_parts_lost(struct sandbox *b, enum sandbox_loss how)
{
	ANNOUNCE(b->service, lost, b, how);
}

void sandbox_parts_left(struct sandbox *b)
{
	ANNOUNCE(b->service, left, b);
}

void sandbox_parts_ended(struct sandbox *b)
{
	ANNOUNCE(b->service, ended, b);
}

void sandbox_parts_freed(struct sandbox *b)
{
	ANNOUNCE(b->service, freed, b);
}

void sandbox_parts_unblocked(struct sandbox *b)
{
	ANNOUNCE(b->service, unblocked, b);
}

void sandbox_parts_writable(struct sandbox *b, enum sandbox_usr whose, int r, const struct err *e)
{
	ANNOUNCE(b->service, writable, b, whose, r, e);
}

void sandbox_parts_resting(struct sandbox *b)
{
	ANNOUNCE(b->service, resting, b);
}

void sandbox_parts_save(struct sandbox *b, const struct who *who, enum memory_request memory,
			enum network_request network, checkpoint_fn *fn, void *arg)
{
	ANNOUNCE(b->service, save, b, who, memory, network, fn, arg);
}

int sandbox_parts_take(struct service *s, const struct who *who, struct sandbox_request *request, struct sandbox **ret,
		       struct err *e)
{
	int r = 0;

	ASK(r, s, take, s, who, request, ret, e);
	return r;
}

bool sandbox_parts_yield(struct service *s, const struct tenant *t)
{
	for (const struct sandbox_part *const *p = s->parts; *p; p++)
		if ((*p)->yield && (*p)->yield(s, t))
			return true;
	return false;
}

int sandbox_parts_based(struct service *s, const char *checkpoint, struct err *e)
{
	int r = 0;

	ASK(r, s, based, s, checkpoint, e);
	return r;
}

void sandbox_parts_images_changed(struct service *s)
{
	ANNOUNCE(s, images_changed, s);
}
