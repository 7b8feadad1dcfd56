/* Starts, ends and finds execs. */
#include "service/exec/exec.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "proto/exec.h"
#include "proto/link.h"
#include "service/state/event.h"
#include "service/exec/internal.h"
#include "service/secret/give.h"
#include "service/link/warden_link.h"

#include <signal.h>

#define STDIN_MAX (MIB + 4 * MIB) /* what may wait, and the largest message on top */

/* --- lifetime --- */

struct exec *exec_alloc(struct sandbox *b, const char *id, uint32_t number, struct err *e)
{
	struct exec *x = calloc(1, sizeof(*x));
	int r = 0;

	if (!x) {
		err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an exec");
		return NULL;
	}
	x->sandbox = b;
	x->number = number;
	x->in = -1;
	x->refs = 1;
	x->in_queue = (struct buf)BUF_INIT(STDIN_MAX);
	if (id)
		snprintf(x->id, sizeof(x->id), "%s", id);
	else
		r = id_new(x->id, sizeof(x->id));
	if (r < 0) {
		free(x);
		err_sys(e, ERR_INTERNAL, r, "make an id");
		return NULL;
	}
	sandbox_ref(b);
	stream_init(x, EXEC_OUT);
	stream_init(x, EXEC_ERR);
	return x;
}

void exec_list(struct exec *x)
{
	struct sandbox *b = x->sandbox;

	x->next = b->execs;
	x->prev = &b->execs;
	if (x->next)
		x->next->prev = &x->next;
	b->execs = x;
	b->nexecs++;
	x->waits = x->state == EXEC_WAITING;
	b->waiting += x->waits;
	if (map_put(&b->service->execs, x->id, x) < 0)
		log_warn("no memory to find exec %s by its id", x->id);
}

void exec_waits_no_more(struct exec *x)
{
	x->sandbox->waiting -= x->waits;
	x->waits = false;
}

/* Nearly always behind all others: only after a restart they come in another order. */
void exec_list_over(struct exec *x)
{
	struct sandbox *b = x->sandbox;
	struct exec **at;

	if (!x->prev || x->over_prev)
		return;
	if (!b->over)
		b->over_last = &b->over;
	at = b->over_last;
	if (b->over && b->newest_over_ns > x->ended_ns)
		for (at = &b->over; *at && (*at)->ended_ns <= x->ended_ns; at = &(*at)->over_next)
			;
	else
		b->newest_over_ns = x->ended_ns;
	x->over_next = *at;
	x->over_prev = at;
	if (*at)
		(*at)->over_prev = &x->over_next;
	else
		b->over_last = &x->over_next;
	*at = x;
	b->nover++;
}

void exec_unlist(struct exec *x)
{
	struct sandbox *b = x->sandbox;

	*x->prev = x->next;
	if (x->next)
		x->next->prev = x->prev;
	x->prev = NULL;
	b->nexecs--;
	exec_waits_no_more(x);
	map_del(&b->service->execs, x->id);
	if (!x->over_prev)
		return;
	*x->over_prev = x->over_next;
	if (x->over_next)
		x->over_next->over_prev = x->over_prev;
	else
		b->over_last = x->over_prev;
	x->over_prev = NULL;
	b->nover--;
}

void exec_ref(struct exec *x)
{
	x->refs++;
}

void exec_unref(struct exec *x)
{
	if (--x->refs)
		return;
	/* A write under way still points here: it ends by itself, and this is called again then. */
	for (int i = 0; i < 2; i++)
		if (stream_busy(&x->stream[i])) {
			x->refs = 1;
			exec_set_state(x, EXEC_ORPHANED);
			return;
		}
	turn_cancel(&x->wait);
	exec_unkeep(x);
	exec_uncount(x);
	x->sandbox->unstored -= x->row_pending;
	exec_timer_stop(x);
	for (int i = 0; i < 2; i++) {
		stream_close(&x->stream[i]);
		spool_drop(&x->stream[i].spool);
		digest_done(&x->stream[i].digest);
		stream_unmask(&x->stream[i]);
	}
	stdin_close(x);
	buf_done(&x->in_queue);
	exec_request_free(x->request);
	sandbox_unref(x->sandbox);
	free(x);
}

struct exec *exec_find(struct sandbox *b, const char *id, struct err *e)
{
	struct exec *x = map_get(&b->service->execs, id);

	/* An exec from a memory image is also found by its earlier id. */
	if (!x || x->sandbox != b)
		for (x = b->execs; x && strcmp(x->was, id); x = x->next)
			;
	if (!x || !*id) {
		err_set(e, WHY_EXEC_MISSING, -ENOENT, "no exec '%.64s' in this sandbox", id);
		err_remedy(e, "`cloche logs --list SANDBOX` (GET …/execs) lists the execs");
		return NULL;
	}
	return x;
}

/* --- watchers --- */

