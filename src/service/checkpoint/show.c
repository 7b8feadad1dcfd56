/* What callers see of a checkpoint. */
#include "base/base.h"
#include "service/checkpoint/struct.h"

bool checkpoint_listed(const struct checkpoint *c)
{
	return c->listed && !checkpoint_hidden(c);
}

struct checkpoint *checkpoint_next(const struct service *s, size_t *at)
{
	struct checkpoint *c;

	while ((c = map_next(&s->checkpoints, at)))
		if (checkpoint_listed(c))
			break;
	return c;
}

struct checkpoint *checkpoint_by_id(const struct service *s, const char *id)
{
	struct checkpoint *c = map_get(&s->checkpoints, id);

	return c && checkpoint_listed(c) ? c : NULL;
}

struct tenant *checkpoint_tenant(const struct checkpoint *c)
{
	return c->tenant;
}

struct checkpoint_view checkpoint_view(const struct checkpoint *c)
{
	return (struct checkpoint_view){
		.id = c->id,
		.name = c->name,
		.label = c->label,
		.sandbox = c->sandbox,
		.sandbox_name = c->sandbox_name,
		.parent = c->parent,
		.metadata = &c->metadata,
		.tenant = c->tenant->id,
		.config = c->config,
		.memory = c->memory,
		.damaged = c->damaged,
		.refused = c->refused,
		.cut = c->cut,
		.size = c->size,
		.memory_size = c->memory_size,
		.files = c->files,
		.pause_ns = c->pause_ns,
		.created_ns = c->created_ns,
		.depth = c->chain->layers,
	};
}
