#include "service/service.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/box.h"
#include "service/event.h"
#include "service/exec.h"
#include "service/service_impl.h"
#include "service/wlink.h"

#include <sys/stat.h>

#define TICK_MS 250
#define PRUNE_NS 5000000000ULL

static int open_maps(struct service *s, struct err *e)
{
	struct map *all[] = { &s->boxes, &s->names, &s->keys, &s->execs };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(all); i++)
		r = map_init(all[i]);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "get random bytes") : 0;
}

int service_new(uv_loop_t *loop, const struct service_opts *o, struct db *d, struct audit *a, struct turn *t, struct access *x,
		struct service **ret, struct err *e)
{
	struct service *s = calloc(1, sizeof(*s));
	char path[1100];
	int r;

	if (!s)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the service");
	*s = (struct service){ .loop = loop, .o = *o, .db = d, .audit = a, .turn = t, .access = x };
	s->kept_last = &s->kept;
	s->scratch = malloc(SCRATCH);
	r = s->scratch ? open_maps(s, e) : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the service");
	if (r == 0)
		r = events_new(&s->events, e);
	snprintf(path, sizeof(path), "%s/spool", o->data);
	if (r == 0 && mkdir(path, 0700) < 0 && errno != EEXIST)
		r = err_sys(e, ERR_INTERNAL, -errno, "make '%s'", path);
	if (r < 0) {
		free(s->scratch);
		free(s);
		return r;
	}
	uv_timer_init(loop, &s->tick);
	s->tick.data = s;
	*ret = s;
	return 0;
}

/* --- time --- */

static void expire(struct box *b, uint64_t now)
{
	struct who daemon = { .tenant = b->tenant };
	uint64_t idle = b->want->idle_ms * 1000000ULL;

	if (b->state == BOX_MAKING || b->state == BOX_ENDING)
		return;
	if ((b->expires_ns && now >= b->expires_ns) || (idle && !b->calls && now >= b->used_ns + idle))
		box_delete(b, &daemon, "sandbox.expire", NULL, NULL);
}

static void on_tick(uv_timer_t *t)
{
	struct service *s = t->data;
	uint64_t now = clock_real_ns();
	struct box *b;
	size_t at = 0;

	while ((b = map_next(&s->boxes, &at))) {
		if (b->found && !b->link.poll && !s->draining)
			box_reattach(b);
		if (b->expires_ns || b->want->idle_ms)
			expire(b, now);
	}
	exec_store_running(s);
	if (now - s->pruned_ns > PRUNE_NS) {
		s->pruned_ns = now;
		exec_prune(s, now);
	}
}

void service_ticks(struct service *s)
{
	uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
}

void service_free(struct service *s)
{
	struct box *b;
	size_t at = 0;

	uv_close((uv_handle_t *)&s->tick, NULL);
	while ((b = map_next(&s->boxes, &at)))
		alink_close(&b->link);
	if (s->warden)
		wlink_free(s->warden);
	s->warden = NULL;
	adopt_free(s);
}
