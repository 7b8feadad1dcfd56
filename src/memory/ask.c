/* What only a process itself can be asked for. */
#include "memory/inject.h"
#include "base/base.h"
#include "base/clock.h"

#include <linux/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif
#ifndef PR_GET_MDWE
#define PR_GET_MDWE 66
#endif
#define TIMERS_MAX 32U
#define CHILDREN_ONCE 64U /* children that are asked for in one round of calls */

struct asked { /* the number of each call in struct inject */
	size_t brk, dumpable, mdwe, pkey, subreaper, itimer[3], sigaction[64], timer[TIMERS_MAX];
	size_t altstack, tid, setting[MEM_SETTINGS_MAX], barriers, barrier[MEM_BARRIERS];
	struct mem_timer list[TIMERS_MAX];
	uint32_t timers;
};

static uint64_t asked_signals(const struct proc *p)
{
	/* A default action has flags that matter for SIGCHLD alone: whether children are waited for. */
	return (p->caught | 1ULL << (SIGCHLD - 1)) & ~(1ULL << (SIGKILL - 1) | 1ULL << (SIGSTOP - 1));
}

/* The id, as seen inside, of the thread with the host id @host. */
static uint32_t tid_inside(const struct proc *p, long host)
{
	for (size_t i = 0; i < p->n_threads; i++)
		if (p->thread[i].host == host)
			return p->thread[i].tid;
	return 0;
}

static int list_timers(const struct proc *p, struct asked *a, struct err *e)
{
	AUTO_FREE char *text = NULL;
	int r = proc_text(p->dir, "timers", 65536, &text, NULL);
	const char *at = text;

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "timers of process %u", p->pid);
	while ((at = strstr(at, "ID: "))) {
		struct mem_timer t = { 0 };
		unsigned long long value;
		char how[16], scope[8];
		int clock;
		long who;

		if (sscanf(at, "ID: %u\nsignal: %u/%llx\nnotify: %15[a-z]/%7[a-z].%ld\nClockID: %d", &t.id, &t.signo,
			   &value, how, scope, &who, &clock) != 7)
			return err_set(e, ERR_INTERNAL, -EINVAL, "the timers are invalid");
		if (clock < 0 || !strcmp(how, "thread"))
			return proc_refuse(p, e, "has a timer of a kind that cannot be saved");
		if (a->timers == TIMERS_MAX)
			return proc_refuse(p, e, "has more than %u timers", TIMERS_MAX);
		t.clock = (uint32_t)clock;
		t.value = value;
		t.notify = !strcmp(how, "none") ? SIGEV_NONE : !strcmp(scope, "tid") ? SIGEV_THREAD_ID : SIGEV_SIGNAL;
		t.tid = t.notify == SIGEV_THREAD_ID ? tid_inside(p, who) : 0;
		a->list[a->timers++] = t;
		at = strstr(at, "ClockID: ");
		at += 9;
	}
	return 0;
}

static void add_process(const struct proc *p, struct inject *j, struct asked *a)
{
	uint64_t signals = asked_signals(p);
	const struct call first_key = pkey_question(1); /* the kernel gives lower keys first */

	a->brk = inject_add(j, &(struct call){ SYS_brk, { 0 }, 0 }, -1, 0);
	a->dumpable = inject_add(j, &(struct call){ SYS_prctl, { PR_GET_DUMPABLE }, 0 }, -1, 0);
	a->mdwe = inject_add(j, &(struct call){ SYS_prctl, { PR_GET_MDWE }, 0 }, -1, 0);
	a->pkey = inject_add(j, &first_key, -1, 0);
	a->subreaper = inject_add(j, &(struct call){ SYS_prctl, { PR_GET_CHILD_SUBREAPER }, 0 }, 1, 4);
	/*
	 * Kernels before 6.10 have no list of registrations. A process that has not registered for a barrier is refused
	 * it; no thread runs for which a barrier would wait.
	 */
	a->barriers = inject_add(j, &(struct call){ SYS_membarrier, { MEM_BARRIER_LIST }, 0 }, -1, 0);
	for (unsigned i = 0; i < MEM_BARRIERS; i++)
		if (mem_barriers[i].use)
			a->barrier[i] =
				inject_add(j, &(struct call){ SYS_membarrier, { mem_barriers[i].use }, 0 }, -1, 0);
	for (unsigned i = 0; i < 3; i++)
		a->itimer[i] = inject_add(j, &(struct call){ SYS_getitimer, { i }, 0 }, 1, 32);
	for (unsigned i = 0; i < 64; i++)
		if (signals & 1ULL << i)
			a->sigaction[i] =
				inject_add(j, &(struct call){ SYS_rt_sigaction, { i + 1, 0, 0, 8 }, 0 }, 2, 32);
	for (uint32_t i = 0; i < a->timers; i++)
		a->timer[i] = inject_add(j, &(struct call){ SYS_timer_gettime, { a->list[i].id }, 0 }, 1, 32);
}

