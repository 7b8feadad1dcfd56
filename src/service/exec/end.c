/* How an exec ends: the verdict, what is kept of it, and the result for its caller. */
#include "base/base.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/network/network.h"
#include "service/sandbox/disk.h"
#include "service/state/event.h"
#include "service/exec/internal.h"
#include "service/sandbox/part.h"
#include "service/secret/give.h"
#include "service/internal.h"
#include "service/state/wall.h"
#include "service/link/warden_link.h"
#include "tier/tiers.h"

#include <signal.h>
#include <sys/wait.h>

#define PRUNE_NS 4500000000ULL /* between two looks for old spools */
#define KEPT_BYTES (16 * MIB) /* of output in memory, of execs that have ended */
#define KEPT_MAX 256U /* execs of one sandbox that have ended and are remembered */

static uint64_t wall_ms(const struct exec *x)
{
	if (x->started_mono)
		return (x->ended_mono - x->started_mono) / 1000000ULL;
	return x->ended_ns > x->started_ns ? (x->ended_ns - x->started_ns) / 1000000ULL : 0;
}

static bool truncated(const struct exec *x, enum exec_stream s)
{
	const struct spool *sp = &x->stream[s].spool;

	/* Output that went straight to a reader is never cut. */
	return x->request->output_limit && sp->total - sp->base > x->request->output_limit;
}

/*
 * The agent reports kills for every exec; the warden is only asked about sandboxes that are gone, and about execs that
 * it has ended itself. An exec that came when the sandbox was nearly dead finds that death counted already.
 */
static uint64_t oom_kills(const struct exec *x)
{
	const uint64_t all = x->sandbox->stat.group.oom_kills, asked = all > x->oom_base ? all - x->oom_base : 0;

	if (x->lost && x->sandbox->lost_to_oom)
		return 1;
	return asked > x->exit.oom_kills ? asked : x->exit.oom_kills;
}

static void judge(struct exec *x)
{
	const struct warden_stat *st = &x->sandbox->stat;
	const struct spec_limits *l = &x->sandbox->request->spec->limits;
	struct verdict_in in = {
		.status = x->exit.status,
		.lost = x->lost,
		.timed_out = x->timed_out,
		.cpu_out = x->cpu_out,
		.killed = x->killed,
		.oom_kills = oom_kills(x),
		.oom_kind = kernel_kind_name(st->kernel.kills > x->kernel_base || (x->lost && x->sandbox->lost_to_oom) ?
						     st->kernel.killed_by :
						     0),
		/* What a group that is gone had counted is gone with it. */
		.pids_refused = st->group.pids_refused > x->pids_base ? st->group.pids_refused - x->pids_base : 0,
		.memory = l->memory,
		.memory_peak = st->group.memory_peak,
		.memory_files = st->group.memory_files,
		.pids = l->pids,
		.pids_peak = st->group.pids_peak,
		.disk = x->sandbox->receipt.disk ? st->disk_size : 0,
		.disk_used = st->disk_used,
		.disk_file = x->sandbox->request->spec->flags & SPEC_DISK ||
			     tier_is_machine(x->sandbox->request->spec->flags),
		.inodes = x->sandbox->receipt.inodes ? st->inodes_size : 0,
		.inodes_used = st->inodes_used,
		.timeout_ms = x->request->timeout_ms,
		.wall_ms = wall_ms(x),
		.cpu_limit_ms = x->request->cpu_ms,
		.cpu_ms = x->exit.cpu_usec / 1000,
		.output_limit = x->request->output_limit,
		.output = x->stream[0].spool.total > x->stream[1].spool.total ? x->stream[0].spool.total :
										x->stream[1].spool.total,
		.truncated = truncated(x, EXEC_OUT) || truncated(x, EXEC_ERR),
	};

	/* A limit of CPU time that the kernel kept for one process. */
	if (x->request->cpu_ms && WIFSIGNALED(x->exit.status) &&
	    (WTERMSIG(x->exit.status) == SIGXCPU ||
	     (WTERMSIG(x->exit.status) == SIGKILL && in.cpu_ms >= x->request->cpu_ms)))
		in.cpu_out = true;
	verdict_make(&in, &x->verdict);
	x->memory_peak = x->exit.maxrss;
}

/* --- the result --- */