void exec_watch(struct exec *x, struct exec_watch *w, void (*fn)(void *arg, struct exec *x), void *arg)
{
	*w = (struct exec_watch){ .next = x->watches, .prev = &x->watches, .fn = fn, .arg = arg };
	if (w->next)
		w->next->prev = &w->next;
	x->watches = w;
}

void exec_unwatch(struct exec_watch *w)
{
	if (!w->prev)
		return;
	*w->prev = w->next;
	if (w->next)
		w->next->prev = w->prev;
	w->prev = NULL;
}

void exec_tell(struct exec *x)
{
	struct exec_watch *list = x->watches, *w;

	/* Each is moved back before it is called, so that one that is removed meanwhile is not called. */
	exec_ref(x);
	x->watches = NULL;
	if (list)
		list->prev = &list;
	while ((w = list)) {
		list = w->next;
		if (list)
			list->prev = &list;
		exec_watch(x, w, w->fn, w->arg);
		w->fn(w->arg, x);
	}
	exec_unref(x);
}

bool exec_over(const struct exec *x)
{
	return x->state == EXEC_ENDED;
}

bool exec_started(const struct exec *x)
{
	return (x->started || x->state == EXEC_ENDED) &&
	       (!x->request || !x->request->tty || x->stream[0].fd >= 0 || x->state == EXEC_ENDED);
}

/* --- what can be done to it --- */

static int check_running(const struct exec *x, struct err *e)
{
	if (exec_has_exited(x))
		return err_set(e, WHY_ENDED, -ESRCH, "exec '%s' has ended", x->id);
	return 0;
}

int exec_signal(struct exec *x, int sig, enum exec_scope scope, struct err *e)
{
	uint32_t payload[2] = { (uint32_t)sig, scope == EXEC_PROCESS ? FRAME_SCOPE_PROCESS : FRAME_SCOPE_GROUP };
	int r = check_running(x, e);

	if (r == 0)
		r = sandbox_ready(x->sandbox, e);
	if (r < 0)
		return r;
	if (x->state == EXEC_WAITING ||
	    x->state == EXEC_FOUND) { /* the agent does not know it yet; the first signal that ends it counts */
		if (x->early_signal != SIGKILL) {
			x->early_signal = sig;
			x->early_scope = scope;
		}
		return 0;
	}
	if (sig == SIGKILL && scope == EXEC_TREE) {
		x->killed = true;
		exec_kill_tree(x);
		return 0;
	}
	if (sig == SIGKILL)
		x->killed = true;
	r = agent_link_send(&x->sandbox->link, FRAME_SIGNAL, x->number, payload, sizeof(payload), NULL, 0);
	return r < 0 ? err_sys(e, WHY_SANDBOX_LOST, r, "send a signal") : 0;
}

static void ask_whether_delivered(struct exec *x)
{
	/* The agent does one thing after the other. */
	if (agent_link_send(&x->sandbox->link, FRAME_PING, x->number, NULL, 0, NULL, 0) < 0)
		x->interrupts = 0;
}

int exec_interrupt(struct exec *x, struct err *e)
{
	const bool early = x->state == EXEC_WAITING || x->state == EXEC_FOUND;
	int r = exec_signal(x, SIGINT, EXEC_PROCESS, e);

	if (r < 0)
		return r;
	x->interrupts++;
	if (!early)
		ask_whether_delivered(x);
	return 0;
}

bool exec_interrupting(const struct exec *x)
{
	return x->interrupts > 0;
}

int signal_parse(const char *text)
{
	uint64_t n;

	if (!strncmp(text, "SIG", 3))
		text += 3;
	if (parse_u64(text, &n, NULL) == 0)
		return n >= 1 && n <= 64 ? (int)n : -EINVAL;
	for (int i = 1; i < 32; i++) {
		const char *name = sigabbrev_np(i);

		if (name && !strcmp(name, text))
			return i;
	}
	return -EINVAL;
}

/* --- the agent's frames --- */

static struct exec *by_number(struct sandbox *b, uint32_t number)
{
	for (struct exec *x = b->execs; x; x = x->next)
		if (x->number == number)
			return x;
	return NULL;
}

static void open_terminal(struct exec *x, int *fd)
{
	struct err e = { 0 };

	if (stream_open(&x->stream[EXEC_OUT], *fd, false, &e) < 0) {
		log_warn("exec %s: %s", x->id, e.msg);
		return;
	}
	*fd = -1;
	if (x->resized)
		exec_resize(x, x->request->rows, x->request->cols, NULL);
	stdin_open_terminal(x);
}

void exec_signal_early(struct exec *x)
{
	int sig = x->early_signal;

	x->early_signal = 0;
	if (sig)
		exec_signal(x, sig, x->early_scope, NULL);
	/* Also those whose answer was lost with the link to the agent. */
	x->interrupts = x->interrupts ? 1 : 0;
	if (x->interrupts)
		ask_whether_delivered(x);
}

