/*
 * The one place that writes ->state, and what every change of it leaves behind: an audit record and an event.
 *
 *	making ──► running ◄──► paused          deleted, or never made: any ──► ending
 *	              │ ▲          │
 *	              ▼ │          ▼
 *	   hibernated, stopped ◄───┘
 *	              │
 *	              ▼
 *	             lost ──► running (restored in its place, or started again from its disk)
 */
#include "base/base.h"
#include "base/log.h"
#include "service/sandbox/internal.h"
#include "service/state/event.h"
#include "service/template/pool.h"
#include "service/template/struct.h"

#define TO(s) (1U << (s))

/* What each state may become. A change to the same state is none, and is allowed where two callers may ask for it at once. */
static const unsigned may_become[] = {
	/* Entered, or given up. */
	[SANDBOX_MAKING] = TO(SANDBOX_RUNNING) | TO(SANDBOX_ENDING),
	/* Making: what was entered could not be stored. Running: resumed twice, or replaced. */
	[SANDBOX_RUNNING] = TO(SANDBOX_MAKING) | TO(SANDBOX_RUNNING) | TO(SANDBOX_PAUSED) | TO(SANDBOX_STOPPED) |
			    TO(SANDBOX_HIBERNATED) | TO(SANDBOX_LOST) | TO(SANDBOX_ENDING),
	[SANDBOX_PAUSED] = TO(SANDBOX_RUNNING) | TO(SANDBOX_PAUSED) | TO(SANDBOX_STOPPED) | TO(SANDBOX_HIBERNATED) |
			   TO(SANDBOX_LOST) | TO(SANDBOX_ENDING),
	/* Lost: its files were open, and the agent that had them failed. */
	[SANDBOX_STOPPED] = TO(SANDBOX_RUNNING) | TO(SANDBOX_LOST) | TO(SANDBOX_ENDING),
	[SANDBOX_HIBERNATED] = TO(SANDBOX_RUNNING) | TO(SANDBOX_ENDING),
	[SANDBOX_LOST] = TO(SANDBOX_RUNNING) | TO(SANDBOX_ENDING),
	[SANDBOX_ENDING] = 0,
};

static const char *const names[] = {
	[SANDBOX_MAKING] = "making",   [SANDBOX_RUNNING] = "running",	    [SANDBOX_PAUSED] = "paused",
	[SANDBOX_STOPPED] = "stopped", [SANDBOX_HIBERNATED] = "hibernated", [SANDBOX_LOST] = "lost",
	[SANDBOX_ENDING] = "ending",
};

/*
 * The records of changes of state, and the state that each is of. The event says what has happened ("sandbox.created"), the
 * audit record what was done.
 */
static const struct change {
	const char *kind;
	enum sandbox_state state;
	const char *event;
} changes[] = {
	{ "sandbox.create", SANDBOX_RUNNING, "sandbox.created" },
	{ "pool.fill", SANDBOX_RUNNING, "pool.fill" }, /* not handed out: no event is sent */
	{ "template.fill", SANDBOX_RUNNING, "template.fill" },
	{ "image.work", SANDBOX_RUNNING, "image.work" },
	{ "run.sandbox", SANDBOX_RUNNING, "run.sandbox" },
	{ "sandbox.pause", SANDBOX_PAUSED, "sandbox.paused" },
	{ "sandbox.resume", SANDBOX_RUNNING, "sandbox.resumed" },
	{ "sandbox.hibernate", SANDBOX_HIBERNATED, "sandbox.hibernated" },
	{ "sandbox.wake", SANDBOX_RUNNING, "sandbox.woken" },
	{ "sandbox.restore", SANDBOX_RUNNING, "sandbox.restored" },
	{ "sandbox.stop", SANDBOX_STOPPED, "sandbox.stopped" },
	{ "sandbox.start", SANDBOX_RUNNING, "sandbox.started" },
	{ "sandbox.lost", SANDBOX_LOST, "sandbox.lost" },
	{ "sandbox.delete", SANDBOX_ENDING, "sandbox.deleted" },
	{ "sandbox.expire", SANDBOX_ENDING, "sandbox.deleted" }, /* the same event, also for the expiry */
};

