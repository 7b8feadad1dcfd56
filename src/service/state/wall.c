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

/* A row of an exec cannot be changed, but be replaced. */
static void store_execs(const struct sandbox *b)
{
	struct err e = { 0 };

	for (struct exec *x = b->execs; x; x = x->next)
		if (x->stored && !x->ended_ns && x->request->timeout_ms &&
		    (execs_delete(b->service->db, x->id, &e) < 0 || exec_store(x, NULL, &e) < 0))
			log_warn("exec '%s': cannot store its time after the clock was set: %s", x->id, e.msg);
}

void wall_store(struct service *s)
{
	struct err e = { 0 };
	struct sandbox *b;
	size_t at = 0;

	if (!s->wall_moved)
		return;
	s->wall_moved = false;
	while ((b = map_next(&s->sandboxes, &at))) {
		if (b->state == SANDBOX_MAKING || b->state == SANDBOX_ENDING)
			continue;
		if (sandbox_store(b, &e) < 0)
			log_warn("sandbox '%s': cannot store its time after the clock was set: %s", b->id, e.msg);
		store_execs(b);
	}
	turn_dirty(s->turn);
}
