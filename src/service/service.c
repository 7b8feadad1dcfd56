/* Makes all parts of the service, and ends them. */
#include "service/device/device.h"
#include "service/service.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/sandbox/disk.h"
#include "service/port/port.h"
#include "service/sandbox/part.h"
#include "service/sandbox/sandbox.h"
#include "service/network/network.h"
#include "service/state/event.h"
#include "service/exec/struct.h"
#include "service/run/warm_context.h"
#include "service/checkpoint/layer.h"
#include "service/image/blob_store.h"
#include "service/image/image.h"
#include "service/template/pool.h"
#include "service/secret/give.h"
#include "service/internal.h"
#include "service/checkpoint/signer.h"
#include "service/state/wall.h"
#include "service/link/warden_link.h"

#include <sys/stat.h>

#define LATER_MS 5000
#define TRY_AGAIN_NS (60ULL * 1000000000ULL) /* one that could not be hibernated */

static void on_tick(uv_timer_t *t);

/* In this order they hear of everything. */
static const struct sandbox_part *const parts[] = {
	&image_part, &device_part, &network_part, &secret_part,	  &file_part,	    &context_part,
	&run_part,   &exec_part,   &port_part,	  &template_part, &checkpoint_part, NULL,
};

static int open_maps(struct service *s, struct err *e)
{
	struct map *all[] = { &s->sandboxes,	    &s->names,	   &s->keys,	   &s->execs, &s->checkpoints,
			      &s->checkpoint_names, &s->templates, &s->pool_names, &s->pools, &s->warming,
			      &s->secrets };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(all); i++)
		r = map_init(all[i]);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "read random bytes") : 0;
}

int service_new(uv_loop_t *loop, const struct service_opts *o, struct db *d, struct audit *a, struct turn *t,
		struct access *x, struct service **ret, struct err *e)
{
	struct service *s = calloc(1, sizeof(*s));
	char path[1100];
	int r;

	if (!s)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the service");
	*s = (struct service){ .loop = loop,
			       .o = *o,
			       .db = d,
			       .audit = a,
			       .turn = t,
			       .access = x,
			       .wall_ahead = clock_ahead_ns(),
			       .parts = parts,
			       .commands = &exec_commands,
			       .on_tick = on_tick };
	s->spooled.max = o->spool_total;
	s->kept_last = &s->kept;
	s->scratch = malloc(SCRATCH);
	r = s->scratch ? open_maps(s, e) : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the service");
	if (r == 0)
		r = events_new(&s->events, e);
	if (r == 0)
		r = sandbox_nets_new(s, e);
	if (r == 0)
		r = layer_book_new(s, &s->layers, e);
	if (r == 0)
		r = image_book_new(s, e);
	if (r == 0)
		r = blob_store_start(s, e);
	if (r == 0)
		r = disk_sweep_new(s, &s->disks, e);
	if (r == 0)
		r = vault_new(&(struct vault_opts){ .data = o->data,
						    .given = o->secrets_key,
						    .given_len = o->secrets_key_len,
						    .old = o->secrets_old_key,
						    .old_len = o->secrets_old_key_len },
			      &s->vault, e);
	if (r == 0)
		r = signer_new(o->data, o->trusted, o->ntrusted, &s->signer, e);
	s->o.secrets_key = s->o.secrets_old_key = NULL;
	s->net_inject = secrets_inject;
	snprintf(path, sizeof(path), "%s/spool", o->data);
	if (r == 0 && mkdir(path, 0700) < 0 && errno != EEXIST)
		r = err_sys(e, ERR_INTERNAL, -errno, "make '%s'", path);
	if (r < 0) {
		free(s->scratch);
		free(s);
		return r;
	}
	uv_timer_init(loop, &s->tick);
	uv_timer_init(loop, &s->watch);
	s->watch.data = s;
	s->tick.data = s;
	*ret = s;
	return 0;
}

const struct service_opts *service_opts(const struct service *s)
{
	return &s->o;
}

struct signer *service_signer(const struct service *s)
{
	return s->signer;
}

char *service_scratch(const struct service *s)
{
	return s->scratch;
}

