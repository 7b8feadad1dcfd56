/*
 * What a tenant's commands take of the daemon's memory, and of its database, beside their output.
 *
 * Pending: the text, environment and stdin of commands that have not begun or whose caller waits. Counted for the tenant;
 * one that would take it past PENDING_MAX is refused. Of a command in the background only COMMAND_KEPT bytes are kept once it has
 * begun, of others once they have ended. (A file with its stdin lives as long as something inside has it open; it is counted
 * until the command ends.)
 *
 * History: commands that have ended, HISTORY_MAX bytes of a tenant over all its sandboxes. The oldest are forgotten first.
 */
#include "base/base.h"
#include "service/exec/internal.h"
#include "service/secret/give.h"
#include "service/internal.h"

#define PENDING_MAX (64U * MIB)
#define HISTORY_MAX (16U * MIB)
#define ROW_BYTES 2048U /* of an exec in the database, about */

static size_t stdin_bytes(const struct exec_request *w)
{
	return w->stdin_data ? w->stdin_len : 0;
}

int exec_charge(struct exec *x, struct err *e)
{
	struct tenant *t = x->sandbox->tenant;
	size_t bytes = exec_request_bytes(x->request);

	if (t->pending && t->pending + bytes > PENDING_MAX) {
		err_set(e, WHY_LIMIT, -EDQUOT,
			"commands of tenant '%s' that are starting or waiting for an answer take %zu bytes of %llu",
			t->id, t->pending, PENDING_MAX);
		err_remedy(e, "wait until some have ended, or send less with each: write large inputs to files");
		return -EDQUOT;
	}
	x->pending = bytes;
	t->pending += bytes;
	return 0;
}

static void uncharge(struct exec *x, size_t bytes)
{
	x->pending -= bytes;
	x->sandbox->tenant->pending -= bytes;
}

void exec_trim(struct exec *x)
{
	const size_t in = stdin_bytes(x->request);
	bool queued = x->sandbox->link.first && !x->ended_ns; /* then a copy of it waits for its agent */

	exec_request_trim(x->request, sandbox_mask(x->sandbox));
	x->stdin_held = x->ended_ns ? 0 : x->stdin_held + in;
	if (!queued && x->pending > x->stdin_held)
		uncharge(x, x->pending - x->stdin_held);
}

static size_t history_bytes(const struct exec *x)
{
	return sizeof(*x) + exec_request_bytes(x->request) + ROW_BYTES;
}

static void history_leave(struct exec *x)
{
	struct tenant *t = x->sandbox->tenant;

	if (!x->history_prev)
		return;
	*x->history_prev = x->history_next;
	if (x->history_next)
		x->history_next->history_prev = x->history_prev;
	else
		t->history_last = x->history_prev;
	x->history_prev = NULL;
	t->history -= x->history;
}

void exec_drop_rows(struct service *s)
{
	for (unsigned i = 0; i < s->nforgotten; i++)
		execs_delete(s->db, s->forgotten[i], NULL);
	if (s->nforgotten)
		turn_dirty(s->turn);
	s->nforgotten = 0;
}

/* A statement for each one would be a commit for each turn. */
static void drop_row_soon(struct service *s, const struct exec *x)
{
	if (!x->stored)
		return;
	if (s->nforgotten == FORGOTTEN_MAX)
		exec_drop_rows(s);
	memcpy(s->forgotten[s->nforgotten++], x->id, ID_SIZE);
}

void exec_forget(struct exec *x)
{
	struct sandbox *b = x->sandbox;

	if (!x->prev)
		return;
	exec_unlist(x);
	history_leave(x);
	drop_row_soon(b->service, x);
	exec_unref(x);
}

void exec_remember(struct exec *x)
{
	struct tenant *t = x->sandbox->tenant;
	struct exec *old, *next;

	if (x->history_prev)
		return;
	if (!x->draining)
		exec_list_over(x);
	if (!t->history_last)
		t->history_last = &t->history_first;
	x->history = history_bytes(x);
	t->history += x->history;
	x->history_next = NULL;
	x->history_prev = t->history_last;
	*t->history_last = x;
	t->history_last = &x->history_next;
	for (old = t->history_first; t->history > HISTORY_MAX && old && old != x; old = next) {
		next = old->history_next;
		if (exec_over(old) && !old->draining)
			exec_forget(old);
	}
}

void exec_uncount(struct exec *x)
{
	history_leave(x);
	uncharge(x, x->pending);
}