const char *sandbox_state_name(enum sandbox_state s)
{
	return (unsigned)s < ARRAY_LEN(names) ? names[s] : "unknown";
}

bool sandbox_may_become(enum sandbox_state from, enum sandbox_state to)
{
	return may_become[from] & TO(to);
}

bool sandbox_set_state(struct sandbox *b, enum sandbox_state to)
{
	if (!sandbox_may_become(b->state, to)) {
#ifdef CLOCHE_FAULTS
		assert(0); /* a change of state that is not in the table */
#endif
		log_error("bug: sandbox %s is %s and was to become %s: refused", b->id, sandbox_state_name(b->state),
			  sandbox_state_name(to));
		return false;
	}
	b->state = to;
	return true;
}

enum sandbox_state sandbox_load_state(struct sandbox *b, const char *name)
{
	b->state = SANDBOX_RUNNING; /* and one that is "pooled" */
	for (enum sandbox_state s = SANDBOX_PAUSED; s <= SANDBOX_LOST; s++)
		if (!strcmp(name, names[s]))
			b->state = s;
	return b->state;
}

/* --- what is said about it --- */

static const struct change *change_of(const char *kind)
{
	for (size_t i = 0; i < ARRAY_LEN(changes); i++)
		if (!strcmp(changes[i].kind, kind))
			return &changes[i];
	return NULL;
}

static void put_made(struct sandbox *b, struct json *j)
{
	if (b->request->origin.template[0])
		jout_str(j, "template", b->request->origin.template);
	if (b->pool)
		jout_str(j, "pool", b->pool->name);
	if (b->request->origin.pooled)
		jout_bool(j, "pooled", true);
	jout_str(j, "image", b->request->spec->image);
	jout_str(j, "isolation", tier_name(b->request->spec));
	net_request_write(b->request->net, "network", j);
	jout_u64(j, "memory", b->request->spec->limits.memory);
	jout_u64(j, "cpu_milli", b->request->spec->limits.cpu_milli);
}

static void audit(struct sandbox *b, const struct who *who, const char *kind)
{
	struct audit_rec rec = who_rec(who, kind);
	struct json *j;

	rec.sandbox = b->id;
	rec.tenant = b->tenant->id;
	j = audit_begin(b->service->audit, &rec);
	jout_str(j, "name", b->request->name);
	if (b->request->checkpoint[0] && (!strcmp(kind, "sandbox.create") || !strcmp(kind, "sandbox.restore")))
		jout_str(j, "checkpoint", b->request->checkpoint);
	if (b->cut && (!strcmp(kind, "sandbox.create") || !strcmp(kind, "sandbox.restore") ||
		       !strcmp(kind, "sandbox.hibernate") || !strcmp(kind, "sandbox.resume")))
		jout_raw(j, "cut", b->cut, strlen(b->cut));
	if (!strcmp(kind, "sandbox.create") || strstr(kind, ".fill"))
		put_made(b, j);
	audit_end(b->service->audit, NULL);
}

void sandbox_note_state(struct sandbox *b, const struct who *who, const char *kind)
{
	const struct change *c = change_of(kind);

	if (!c || c->state != b->state) {
#ifdef CLOCHE_FAULTS
		assert(0); /* a record of a change of state that was not made */
#endif
		log_error("bug: sandbox %s is %s, and %s was to be noted", b->id, sandbox_state_name(b->state), kind);
	}
	audit(b, who, kind);
	event_add(b->service, b, c ? c->event : kind, "");
	turn_dirty(b->service->turn);
}

void sandbox_note_update(struct sandbox *b, const struct who *who)
{
	audit(b, who, "sandbox.update");
	event_add(b->service, b, "sandbox.updated", "");
	turn_dirty(b->service->turn);
}