struct service_counts service_counts(const struct service *s)
{
	return (struct service_counts){ .sandboxes = s->sandboxes.count,
					.execs = s->running_execs,
					.spooled = s->spooled.used };
}

void service_drain(struct service *s)
{
	s->draining = true;
	warm_contexts_drop(s, NULL);
	port_uses_tick(s, 0);
}

bool service_settled(const struct service *s)
{
	const struct sandbox *b;
	size_t at = 0;

	while ((b = map_next(&s->sandboxes, &at)))
		if (b->state == SANDBOX_MAKING)
			return false;
	return !s->ending && pools_settled(s) && warden_link_idle(s->warden);
}

/* --- time --- */

/*
 * Counts execs with a caller: commands in the background that are not watched may be paused, and continue
 * afterwards.
 */
static unsigned callers(const struct sandbox *b)
{
	unsigned alone = 0;

	for (const struct exec *x = b->execs; x; x = x->next)
		alone += !x->ended_ns && x->request->background && !x->watches;
	return b->calls > alone ? b->calls - alone : 0;
}

static void rest(struct sandbox *b, uint64_t now)
{
	const struct idle_request *i = &b->request->idle;
	struct who daemon = { .tenant = b->tenant };
	uint64_t still = now > b->used_ns ? now - b->used_ns : 0;

	if (b->sleep || b->swap || b->waking || b->pooled || callers(b) || service_room(b->service, NULL) < 0)
		return;
	if (i->hibernate_ms && still >= i->hibernate_ms * 1000000ULL && now >= b->tried_ns &&
	    (b->state == SANDBOX_RUNNING || b->state == SANDBOX_PAUSED)) {
		b->tried_ns = now + TRY_AGAIN_NS;
		sandbox_hibernate(b, &daemon, &(struct sandbox_hibernate_opts){ 0 }, NULL, NULL);
	} else if (i->pause_ms && still >= i->pause_ms * 1000000ULL && b->state == SANDBOX_RUNNING) {
		sandbox_pause(b, &daemon, NULL, NULL);
	}
}

static void expire(struct sandbox *b, uint64_t now)
{
	struct who daemon = { .tenant = b->tenant };
	uint64_t idle = b->request->idle.delete_ms * 1000000ULL;

	if (b->state == SANDBOX_MAKING || b->state == SANDBOX_ENDING || b->pooled)
		return;
	if ((b->expires_ns && now >= b->expires_ns) || (idle && !b->calls && now >= b->used_ns + idle))
		sandbox_delete(b, &daemon, "sandbox.expire", NULL, NULL);
	else
		rest(b, now);
}

/* Rows of what has moved with the clock (state/wall.h) are written again. */
static void store_times(struct service *s)
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
		exec_store_times(b);
	}
	turn_dirty(s->turn);
}

/* Looks at whatever has a time, and again only while something has: a daemon that has nothing to do sleeps. */
static void on_tick(uv_timer_t *t)
{
	struct service *s = t->data;
	uint64_t now = wall_now(s);
	struct sandbox *b;
	size_t at = 0;

	s->soon = false;
	store_times(s);
	while ((b = map_next(&s->sandboxes, &at))) {
		s->soon |= sandbox_open_tick(b, now);
		if (b->found && !b->link.poll && !s->draining) {
			sandbox_reattach(b);
			s->soon |= b->state == SANDBOX_RUNNING;
		}
		if (b->thaw_due && b->state == SANDBOX_RUNNING && !b->sleep) {
			sandbox_thaw(b, false);
			s->soon = true;
		}
		if (b->expires_ns || b->request->idle.delete_ms || b->request->idle.hibernate_ms ||
		    b->request->idle.pause_ms) {
			expire(b, now);
			s->soon = true;
		}
	}
	s->soon |= disk_sweep_tick(s);
	s->soon |= sandbox_parts_tick(s, now);
	if (s->soon)
		uv_timer_start(t, on_tick, SERVICE_SOON_MS, 0);
	else if (s->spooled.used || s->kept || s->port_uses)
		uv_timer_start(t, on_tick, LATER_MS, 0);
}
