/* Counts what a tenant uses, and refuses what is too much. */
#include "service/access/struct.h"
#include "base/base.h"

#include <inttypes.h>

static const struct {
	const char *name, *unit;
	size_t at;
} fields[] = {
	{ "sandboxes", "", offsetof(struct tenant_quota, sandboxes) },
	{ "cpus", " thousandths", offsetof(struct tenant_quota, cpu_milli) },
	{ "memory", " bytes", offsetof(struct tenant_quota, memory) },
	{ "disk", " bytes", offsetof(struct tenant_quota, disk) },
	{ "execs", "", offsetof(struct tenant_quota, execs) },
	{ "checkpoints", "", offsetof(struct tenant_quota, checkpoints) },
	{ "checkpoint_bytes", " bytes", offsetof(struct tenant_quota, checkpoint_bytes) },
	{ "secrets", "", offsetof(struct tenant_quota, secrets) },
	{ "image_bytes", " bytes", offsetof(struct tenant_quota, image_bytes) },
	{ "gpus", "", offsetof(struct tenant_quota, gpus) },
};

static uint64_t *field(struct tenant_quota *q, size_t i)
{
	return (uint64_t *)((char *)q + fields[i].at);
}

static uint64_t value(const struct tenant_quota *q, size_t i)
{
	return *(const uint64_t *)((const char *)q + fields[i].at);
}

int tenant_take(struct tenant *t, const struct tenant_quota *want, struct err *e)
{
	if (t->gone)
		return err_set(e, WHY_TOKEN_INVALID, -EACCES, "tenant '%s' was removed", t->id);
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		uint64_t quota = value(&t->quota, i), used = value(&t->used, i), more = value(want, i);
		const char *unit = fields[i].unit;

		/* A request for nothing is not refused because of what others use. */
		if (!more || (!quota && more <= UINT64_MAX - used) || (used <= quota && more <= quota - used))
			continue;
		err_set(e, WHY_QUOTA, -EDQUOT,
			"tenant '%s': its quota of %s is %" PRIu64 "%s; %" PRIu64 " in use, %" PRIu64 " more requested",
			t->id, fields[i].name, quota, unit, used, more);
		err_remedy(e, "delete something, request less, or have the quota raised");
		return -EDQUOT;
	}
	tenant_force(t, want);
	return 0;
}

void tenant_force(struct tenant *t, const struct tenant_quota *want)
{
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		uint64_t *used = field(&t->used, i);

		if (__builtin_add_overflow(*used, value(want, i), used))
			*used = UINT64_MAX;
	}
}

void tenant_give(struct tenant *t, const struct tenant_quota *had)
{
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		uint64_t *used = field(&t->used, i);

		assert(*used >= value(had, i));
		*used -= value(had, i);
	}
}
