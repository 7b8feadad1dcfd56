/* What a call needs of its sandbox before it begins: processes, or a disk. */
#include "base/base.h"
#include "service/sandbox/disk.h"
#include "service/sandbox/internal.h"
#include "service/state/wall.h"

bool sandbox_serves(struct sandbox *b, enum sandbox_need need)
{
	if (b->state == SANDBOX_RUNNING && !b->sleep && !b->waking) {
		b->used_ns = wall_now(b->service);
		return true;
	}
	return (b->state == SANDBOX_STOPPED || b->state == SANDBOX_LOST) && need != SANDBOX_NEED_FILES;
}

bool sandbox_wake(struct sandbox *b, struct sandbox_waiter *w)
{
	b->used_ns = wall_now(b->service);
	return sandbox_awake(b, w) && sandbox_open(b, w);
}
