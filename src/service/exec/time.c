/* An exec's time: when it is over, how much CPU it has used, and the end it then gets. */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/exec/internal.h"
#include "service/link/warden_link.h"

#include <signal.h>

#define CPU_STEP_MS 100
#define KILL_WAIT_MS 10000

static void on_timer_closed(uv_handle_t *h)
{
	free(h);
}

void exec_timer_stop(struct exec *x)
{
	if (!x->timer)
		return;
	uv_timer_stop(x->timer);
	uv_close((uv_handle_t *)x->timer, on_timer_closed);
	x->timer = NULL;
}

static void exec_timer(struct exec *x, uint64_t ms, void (*fn)(uv_timer_t *t))
{
	if (!x->timer) {
		x->timer = malloc(sizeof(*x->timer));
		if (!x->timer)
			abort(); /* without it a limit would not be kept */
		uv_timer_init(x->sandbox->service->loop, x->timer);
		x->timer->data = x;
	}
	uv_timer_start(x->timer, fn, ms, 0);
}

/* It was killed and does not end: a process that the kernel cannot let go of. */
static void on_kill_overdue(uv_timer_t *t)
{
	struct exec *x = t->data;

	log_warn("exec %s has not ended although it was killed", x->id);
	if (!exec_has_exited(x))
		exec_set_state(x, EXEC_EXITED);
	x->exit.status = SIGKILL;
	stream_exited(&x->stream[0]);
	stream_exited(&x->stream[1]);
	exec_check_end(x);
}

/* The second best: found again, and we died before its group was noted. */
void exec_kill_number(struct sandbox *b, uint32_t number)
{
	const uint32_t payload[2] = { SIGKILL, FRAME_SCOPE_GROUP };

	agent_link_send(&b->link, FRAME_SIGNAL, number, payload, sizeof(payload), NULL, 0);
}

void exec_kill_tree(struct exec *x)
{
	struct sandbox *b = x->sandbox;

	if (exec_has_exited(x) || !b->handle)
		return;
	if (x->group_no)
		warden_link_call(b->service->warden, WARDEN_GROUP_KILL, b->handle, x->group_no, NULL, NULL, NULL);
	exec_kill_number(b, x->number); /* its group may be empty still: this comes right behind EXEC */
	exec_timer(x, KILL_WAIT_MS, on_kill_overdue);
}

static void on_time(uv_timer_t *t);

static void on_cpu(void *arg, int r, const struct err *e)
{
	struct exec *x = arg;
	uint64_t used = x->sandbox->stat.group.cpu_usec;

	(void)e;
	if (r == 0 && !x->cpu_base)
		x->cpu_base = used + 1;
	if (r == 0 && !exec_has_exited(x) && x->request->cpu_ms && used + 1 - x->cpu_base > x->request->cpu_ms * 1000) {
		x->cpu_out = true;
		exec_kill_tree(x);
	}
	exec_unref(x);
}

void exec_look_at_cpu(struct exec *x)
{
	exec_ref(x);
	sandbox_stat(x->sandbox, on_cpu, x);
}

/* For the next thing that can happen: its time is over, or its CPU time is to be looked at. */
void exec_arm(struct exec *x)
{
	uint64_t now = clock_mono_ns(), ms = 0;

	if (exec_has_exited(x) || x->timed_out || x->cpu_out || x->killed)
		return;
	if (x->deadline_ns)
		ms = x->deadline_ns > now ? (x->deadline_ns - now + 999999) / 1000000 : 1;
	if (x->request->cpu_ms && (!ms || ms > CPU_STEP_MS))
		ms = CPU_STEP_MS;
	if (ms)
		exec_timer(x, ms, on_time);
}

static void on_time(uv_timer_t *t)
{
	struct exec *x = t->data;

	if (exec_has_exited(x))
		return;
	if (x->deadline_ns && clock_mono_ns() >= x->deadline_ns) {
		x->timed_out = true;
		exec_kill_tree(x);
		return;
	}
	if (x->request->cpu_ms)
		exec_look_at_cpu(x);
	exec_arm(x);
}

void exec_clock(struct sandbox *b, bool stop)
{
	uint64_t now = clock_mono_ns();

	for (struct exec *x = b->execs; x; x = x->next) {
		if (x->state != EXEC_STARTED && x->state != EXEC_FOUND)
			continue;
		if (stop) {
			x->left_ns = x->deadline_ns > now ? x->deadline_ns - now : 1;
			exec_timer_stop(x);
		} else {
			x->deadline_ns = x->deadline_ns ? now + x->left_ns : 0;
			if (x->state == EXEC_STARTED) /* else when the agent has named it */
				exec_arm(x);
		}
	}
}