/* Its pipes, or its terminal, as the agent kept them. */
static void take_held(struct exec *x, uint32_t flags, int *fds, size_t nfds)
{
	struct err e = { 0 };

	if (flags & FRAME_HELD_TTY) {
		if (nfds)
			open_terminal(x, &fds[0]);
		return;
	}
	for (size_t i = 0; i < 2 && i < nfds; i++)
		if (stream_open(&x->stream[i], fds[i], false, &e) == 0)
			fds[i] = -1;
		else
			log_warn("exec %s: %s", x->id, e.msg);
	if (flags & FRAME_HELD_STDIN && nfds > 2) {
		stdin_open(x, fds[2]);
		fds[2] = -1;
	}
}

static void on_held(struct exec *x, const struct frame *f, int *fds, size_t nfds)
{
	bool open = x->stream[0].fd >= 0 || x->stream[1].fd >= 0; /* only the link to the agent was lost, not we */
	struct frame_held h;

	if (frame_held_decode(f, &h) < 0)
		return;
	x->seen_in_sync = true;
	if (exec_has_exited(x)) {
		if (!open)
			exec_drain(x, h.flags, fds, nfds);
		return;
	}
	if (!open)
		take_held(x, h.flags, fds, nfds);
	exec_set_state(x, EXEC_STARTED);
	exec_signal_early(x);
	exec_tell(x);
	if (h.flags & FRAME_HELD_ENDED) {
		exec_set_state(x, EXEC_EXITED);
		x->exit = h.exited;
		stream_exited(&x->stream[EXEC_OUT]);
		stream_exited(&x->stream[EXEC_ERR]);
		exec_check_end(x);
		return;
	}
	if (x->deadline_ns)
		exec_arm(x);
}

static int why_not(const struct exec *x, const struct frame *f, struct err *e)
{
	struct frame_failed how = { 0 };
	int r = link_error(f, x->request->argc ? x->request->argv[0] : "exec", e, &how);

	if (how.stage == FRAME_STAGE_WARM && how.errnum == ENOENT) {
		r = err_set(e, WHY_NO_WARM_PYTHON, -ENOENT, "no warm Python is running in this sandbox%s",
			    x->request->user.uid == x->sandbox->request->user.uid ? "" : " for that user");
		err_remedy(e, "create it from a template that has `warm: {python}`, or use `cmd`");
	} else if (how.stage == FRAME_STAGE_CWD) {
		r = link_error(f, x->request->cwd ? x->request->cwd : x->sandbox->request->spec->workdir, e, NULL);
	} else if (how.stage == FRAME_STAGE_ACCOUNT || how.stage == FRAME_STAGE_ACCOUNT_GROUP) {
		r = link_error(f, x->request->user.text, e, NULL);
	} else if (e->kind == ERR_NOT_FOUND || e->kind == ERR_INVALID || how.stage == FRAME_STAGE_WARM) {
		err_because(e, WHY_REFUSED);
	}
	mask_err(sandbox_mask(x->sandbox), e);
	return r;
}

void exec_frame(struct sandbox *b, const struct frame *f, int *fds, size_t nfds)
{
	struct exec *x = by_number(b, f->id);
	struct err e = { 0 };

	if (b->hands_off && (f->type == FRAME_HELD || f->type == FRAME_STARTED))
		return; /* it says so again when it is asked again, here or from its image */
	if (b->reviving && f->type == FRAME_HELD && b->nheld < SANDBOX_HELD_MAX)
		b->held[b->nheld++] = f->id;
	if (!x) {
		/* An unknown exec: after a restart, one that was never acknowledged. No caller could end it later. */
		if (f->type == FRAME_HELD) {
			if (b->next_exec <= f->id)
				b->next_exec = f->id + 1;
			exec_kill_number(b, f->id);
			agent_link_send(&b->link, FRAME_RELEASE, f->id, NULL, 0, NULL, 0);
		}
		return;
	}
	exec_ref(x);
	if (f->type == FRAME_HELD) {
		on_held(x, f, fds, nfds);
	} else if (exec_has_exited(x)) {
		; /* said twice, or after we gave up on it */
	} else if (f->type == FRAME_EXITED && (b->let_go || !b->synced) && !x->seen_in_sync) {
		b->missed = true; /* the agent says it again when it names it, and gives what was not read yet */
	} else if (f->type == FRAME_STARTED && x->request->tty && nfds && x->stream[0].fd < 0) {
		open_terminal(x, &fds[0]);
		exec_tell(x);
	} else if (f->type == FRAME_EXITED && frame_exited_decode(f, &x->exit) == 0) {
		exec_set_state(x, EXEC_EXITED);
		stream_exited(&x->stream[EXEC_OUT]);
		stream_exited(&x->stream[EXEC_ERR]);
		exec_check_end(x);
	} else if (f->type == FRAME_PONG) {
		if (x->interrupts && !--x->interrupts)
			exec_tell(x);
	} else if (f->type == FRAME_WARM && x->request->way == EXEC_WARM) {
		x->warm = true;
		exec_tell(x);
	} else if (f->type == FRAME_FAILED) {
		int r = why_not(x, f, &e);

		exec_fail(x, r, &e);
	}
	exec_unref(x);
}