/* Reports the first call that failed. */
static int failed(const struct proc *p, const struct inject *j, struct err *e)
{
	for (size_t i = 0; i < j->n; i++)
		if (j->result[i] < 0 && j->result[i] > -4096)
			return err_sys(e, ERR_UNSUPPORTED, (int)j->result[i],
				       "process %u (%s) may not make system call %ld", p->pid, p->name, j->call[i].nr);
	return 0;
}

static uint32_t number(const struct inject *j, size_t call)
{
	uint32_t v;

	memcpy(&v, inject_answer(j, call), sizeof(v));
	return v;
}

static int take_process(struct dump *d, struct proc *p, const struct inject *j, struct asked *a, struct err *e)
{
	int r = 0;

	p->rec.mm[5] = (uint64_t)j->result[a->brk];
	p->rec.flags |= j->result[a->dumpable] == 1 ? MEM_PROC_DUMPABLE : 0;
	p->rec.flags |= number(j, a->subreaper) ? MEM_PROC_SUBREAPER : 0;
	for (unsigned i = 0; i < 3; i++) {
		uint64_t *t = p->rec.itimer[i];

		memcpy(t, inject_answer(j, a->itimer[i]), 32);
		/*
		 * An interval timer without time left has expired, and its signal is pending: only taking the signal
		 * would set it again, so it counts as due. Timers of CPU time set themselves again: such a timer
		 * without time left was stopped.
		 */
		if (i == ITIMER_REAL && (t[0] || t[1]) && !t[2] && !t[3])
			t[3] = 1;
	}
	p->rec.action = (struct mem_range){ image_count(&d->image, MEM_S_ACTION), 64 };
	for (unsigned i = 0; r == 0 && i < 64; i++) {
		struct mem_action act = { .handler = p->ignored >> i & 1 ? (uint64_t)(uintptr_t)SIG_IGN : 0 };

		if (asked_signals(p) & 1ULL << i)
			memcpy(&act, inject_answer(j, a->sigaction[i]), sizeof(act));
		r = image_add(&d->image, MEM_S_ACTION, &act, NULL, e);
	}
	p->rec.timer = (struct mem_range){ image_count(&d->image, MEM_S_TIMER), a->timers };
	for (uint32_t i = 0; r == 0 && i < a->timers; i++) {
		memcpy(&a->list[i].interval_s, inject_answer(j, a->timer[i]), 32);
		r = image_add(&d->image, MEM_S_TIMER, &a->list[i], NULL, e);
	}
	return r;
}

static void take_barriers(struct proc *p, struct inject *j, const struct asked *a)
{
	const long list = j->result[a->barriers];

	for (unsigned i = 0; i < MEM_BARRIERS; i++) {
		const bool has =
			list >= 0 ? list & mem_barriers[i].enrol : mem_barriers[i].use && j->result[a->barrier[i]] == 0;

		p->rec.flags |= has ? MEM_PROC_BARRIER(i) : 0;
		if (mem_barriers[i].use)
			j->result[a->barrier[i]] = 0;
	}
	j->result[a->barriers] = 0;
}

static int take_settings(const struct proc *p, struct thread *t, struct inject *j, const struct asked *a, struct err *e)
{
	for (uint32_t i = 0; i < mem_settings_n; i++) {
		const struct mem_setting *s = &mem_settings[i];
		long *result = &j->result[a->setting[i]];
		uint64_t v;

		if (*result < 0 && *result > -4096 && !s->optional)
			continue; /* failed() reports it */
		if (*result < 0 && *result > -4096)
			v = s->normal;
		else
			v = (s->pointer < 0 ? (uint64_t)*result : number(j, a->setting[i])) & ~s->ignored;
		*result = 0;
		t->rec.setting[i] = v;
		if (v != s->normal && (!s->set_nr || v > s->most))
			return proc_refuse(p, e, "has %s that cannot be saved (%llu)", s->name, (unsigned long long)v);
	}
	return 0;
}

/*
 * Stops and continuations of a child that its parent has not waited for yet. Only the parent can query them. The
 * agent's own children are left out: no program waits for those.
 */
