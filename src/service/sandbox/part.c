/* Announces the steps of a sandbox's life to its parts. */
#include "service/sandbox/part.h"
#include "base/base.h"

#define EACH_PART(b, p) for (const struct sandbox_part *const *p = (b)->service->parts; *p; p++)

void sandbox_parts_lost(struct sandbox *b, enum sandbox_loss how)
{
	EACH_PART(b, p)
	if ((*p)->lost)
		(*p)->lost(b, how);
}

void sandbox_parts_left(struct sandbox *b)
{
	EACH_PART(b, p)
	if ((*p)->left)
		(*p)->left(b);
}

void sandbox_parts_ended(struct sandbox *b)
{
	EACH_PART(b, p)
	if ((*p)->ended)
		(*p)->ended(b);
}

void sandbox_parts_freed(struct sandbox *b)
{
	EACH_PART(b, p)
	if ((*p)->freed)
		(*p)->freed(b);
}
