/* What callers see of a sandbox. */
#include "base/base.h"
#include "engine/sandbox/enforced.h"
#include "tier/tiers.h"
#include "service/sandbox/internal.h"

const char *sandbox_id(const struct sandbox *b)
{
	return b->id;
}

const char *sandbox_name(const struct sandbox *b)
{
	return b->request->name;
}

struct tenant *sandbox_tenant(const struct sandbox *b)
{
	return b->tenant;
}

struct sandbox_view sandbox_view(const struct sandbox *b)
{
	return (struct sandbox_view){
		.id = b->id,
		.tenant = b->tenant->id,
		.state = b->state,
		.request = b->request,
		.created_ns = b->created_ns,
		.expires_ns = b->expires_ns,
		.used_ns = b->used_ns,
		.memory_refused = b->memory_refused,
		.cut = b->cut,
		.restored = b->restored,
	};
}

struct sandbox *sandbox_by_id(const struct service *s, const char *id)
{
	struct sandbox *b = map_get(&s->sandboxes, id);

	return b && sandbox_seen(b) ? b : NULL;
}

struct sandbox *sandbox_next(const struct service *s, size_t *at)
{
	struct sandbox *b;

	while ((b = map_next(&s->sandboxes, at)))
		if (sandbox_seen(b))
			break;
	return b;
}

void sandbox_view_enforced(const struct sandbox *b, void (*put)(void *arg, const char *name, const char *how),
			   void *arg)
{
	struct sandbox_spec spec;

	request_spec(b->request, &spec);
	enforced_say(tier_of(spec.flags), &b->receipt, &spec, put, arg);
}

void sandbox_write_stat(const struct sandbox *b, struct json *j)
{
	const struct warden_stat *st = &b->stat;

	jout_u64(j, "cpu_ms", st->group.cpu_usec / 1000);
	jout_u64(j, "memory", st->group.memory);
	jout_u64(j, "memory_peak", st->group.memory_peak);
	jout_u64(j, "memory_limit", b->request->spec->limits.memory);
	jout_u64(j, "pids", st->group.pids);
	jout_u64(j, "pids_peak", st->group.pids_peak);
	jout_u64(j, "oom_kills", st->group.oom_kills);
	jout_object(j, "kernel_memory");
	for (unsigned i = 0; i < KERNEL_KINDS_COUNT; i++)
		jout_u64(j, kernel_kind_name(i + 1), st->kernel.bytes[i]);
	jout_end(j);
	jout_u64(j, "disk", st->disk_used);
	jout_u64(j, "disk_limit", st->disk_size);
	jout_u64(j, "inodes", st->inodes_used);
	jout_u64(j, "io_bytes", st->group.io_bytes);
}

unsigned sandbox_running_execs(const struct sandbox *b)
{
	return b->running;
}