static int copy_range(const struct spool *s, uint64_t from, uint64_t to, struct buf *b)
{
	while (from < to) {
		size_t want = to - from > SCRATCH ? SCRATCH : (size_t)(to - from);
		char *room = buf_room(b, want);
		ssize_t n;

		if (!room)
			return -ENOMEM;
		n = spool_read(s, from, room, want);
		if (n <= 0)
			return n < 0 ? (int)n : 0;
		buf_added(b, (size_t)n);
		from += (uint64_t)n;
	}
	return 0;
}

/* All, or the first and the last half of the limit. What the spool itself no longer has counts as left out, too. */
static int gather(const struct exec *x, enum exec_stream which, struct buf *b, uint64_t *ret_dropped)
{
	const struct spool *s = &x->stream[which].spool;
	uint64_t limit = x->request->output_limit, head, tail, first;
	int r;

	*ret_dropped = s->base; /* what went straight to a reader was not kept */
	head = !limit || s->total - s->base <= limit ? s->total : s->base + limit / 2;
	r = copy_range(s, s->base, head, b);
	if (r < 0 || s->base + b->len >= s->total)
		return r;
	tail = head >= s->total ? s->total : s->total - limit / 2;
	first = spool_first(s, tail);
	*ret_dropped += first - (s->base + b->len);
	r = buf_addf(b, "\n[… %llu bytes left out …]\n", (unsigned long long)*ret_dropped);
	return r < 0 ? r : copy_range(s, first, s->total, b);
}

static int put_base64(struct json *j, const char *key, const struct buf *b)
{
	AUTO_FREE char *text = malloc(BASE64_SIZE(b->len));

	if (!text)
		return -ENOMEM;
	jout_strn(j, key, text, base64_encode(buf_str(b), b->len, text));
	return 0;
}

int exec_write_output(struct exec *x, struct json *j, uint64_t dropped[2])
{
	static const char *const keys[2][2] = { { "stdout", "stdout_base64" }, { "stderr", "stderr_base64" } };

	for (int i = 0; i < 2; i++) {
		AUTO(buf_done) struct buf b = BUF_INIT(x->request->output_limit + 4 * MIB);
		int r = gather(x, (enum exec_stream)i, &b, &dropped[i]);

		if (r == 0 && x->request->base64)
			r = put_base64(j, keys[i][1], &b);
		else if (r == 0)
			jout_strn(j, keys[i][0], buf_str(&b), b.len);
		if (r < 0)
			return r;
	}
	return 0;
}

static void put_verdict(const struct verdict *v, struct json *j)
{
	jout_i64(j, "exit_code", v->exit_code);
	if (v->signal)
		jout_i64(j, "signal", v->signal);
	else
		jout_null(j, "signal");
	jout_object(j, "verdict");
	jout_str(j, "cause", verdict_name(v->cause));
	jout_str(j, "detail", v->detail);
	if (v->oom_kind[0])
		jout_str(j, "oom_kind", v->oom_kind);
	if (v->oom_kills)
		jout_u64(j, "oom_kills", v->oom_kills);
	if (v->warning[0])
		jout_str(j, "warning", v->warning);
	if (v->has_limit) {
		jout_u64(j, "limit", v->limit);
		jout_u64(j, "peak", v->peak);
	} else {
		jout_null(j, "limit");
		jout_null(j, "peak");
	}
	jout_end(j);
}

static void put_usage(const struct exec *x, struct json *j)
{
	uint64_t net = sandbox_net_bytes(x->sandbox);

	jout_object(j, "usage");
	jout_u64(j, "wall_ms", wall_ms(x));
	jout_u64(j, "cpu_ms", x->exit.cpu_usec / 1000);
	jout_u64(j, "memory_peak", x->memory_peak);
	jout_u64(j, "disk_used", x->sandbox->stat.disk_used);
	jout_u64(j, "io_bytes", x->sandbox->stat.group.io_bytes);
	jout_u64(j, "net_bytes", net > x->net_base ? net - x->net_base : 0);
	jout_end(j);
}

/*
 * When its timeout ends it. Null without one, and while the sandbox is paused or hibernated, since its time is stopped
 * then.
 */
static void put_ends(const struct exec *x, struct json *j)
{
	uint64_t mono = clock_mono_ns(), at = clock_real_ns();
	char when[32];

	if (!x->request->timeout_ms || x->sandbox->state == SANDBOX_PAUSED || x->sandbox->state == SANDBOX_HIBERNATED) {
		jout_null(j, "ends_at");
		return;
	}
	if (!x->deadline_ns)
		at += x->request->timeout_ms * 1000000ULL;
	else if (x->deadline_ns > mono)
		at += x->deadline_ns - mono;
	clock_iso(at, when);
	jout_str(j, "ends_at", when);
}

