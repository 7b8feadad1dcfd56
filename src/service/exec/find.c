/* Execs found again after a restart, and old ones forgotten. */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/exec/internal.h"
#include "service/sandbox/part.h"
#include "service/state/json_read.h"
#include "service/secret/give.h"
#include "service/internal.h"
#include "service/state/wall.h"

#include <dirent.h>
#include <unistd.h>

#define NUMBERS_APART 4096U

static char **copy_args(const json_t *cmd, uint32_t *ret_n)
{
	size_t n = json_array_size(cmd);
	char **argv = calloc(n + 1, sizeof(char *));

	for (size_t i = 0; argv && i < n; i++) {
		const char *text = json_string_value(json_array_get(cmd, i));

		argv[i] = strdup(text ? text : "");
		if (!argv[i])
			break;
		*ret_n = (uint32_t)i + 1;
	}
	return argv;
}

static struct exec_request *load_request(const struct sandbox *b, const json_t *spec)
{
	struct exec_request *w = calloc(1, sizeof(*w));
	const char *user = json_string_value(json_object_get(spec, "user")), *way;

	if (!w)
		return NULL;
	w->argv = copy_args(json_object_get(spec, "cmd"), &w->argc);
	w->cmd_bytes = (size_t)json_integer_value(json_object_get(spec, "cmd_bytes"));
	w->user = b->request->user;
	if (user)
		user_parse(user, &w->user, NULL);
	way = json_string_value(json_object_get(spec, "way"));
	w->way = !way ? EXEC_PROGRAM : !strcmp(way, "code") ? EXEC_CODE : EXEC_WARM;
	w->resident = json_is_true(json_object_get(spec, "standing"));
	w->background = json_is_true(json_object_get(spec, "background"));
	w->tty = json_is_true(json_object_get(spec, "tty"));
	w->timeout_ms = (uint64_t)json_integer_value(json_object_get(spec, "timeout_ms"));
	w->output_limit = b->request->output_limit;
	if (json_is_object(json_object_get(spec, "context")))
		w->context = json_dumps(json_object_get(spec, "context"), JSON_COMPACT);
	return w;
}

static enum verdict_cause cause_of(const char *name)
{
	for (int c = VERDICT_EXITED; c <= VERDICT_LOST; c++)
		if (name && !strcmp(verdict_name((enum verdict_cause)c), name))
			return (enum verdict_cause)c;
	return VERDICT_LOST;
}

static void load_result(struct exec *x, const json_t *o)
{
	const json_t *v = json_object_get(o, "verdict"), *u = json_object_get(o, "usage");
	const char *detail = json_string_value(json_object_get(v, "detail")),
		   *kind = json_string_value(json_object_get(v, "oom_kind"));
	const char *warning = json_string_value(json_object_get(v, "warning"));

	x->verdict.exit_code = (int)json_integer_value(json_object_get(o, "exit_code"));
	x->verdict.signal = (int)json_integer_value(json_object_get(o, "signal"));
	x->verdict.cause = cause_of(json_string_value(json_object_get(v, "cause")));
	snprintf(x->verdict.detail, sizeof(x->verdict.detail), "%s", detail ? detail : "");
	snprintf(x->verdict.oom_kind, sizeof(x->verdict.oom_kind), "%s", kind ? kind : "");
	x->verdict.oom_kills = (uint64_t)json_integer_value(json_object_get(v, "oom_kills"));
	snprintf(x->verdict.warning, sizeof(x->verdict.warning), "%s", warning ? warning : "");
	x->verdict.has_limit = json_is_integer(json_object_get(v, "limit"));
	x->verdict.limit = (uint64_t)json_integer_value(json_object_get(v, "limit"));
	x->verdict.peak = (uint64_t)json_integer_value(json_object_get(v, "peak"));
	x->exit.cpu_usec = (uint64_t)json_integer_value(json_object_get(u, "cpu_ms")) * 1000;
	x->memory_peak = (uint64_t)json_integer_value(json_object_get(u, "memory_peak"));
	x->failed = json_object_get(o, "error") != NULL;
}

