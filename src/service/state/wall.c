/* Follows changes of the wall clock. */
#include "service/state/wall.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/sandbox/internal.h"
#include "service/exec/internal.h"
#include "service/internal.h"

#define SECOND_NS 1000000000LL

static void move(uint64_t *t, int64_t by)
{
	if (*t)
		*t = by < 0 && *t <= (uint64_t)-by ? 1 : *t + (uint64_t)by;
}

static void move_sandbox(struct sandbox *b, int64_t by)
{
	move(&b->expires_ns, by);
	move(&b->used_ns, by);
	move(&b->paused_ns, by);
	move(&b->tried_ns, by);
	for (struct exec *x = b->execs; x; x = x->next) {
		move(&x->started_ns, by);
		move(&x->ended_ns, by);
	}
}

uint64_t wall_now(struct service *s)
{
	const int64_t ahead = clock_ahead_ns(), by = ahead - s->wall_ahead;
	struct sandbox *b;
	size_t at = 0;

	if (by <= -SECOND_NS || by >= SECOND_NS) {
		log_info("the clock was set by %lld seconds", (long long)(by / SECOND_NS));
		s->wall_ahead = ahead;
		while ((b = map_next(&s->sandboxes, &at)))
			move_sandbox(b, by);
		move(&s->pruned_ns, by);
		s->wall_moved = true;
		service_soon(s);
	}
	return clock_real_ns();
}