static int ask_children(struct dump *d, struct proc *p, struct err *e)
{
	AUTO_FREE struct inject *j = NULL;
	const uint32_t me = (uint32_t)(p - d->proc);
	size_t first = 1, n = 0;
	int r = 0;

	for (size_t i = 1; r == 0 && i <= d->n_procs; i++) {
		const bool child = i < d->n_procs && d->proc[i].parent == me && !d->proc[i].zombie;

		if (child && !j && !(j = calloc(1, sizeof(*j))))
			return err_sys(e, ERR_INTERNAL, -ENOMEM, "calls");
		if (child && !n)
			first = i;
		if (child) {
			inject_add(j,
				   &(struct call){ SYS_waitid,
						   { P_PID, d->proc[i].pid, 0,
						     WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT | __WALL },
						   0 },
				   2, 32);
			n++;
		}
		if (!n || (n < CHILDREN_ONCE && i < d->n_procs))
			continue;
		r = inject_run(p, &p->thread[0], j, e);
		if (r == 0)
			r = failed(p, j, e);
		for (size_t k = first, at = 0; r == 0 && at < n; k++) {
			struct proc *c = &d->proc[k];
			int32_t info[6]; /* signo, errno, code, pad, pid, uid; then status */
			int32_t status;

			if (c->parent != me || c->zombie)
				continue;
			memcpy(info, inject_answer(j, at), sizeof(info));
			memcpy(&status, (const uint8_t *)inject_answer(j, at++) + sizeof(info), sizeof(status));
			if (info[4] && info[2] == CLD_STOPPED)
				c->rec.stop_signal = (uint32_t)status & 0x7f;
			if (c->rec.stop_signal && c->rec.stop_signal != SIGSTOP &&
			    (c->caught | c->ignored) >> (c->rec.stop_signal - 1) & 1)
				r = proc_refuse(c, e, "was stopped by signal %u, which would no longer stop it",
						c->rec.stop_signal);
			if (info[4] && info[2] == CLD_CONTINUED)
				c->rec.flags |= MEM_PROC_CONTINUED;
		}
		memset(j, 0, sizeof(*j));
		n = 0;
	}
	return r;
}

static int ask(struct dump *d, struct proc *p, size_t at, struct err *e)
{
	AUTO_FREE struct inject *j = calloc(1, sizeof(*j));
	AUTO_FREE struct asked *a = calloc(1, sizeof(*a));
	struct thread *t = &p->thread[at];
	int r = 0;

	if (!j || !a)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "calls");
	a->altstack = inject_add(j, &(struct call){ SYS_sigaltstack, { 0 }, 0 }, 1, 24);
	a->tid = inject_add(j, &(struct call){ SYS_prctl, { PR_GET_TID_ADDRESS }, 0 }, 1, 8);
	for (uint32_t i = 0; i < mem_settings_n; i++) {
		const struct mem_setting *s = &mem_settings[i];

		a->setting[i] = inject_add(j, &(struct call){ s->get_nr, { s->get[0], s->get[1] }, 0 }, s->pointer,
					   s->pointer < 0 ? 0 : 4);
	}
	if (at == 0) {
		r = list_timers(p, a, e);
		if (r < 0)
			return r;
		add_process(p, j, a);
		p->asked = clock_mono_ns();
	}
	r = inject_run(p, t, j, e);
	/*
	 * A process that has given up writable code (PR_SET_MDWE) must not get it back. Kernels before 6.3 do not have
	 * it.
	 */
	if (r == 0 && at == 0 && j->result[a->mdwe] > 0)
		r = proc_refuse(p, e, "allows itself no memory that is written and run (PR_SET_MDWE)");
	if (r == 0 && p->locks_all)
		r = proc_refuse(p, e, "locks all memory that it will map (MCL_FUTURE)");
	if (r == 0 && at == 0) {
		j->result[a->mdwe] = 0;
		p->keyed |= pkey_is_given(j->result[a->pkey]);
		j->result[a->pkey] = 0;
		take_barriers(p, j, a);
	}
	if (r == 0)
		r = take_settings(p, t, j, a, e);
	if (r == 0)
		r = failed(p, j, e);
	if (r < 0)
		return r;
	memcpy(t->rec.altstack, inject_answer(j, a->altstack), 24);
	t->rec.altstack[1] &= UINT32_MAX; /* the flags are an int, with padding behind it */
	memcpy(&t->rec.tid_address, inject_answer(j, a->tid), 8);
	r = at == 0 ? take_process(d, p, j, a, e) : 0;
	return r == 0 && at == 0 && p->keyed ? pkey_ask(p, e) : r;
}

int inject_proc(struct dump *d, struct proc *p, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->n_threads; i++)
		r = ask(d, p, i, e);
	return r == 0 ? ask_children(d, p, e) : r;
}