static void put_running(const struct exec *x, struct json *j)
{
	jout_str(j, "state", "running");
	put_ends(x, j);
	jout_null(j, "exit_code");
	jout_null(j, "ended_at");
}

int exec_write_result(struct exec *x, unsigned parts, struct json *j)
{
	uint64_t dropped[2] = { 0, 0 };
	char when[32], url[160];
	int r = 0;

	jout_str(j, "id", x->id);
	jout_str(j, "sandbox", x->sandbox->id);
	if (parts & EXEC_TELL_CMD || x->request->echo)
		exec_request_write_cmd(x->request, sandbox_mask(x->sandbox), j);
	jout_str(j, "user", x->request->user.text);
	jout_bool(j, "background", x->request->background);
	jout_bool(j, "tty", x->request->tty);
	clock_iso(x->started_ns, when);
	jout_str(j, "started_at", when);
	if (!exec_over(x)) {
		put_running(x, j);
		return 0;
	}
	jout_str(j, "state", "ended");
	clock_iso(x->ended_ns, when);
	jout_str(j, "ended_at", when);
	put_verdict(&x->verdict, j);
	if (parts & EXEC_TELL_OUTPUT)
		r = exec_write_output(x, j, dropped);
	jout_object(j, "truncated");
	jout_bool(j, "stdout", dropped[0] != 0);
	jout_bool(j, "stderr", dropped[1] != 0);
	jout_u64(j, "stdout_dropped", dropped[0]);
	jout_u64(j, "stderr_dropped", dropped[1]);
	snprintf(url, sizeof(url), "/v1/sandboxes/%s/execs/%s/output", x->sandbox->id, x->id);
	jout_str(j, "full_url", dropped[0] || dropped[1] ? url : NULL);
	jout_end(j);
	put_usage(x, j);
	return r;
}

/* --- the end --- */

/* Of output that a crash cut in two only the size is known. */
static void put_digest(struct json *j, struct exec *x)
{
	static const char *const names[2][3] = { { "stdout_bytes", "stdout_sha256", "stdout_hashed" },
						 { "stderr_bytes", "stderr_sha256", "stderr_hashed" } };

	for (int i = 0; i < 2; i++) {
		char hex[65];

		jout_u64(j, names[i][0], x->stream[i].spool.total);
		if (!digest_hex(&x->stream[i].digest, hex))
			continue;
		jout_str(j, names[i][1], hex);
		if (x->stream[i].digest.covers < x->stream[i].spool.total)
			jout_u64(j, names[i][2], x->stream[i].digest.covers);
	}
}

static void audit_end_of(struct exec *x)
{
	struct audit_rec rec = who_rec(&x->who, "exec.end");
	struct service *s = x->sandbox->service;
	struct json *j;

	rec.tenant = x->sandbox->tenant->id;
	rec.sandbox = x->sandbox->id;
	rec.exec = x->id;
	if (x->request->background || x->adopted)
		rec.request_id = NULL; /* exec.start has it, or no caller waits any more */
	j = audit_begin(s->audit, &rec);
	exec_request_write(x->request, sandbox_mask(x->sandbox), j);
	if (x->failed)
		jout_str(j, "error", x->fail.msg);
	else
		put_verdict(&x->verdict, j);
	put_usage(x, j);
	put_digest(j, x);
	for (int i = 0; i < 2 && s->o.audit_output; i++) {
		const struct spool *sp = &x->stream[i].spool;

		/* Only what is there as a whole: half of it would look like all. */
		if (sp->fd < 0 && sp->mem.len == sp->total)
			jout_strn(j, i ? "stderr" : "stdout", buf_str(&sp->mem), sp->mem.len);
	}
	audit_end(s->audit, NULL);
}

void exec_note_end(struct exec *x)
{
	const struct verdict *v = &x->verdict;
	char fields[192];

	audit_end_of(x);
	snprintf(fields, sizeof(fields), "\"exec\":\"%s\",\"exit_code\":%d,\"cause\":\"%s\"%s%s%s", x->id, v->exit_code,
		 verdict_name(v->cause), v->oom_kind[0] ? ",\"oom_kind\":\"" : "", v->oom_kind,
		 v->oom_kind[0] ? "\"" : "");
	event_add(x->sandbox->service, x->sandbox, "exec.ended", fields);
}