int exec_load(struct sandbox *b, const struct exec_row *row, struct err *e)
{
	AUTO(json_decref) json_t *spec = NULL;
	AUTO(json_decref) json_t *result = NULL;
	const char *was;
	struct exec *x;
	int r = json_read_begin(row->spec, strlen(row->spec), &spec, e);

	if (r == 0 && row->result)
		r = json_read_begin(row->result, strlen(row->result), &result, e);
	if (r < 0)
		return r;
	x = exec_alloc(b, row->id, row->number, e);
	if (!x)
		return -ENOMEM;
	x->request = load_request(b, spec);
	if (!x->request) {
		exec_unref(x);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an exec");
	}
	exec_request_trim(x->request, sandbox_mask(b)); /* a row of an earlier version has all of it */
	was = json_string_value(json_object_get(spec, "was"));
	snprintf(x->was, sizeof(x->was), "%s", was ? was : "");
	x->started_ns = row->started_ns;
	x->stored = true;
	x->stream[EXEC_OUT].digest.bad = x->stream[EXEC_ERR].digest.bad = true;
	x->ended_ns = row->ended_ns;
	x->group_no = row->group;
	x->who = (struct who){ .tenant = b->tenant };
	spool_reopen(&x->stream[EXEC_OUT].spool);
	spool_reopen(&x->stream[EXEC_ERR].spool);
	/* Those that had no row yet when we died have numbers close above; the agent may still hold them. */
	if (b->next_exec <= row->number + NUMBERS_APART)
		b->next_exec = row->number + NUMBERS_APART;
	exec_list(x);
	if (row->result) {
		exec_load_state(x, EXEC_ENDED);
		load_result(x, result);
		exec_remember(x);
		return 0;
	}
	exec_load_state(x, EXEC_FOUND);
	x->adopted = true;
	b->running++;
	b->service->running_execs++;
	tenant_force(b->tenant, &(struct tenant_quota){ .execs = 1 });
	if (!x->request->resident)
		sandbox_use(b);
	if (x->request->timeout_ms) {
		/* Its time is stopped while it is paused. */
		uint64_t until = b->state == SANDBOX_PAUSED || b->state == SANDBOX_HIBERNATED ? b->paused_ns :
												wall_now(b->service);
		uint64_t gone = until > x->started_ns ? until - x->started_ns : 0,
			 all = x->request->timeout_ms * 1000000ULL;

		x->left_ns = gone < all ? all - gone : 1;
		x->deadline_ns = clock_mono_ns() + x->left_ns;
	}
	sandbox_parts_found(b, x);
	return 0;
}

/* Reads the pipes that its remaining processes hold, so that those do not block, and closes them at their end. */
void exec_drain(struct exec *x, uint32_t flags, int *fds, size_t nfds)
{
	struct err e = { 0 };

	x->draining = true;
	for (size_t i = 0; i < (flags & FRAME_HELD_TTY ? 1U : 2U) && i < nfds; i++)
		if (stream_open(&x->stream[i], fds[i], false, &e) == 0)
			fds[i] = -1;
	if (!(flags & FRAME_HELD_ENDED) && !x->group_no)
		log_warn("exec %s is still running although it was abandoned", x->id);
	stream_pump(&x->stream[EXEC_OUT]);
	if (x->draining)
		stream_pump(&x->stream[EXEC_ERR]);
}

void exec_expect(struct sandbox *b)
{
	b->synced = false;
	b->nheld = 0;
	for (struct exec *x = b->execs; x; x = x->next)
		x->seen_in_sync = false;
}

void exec_sync(struct sandbox *b)
{
	exec_expect(b);
	agent_link_send(&b->link, FRAME_SYNC, 0, NULL, 0, NULL, 0);
}

/* The agent has listed all execs. Others never reached it, or have ended and were released. */
bool exec_synced(struct sandbox *b)
{
	b->synced = true;
	if (b->hands_off)
		return false;
	if (b->ask_again) {
		b->ask_again = false;
		exec_sync(b);
		return false;
	}
	b->let_go = b->missed = false;
	for (struct exec *x = b->execs; x; x = x->next) {
		if ((x->state != EXEC_FOUND && x->state != EXEC_STARTED) || x->seen_in_sync || x->revived)
			continue;
		x->lost = true;
		exec_set_state(x, EXEC_EXITED);
		exec_end(x);
	}
	exec_start_waiting(b);
	return true;
}

void exec_prune(struct service *s, uint64_t now_ns)
{
	uint64_t keep = s->o.spool_time_ms * 1000000ULL;
	struct exec *x;
	size_t at = 0;

	while ((x = map_next(&s->execs, &at))) {
		if (!exec_over(x) || x->draining || x->ended_ns + keep > now_ns)
			continue;
		exec_unkeep(x);
		for (int i = 0; i < 2; i++)
			if (!spool_busy(&x->stream[i].spool))
				spool_drop(&x->stream[i].spool);
	}
}

/* Removes spools of execs that were deleted, or forgotten, when the last API process died. */
void spool_sweep(struct service *s)
{
	AUTO(buf_done) struct buf path = BUF_INIT(4096);
	struct dirent *x;
	DIR *d;

	buf_addf(&path, "%s/spool", s->o.data);
	d = opendir(buf_str(&path));
	while (d && (x = readdir(d))) {
		size_t n = strcspn(x->d_name, ".");
		char id[ID_SIZE];

		if (!n || n >= sizeof(id))
			continue;
		memcpy(id, x->d_name, n);
		id[n] = '\0';
		if (!map_get(&s->execs, id))
			unlinkat(dirfd(d), x->d_name, 0);
	}
	if (d)
		closedir(d);
}
