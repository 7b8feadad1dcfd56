/*
 * The one place that writes an exec's ->state, and records the changes: an audit record and an event.
 *
 *	waiting ─┐
 *	         ├─► started ──► exited ──► ending ──► ended
 *	found ───┘                  └► judging ─┘
 *
 * Waiting and found execs exit, too: one that cannot be started ends without having run. An exec becomes orphaned when
 * only a worker that writes its output still uses it.
 */
#include "base/base.h"
#include "base/log.h"
#include "service/exec/internal.h"
#include "service/secret/give.h"
#include "service/state/event.h"

#define TO(s) (1U << (s))

static const unsigned may_become[] = {
	[EXEC_WAITING] = TO(EXEC_STARTED) | TO(EXEC_EXITED) | TO(EXEC_ORPHANED),
	[EXEC_FOUND] = TO(EXEC_STARTED) | TO(EXEC_EXITED) | TO(EXEC_ORPHANED),
	/* Started: named again, after the link to its agent was lost. */
	[EXEC_STARTED] = TO(EXEC_STARTED) | TO(EXEC_EXITED) | TO(EXEC_ORPHANED),
	[EXEC_EXITED] = TO(EXEC_JUDGING) | TO(EXEC_ENDING) | TO(EXEC_ORPHANED),
	[EXEC_JUDGING] = TO(EXEC_ENDING) | TO(EXEC_ORPHANED),
	[EXEC_ENDING] = TO(EXEC_ENDED) | TO(EXEC_ORPHANED),
	[EXEC_ENDED] = TO(EXEC_ORPHANED),
	[EXEC_ORPHANED] = TO(EXEC_ORPHANED), /* a worker for each of its streams */
};

static const char *const names[] = {
	[EXEC_WAITING] = "waiting", [EXEC_FOUND] = "found",   [EXEC_STARTED] = "started", [EXEC_EXITED] = "exited",
	[EXEC_JUDGING] = "judging", [EXEC_ENDING] = "ending", [EXEC_ENDED] = "ended",	  [EXEC_ORPHANED] = "orphaned",
};

const char *exec_state_name(enum exec_state s)
{
	return (unsigned)s < ARRAY_LEN(names) ? names[s] : "unknown";
}

bool exec_may_become(enum exec_state from, enum exec_state to)
{
	return may_become[from] & TO(to);
}

bool exec_set_state(struct exec *x, enum exec_state to)
{
	if (!exec_may_become(x->state, to)) {
#ifdef CLOCHE_FAULTS
		assert(0); /* a change of state that is not in the table */
#endif
		log_error("bug: exec %s is %s and was to become %s: refused", x->id, exec_state_name(x->state),
			  exec_state_name(to));
		return false;
	}
	x->state = to;
	exec_waits_no_more(x);
	x->started |= to == EXEC_STARTED;
	if (to == EXEC_ENDING)
		exec_note_end(x);
	return true;
}

void exec_load_state(struct exec *x, enum exec_state is)
{
	assert(is == EXEC_FOUND || is == EXEC_ENDED);
	x->state = is;
	exec_waits_no_more(x);
}

void exec_note_begin(struct exec *x)
{
	struct sandbox *b = x->sandbox;
	char field[48];

	if (x->request->background) {
		struct audit_rec rec = who_rec(&x->who, "exec.start");
		struct json *j;

		rec.tenant = b->tenant->id;
		rec.sandbox = b->id;
		rec.exec = x->id;
		j = audit_begin(b->service->audit, &rec);
		exec_request_write(x->request, sandbox_mask(b), j);
		audit_end(b->service->audit, NULL);
	}
	snprintf(field, sizeof(field), "\"exec\":\"%s\"", x->id);
	event_add(b->service, b, "exec.started", field);
}

void exec_note_signal(const struct exec *x, const struct who *who, int sig)
{
	struct audit_rec rec = who_rec(who, "exec.signal");
	struct service *s = x->sandbox->service;
	struct json *j;

	rec.tenant = x->sandbox->tenant->id;
	rec.sandbox = x->sandbox->id;
	rec.exec = x->id;
	j = audit_begin(s->audit, &rec);
	jout_i64(j, "signal", sig);
	audit_end(s->audit, NULL);
	turn_dirty(s->turn);
}