/* Of those that have ended, the ones that ended first are forgotten: one that ran for long can still be asked for its result. */
static void forget_old(struct sandbox *b)
{
	struct exec *x = b->over, *next;

	for (; x && b->nover > KEPT_MAX; x = next) {
		next = x->over_next;
		if (!x->draining)
			exec_forget(x);
	}
}

/*
 * Checks whether a process still holds its pipes: a daemon that it started. Then both ends stay open, so that the
 * daemon's next line does not kill it.
 */
void exec_release(struct exec *x)
{
	struct sandbox *b = x->sandbox;

	for (int i = 0; i < 2; i++)
		if (x->stream[i].fd >= 0 && x->stream[i].eof)
			stream_close(&x->stream[i]);
	if (x->stream[0].fd >= 0 || x->stream[1].fd >= 0) {
		x->draining = true;
		stream_arm(&x->stream[0], NULL);
		stream_arm(&x->stream[1], NULL);
		return;
	}
	if (x->draining || x->state == EXEC_ENDED) {
		if (x->draining && x->state == EXEC_ENDED)
			exec_list_over(x);
		x->draining = false;
		if (!x->sandbox_replaced)
			sandbox_put_off(b, x->number, x->group_no);
		x->group_no = 0;
	}
}

void exec_unkeep(struct exec *x)
{
	struct service *s = x->sandbox->service;

	if (!x->kept_prev)
		return;
	*x->kept_prev = x->kept_next;
	if (x->kept_next)
		x->kept_next->kept_prev = x->kept_prev;
	else
		s->kept_last = x->kept_prev;
	s->kept_bytes -= x->kept;
	x->sandbox->tenant->kept -= x->kept;
	x->kept_prev = NULL;
	x->kept = 0;
}

void exec_keep(struct exec *x)
{
	struct service *s = x->sandbox->service;
	struct tenant *t = x->sandbox->tenant;

	x->kept = x->stream[0].spool.mem.len + x->stream[1].spool.mem.len;
	if (!x->kept)
		return;
	x->kept_next = NULL;
	x->kept_prev = s->kept_last;
	*s->kept_last = x;
	s->kept_last = &x->kept_next;
	s->kept_bytes += x->kept;
	t->kept += x->kept;
	while ((s->kept_bytes > KEPT_BYTES || t->kept > KEPT_BYTES / 2) && s->kept != x) {
		struct exec *old = s->kept;

		/* One tenant has at most half, so that it does not take what is kept for others. */
		while (t->kept > KEPT_BYTES / 2 && old != x && old->sandbox->tenant != t)
			old = old->kept_next;
		if (old == x)
			break;
		exec_unkeep(old);
		for (int i = 0; i < 2; i++) /* one whose sandbox went may still be written */
			if (!spool_busy(&old->stream[i].spool))
				spool_drop(&old->stream[i].spool);
	}
}

static void on_stored(void *arg)
{
	struct exec *x = arg;
	struct sandbox *b = x->sandbox;

	x->sink = NULL; /* it got the end; bytes that still come are dropped */
	x->held = false;
	exec_set_state(x, EXEC_ENDED);
	stdin_close(x);
	exec_release(x);
	exec_tell(x);
	exec_keep(x);
	exec_remember(x);
	service_soon(b->service); /* what is kept is not kept for ever */
	forget_old(b);
	if (!x->request->resident)
		sandbox_rest(b);
	exec_unref(x);
}

