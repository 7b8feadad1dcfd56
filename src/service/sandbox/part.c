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