int exec_store_end(struct exec *x, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(2 * MIB);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	put_verdict(&x->verdict, &j);
	put_usage(x, &j);
	if (x->failed)
		jout_str(&j, "error", x->fail.msg);
	jout_end(&j);
	if (jout_done(&j) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to store a result");
	return x->stored ? execs_finish(x->sandbox->service->db, x->id, b.data, x->ended_ns, e) :
			   exec_store(x, b.data, e);
}

void exec_end(struct exec *x)
{
	const struct tenant_quota one = { .execs = 1 };
	struct sandbox *b = x->sandbox;
	struct err e = { 0 };

	if (x->ended_ns)
		return;
	exec_timer_stop(x);
	x->ended_mono = clock_mono_ns();
	x->ended_ns = wall_now(b->service);
	judge(x);
	if (x->failed) {
		x->verdict.exit_code = x->fail.errnum == ENOENT ? 127 : 126;
		snprintf(x->verdict.detail, sizeof(x->verdict.detail), "%.190s", x->fail.msg);
	}
	tenant_give(b->tenant, &one);
	b->running--;
	b->service->running_execs--;
	/* The row of one whose caller waits is for later lookers only: it comes soon. The audit log has its end at once. */
	if (!x->stored) {
		b->service->fresh++;
		service_soon(b->service);
	} else if (exec_store_end(x, &e) < 0)
		log_warn("exec %s: %s", x->id, e.msg);
	if (!x->lost && b->request->again)
		sandbox_again_drop(b, x->id, x->was);
	exec_set_state(x, EXEC_ENDING);
	exec_trim(x);
	exec_ref(x);
	turn_after(b->service->turn, &x->wait, on_stored, x);
}

static void on_stat(void *arg, int r, const struct err *e)
{
	struct exec *x = arg;

	(void)r;
	(void)e;
	exec_end(x);
	exec_unref(x);
}

void exec_check_end(struct exec *x)
{
	if ((x->state != EXEC_EXITED && x->state != EXEC_JUDGING) || !x->stream[0].drained || !x->stream[1].drained ||
	    stream_busy(&x->stream[0]) || stream_busy(&x->stream[1]))
		return;
	stream_end(&x->stream[0]);
	stream_end(&x->stream[1]);
	if (stream_busy(&x->stream[0]) || stream_busy(&x->stream[1]))
		return; /* and again when that is written */
	if (x->exit.status == 0 && !x->exit.oom_kills && !x->timed_out && !x->cpu_out && !x->killed) {
		exec_end(x);
		return;
	}
	/* Something went wrong: was it a limit? Asked once. */
	if (x->state == EXEC_JUDGING)
		return;
	exec_set_state(x, EXEC_JUDGING);
	exec_ref(x);
	sandbox_stat(x->sandbox, on_stat, x);
}

static void exec_end_all(struct sandbox *b, bool killed)
{
	for (struct exec *x = b->execs; x; x = x->next) {
		if (x->ended_ns)
			continue;
		if (killed)
			x->killed = true;
		else if (!exec_has_exited(x))
			x->lost = true;
		if (!exec_has_exited(x)) {
			x->exit.status = SIGKILL;
			exec_set_state(x, EXEC_EXITED);
		}
		turn_cancel(&x->wait);
		stream_exited(&x->stream[EXEC_OUT]);
		stream_exited(&x->stream[EXEC_ERR]);
		for (int i = 0; i < 2; i++)
			if (!stream_busy(&x->stream[i]))
				stream_end(&x->stream[i]);
		exec_end(x);
	}
}

/* Its agent, if there will be another, knows nothing of them. */
static void leave_all(struct sandbox *b)
{
	exec_end_all(b, true);
	for (struct exec *x = b->execs; x; x = x->next) {
		x->group_no = 0;
		x->sandbox_replaced = true;
	}
}

/* Execs that were hibernated with their sandbox continue. */
static void on_moved(struct sandbox *b, struct sandbox *from)
{
	if (from->request->wake)
		exec_clock(b, false);
}

static void on_lost(struct sandbox *b, enum sandbox_loss how)
{
	switch (how) {
	case LOSS_LOST:
	case LOSS_STOPPED:
		exec_end_all(b, false);
		break;
	case LOSS_DELETED:
	case LOSS_UNDONE:
		exec_end_all(b, true);
		break;
	case LOSS_REPLACED:
		leave_all(b);
		break;
	case LOSS_CLOSED:
	case LOSS_ASLEEP:
	case LOSS_TURNED:
	case LOSS_DESTROYED:
		break;
	}
}

static void drop_all(struct sandbox *b)
{
	struct exec *x;

	while ((x = b->execs)) {
		exec_unlist(x);
		x->draining = false;
		stream_close(&x->stream[EXEC_OUT]);
		stream_close(&x->stream[EXEC_ERR]);
		exec_unref(x);
	}
}

static bool tick(struct service *s, uint64_t now)
{
	exec_drop_rows(s);
	exec_store_running(s);
	if (now - s->pruned_ns > PRUNE_NS) {
		s->pruned_ns = now;
		exec_prune(s, now);
	}
	return s->fresh > 0;
}

/* In the one that took its place others have waited for nothing: they are looked at again. */
static void on_writable(struct sandbox *b, enum sandbox_usr whose, int r, const struct err *e)
{
	exec_system_came(b, whose == USR_OWN ? r : 0, e);
}

const struct sandbox_part exec_part = {
	.name = "exec",
	.unblocked = exec_start_waiting,
	.writable = on_writable,
	.moved = on_moved,
	.tick = tick,
	.lost = on_lost,
	.ended = drop_all,
};
