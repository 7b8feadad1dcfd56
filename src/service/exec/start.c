/* How an exec begins: its row, its group, its pipes, its frame. */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/spec.h"
#include "proto/exec.h"
#include "service/network/network.h"
#include "service/sandbox/system.h"
#include "service/state/event.h"
#include "service/sandbox/disk.h"
#include "service/sandbox/internal.h"
#include "service/exec/internal.h"
#include "service/secret/give.h"
#include "service/internal.h"
#include "service/state/wall.h"
#include "service/link/warden_link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define WATCH_MS 4
#define WATCH_QUIET 8 /* so many times */
#define FEW_UNSTORED 64
#define UNSTORED_NS 2000000000ULL
#define RUNNING_MAX 256U /* in one sandbox */

static bool same_name(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");

	return !strncmp(a, b, n + 1);
}

static void env_put(const char **env, uint32_t *n, const char *item)
{
	for (uint32_t i = 0; i < *n; i++)
		if (same_name(env[i], item)) {
			env[i] = item;
			return;
		}
	env[(*n)++] = item;
}

/* Base, the sandbox's, its secrets (@nsecret texts), the exec's own: of a name that comes twice the last counts. */
static const char **make_env(const struct exec *x, const char *secret, unsigned nsecret, uint32_t *ret_n)
{
	const struct kv *more[] = { &x->sandbox->request->env, &x->request->env };
	const char **env = calloc(8 + more[0]->n + nsecret + more[1]->n, sizeof(*env));
	bool root = x->request->user.uid == 0;
	uint32_t n = 0;

	if (!env)
		return NULL;
	env_put(env, &n, strcmp(x->sandbox->request->spec->image, "host") ? SPEC_PATH_DEFAULT : SPEC_PATH_HOST);
	/* Of one by name the agent knows them. */
	if (!x->request->user.named) {
		env_put(env, &n, root ? "HOME=/root" : "HOME=/home/user");
		if (!x->request->plain_env)
			env_put(env, &n, root ? "USER=root" : "USER=user");
	}
	if (!x->request->plain_env)
		env_put(env, &n, "LANG=C.UTF-8");
	if (x->request->tty)
		env_put(env, &n, "TERM=xterm-256color");
	for (size_t k = 0; k < ARRAY_LEN(more); k++) {
		for (uint32_t i = 0; i < more[k]->n; i++)
			env_put(env, &n, more[k]->item[i]);
		for (unsigned i = 0; k == 0 && i < nsecret; i++, secret += strlen(secret) + 1)
			env_put(env, &n, secret);
	}
	*ret_n = n;
	return env;
}

struct ends { /* child's and host's */
	int in, out, err, host_in, host_out, host_err;
};

static void ends_close(struct ends *p)
{
	int *all[] = { &p->in, &p->out, &p->err, &p->host_in, &p->host_out, &p->host_err };

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		fd_close(*all[i]);
		*all[i] = -1;
	}
}

/* A sealed file: the command reads it at its own pace, and the daemon need not feed it. */
static int stdin_file(const struct exec_request *w)
{
	AUTO_CLOSE int fd = memfd_create("stdin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, w->stdin_data, w->stdin_len);
	if (r == 0 && (lseek(fd, 0, SEEK_SET) < 0 ||
		       fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0))
		r = -errno;
	return r < 0 ? r : TAKE_FD(fd);
}

/* A process inside that has the descriptor may open it again by name, /dev/stderr: our owner has no meaning there. */
static int open_pipe(int *ret_read, int *ret_write)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	fchmod(p[0], 0666);
	*ret_read = p[0];
	*ret_write = p[1];
	return 0;
}

static int take_stdin(struct exec_request *w)
{
	w->stdin_given = false;
	return w->stdin_fd;
}

static int open_ends(const struct exec *x, struct ends *p)
{
	struct exec_request *w = x->request;
	int r;

	*p = (struct ends){ -1, -1, -1, -1, -1, -1 };
	if (w->tty)
		return 0;
	if (w->stdin_open)
		r = open_pipe(&p->in, &p->host_in);
	else if (w->stdin_given)
		r = p->in = take_stdin(w);
	else if (w->stdin_data)
		r = p->in = stdin_file(w);
	else
		r = p->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (r >= 0)
		r = open_pipe(&p->host_out, &p->out);
	if (r >= 0)
		r = open_pipe(&p->host_err, &p->err);
	if (r < 0)
		ends_close(p);
	return r < 0 ? r : 0;
}

static int encode(const struct exec *x, uint32_t flags, uint8_t **ret, size_t *ret_len, struct err *e)
{
	const struct exec_request *w = x->request;
	AUTO_FREE const char **env = NULL;
	AUTO_FREE uint8_t *out = NULL;
	AUTO(vault_wipe) struct buf secret = BUF_INIT(SECRETS_ENV_MAX);
	struct exec_spec spec = {
		.argv = (const char *const *)w->argv, .argc = w->argc, .code = w->way == EXEC_CODE, .filter = -1
	};
	struct frame_exec f = {
		.flags = flags,
		.uid = w->user.uid,
		.gid = w->user.gid,
		.rows = w->rows,
		.cols = w->cols,
		.nofile = w->nofile,
		.cpu_seconds = (w->cpu_ms + 999) / 1000,
		.cwd = w->cwd ? w->cwd : x->sandbox->request->spec->workdir,
		.user = w->user.text,
		.argc = w->argc,
		.argv = (const char *const *)w->argv,
	};
	size_t size = 512 + strlen(f.cwd);
	long len;
	int r = x->sandbox->secrets ? secrets_env(x->sandbox, &secret, e) : 0;

	if (r < 0)
		return r;
	env = make_env(x, buf_str(&secret), (unsigned)r, &f.envc);
	if (!env)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a command");
	spec.envp = f.envp = env;
	spec.envc = f.envc;
	r = exec_check(&spec, e);
	if (r < 0)
		return r;
	size += exec_bytes(&spec);
	out = malloc(size);
	len = out ? frame_exec_encode(&f, out, size) : -ENOMEM;
	if (len < 0)
		return err_set(e, len == -ENOMEM ? WHY_NO_RESOURCES : WHY_ARGUMENT_TOO_LONG, (int)len,
			       "the command does not fit into a frame");
	*ret = TAKE_PTR(out);
	*ret_len = (size_t)len;
	return 0;
}

static int send_exec(struct exec *x, struct ends *p, struct err *e)
{
	const struct exec_request *w = x->request;
	uint32_t flags = FRAME_EXEC_KEEP | FRAME_EXEC_GROUP | (w->tty ? FRAME_EXEC_TTY : 0) |
			 (w->stdin_open ? FRAME_EXEC_STDIN : 0) | (w->way == EXEC_CODE ? FRAME_EXEC_WARM : 0) |
			 (w->way == EXEC_WARM ? FRAME_EXEC_WARM_HOST : 0) | (w->user.named ? FRAME_EXEC_USER : 0) |
			 (w->merge && !w->tty ? FRAME_EXEC_MERGE : 0);
	struct frame_exec_fds at = frame_exec_fds(flags);
	AUTO_FREE uint8_t *payload = NULL;
	int fds[FRAME_FDS_MAX], r;
	size_t len = 0;

	r = encode(x, flags, &payload, &len, e);
	if (r < 0)
		return r;
	if (at.stdio >= 0) {
		fds[at.stdio] = p->in;
		fds[at.stdio + 1] = p->out;
		fds[at.stdio + 2] = p->err;
	}
	fds[at.group] = w->way == EXEC_CODE ? x->sandbox->group_code : x->sandbox->group;
	if (at.out >= 0)
		fds[at.out] = p->host_out;
	if (at.err >= 0)
		fds[at.err] = p->host_err;
	if (at.in >= 0)
		fds[at.in] = p->host_in;
	r = agent_link_send(&x->sandbox->link, FRAME_EXEC, x->number, payload, len, fds, at.n);
	return r < 0 ? err_sys(e, WHY_SANDBOX_LOST, r, "send the command to the agent") : 0;
}

/* It did not even start. */
void exec_fail(struct exec *x, int r, const struct err *e)
{
	x->failed = true;
	x->fail = *e;
	if (!x->fail.errnum)
		x->fail.errnum = -r;
	if (!exec_has_exited(x))
		exec_set_state(x, EXEC_EXITED);
	exec_end(x);
}

static void watch_later(struct exec *x);

static void on_watch_due(uv_timer_t *t)
{
	struct service *s = t->data;
	struct exec *x = s->unwatched, *next;

	s->unwatched = NULL;
	for (; x; x = next) {
		next = x->unwatched_next;
		if (!exec_has_exited(x) && ++x->quiet < WATCH_QUIET && stream_quiet(&x->stream[EXEC_OUT]) &&
		    stream_quiet(&x->stream[EXEC_ERR])) {
			watch_later(x);
		} else {
			for (int i = 0; i < 2 && !exec_has_exited(x); i++)
				if (stream_arm(&x->stream[i], NULL) < 0)
					exec_kill_tree(x); /* it would hang for ever on a full pipe */
		}
		exec_unref(x);
	}
}

/* In a moment, if it still runs. */
static void watch_later(struct exec *x)
{
	struct service *s = x->sandbox->service;

	if (!s->unwatched)
		uv_timer_start(&s->watch, on_watch_due, WATCH_MS, 0);
	x->unwatched_next = s->unwatched;
	s->unwatched = x;
	exec_ref(x);
}

static void start(struct exec *x)
{
	struct err e = { 0 };
	struct ends p;
	int r = open_ends(x, &p);
	bool sent, later = !x->sink && !x->request->background;
	uint64_t began;

	if (r < 0) {
		exec_fail(x, err_sys(&e, ERR_EXHAUSTED, r, "make pipes"), &e);
		return;
	}
	began = clock_mono_ns(); /* from here on it may run, and even be over before we do again */
	r = send_exec(x, &p, &e);
	sent = r == 0;
	x->group_no = x->sandbox->group_no;
	/* Stored, so that it can be ended as a whole after a restart. */
	if (x->stored) {
		execs_group(x->sandbox->service->db, x->id, x->group_no, NULL);
		turn_dirty(x->sandbox->service->turn);
	}
	sandbox_drop_group(x->sandbox);
	if (r == 0 && !x->request->tty) {
		r = stream_open(&x->stream[EXEC_OUT], p.host_out, later, &e);
		p.host_out = r == 0 ? -1 : p.host_out;
	}
	if (r == 0 && !x->request->tty) {
		r = stream_open(&x->stream[EXEC_ERR], p.host_err, later, &e);
		p.host_err = r == 0 ? -1 : p.host_err;
	}
	if (r == 0 && p.host_in >= 0)
		stdin_open(x, TAKE_FD(p.host_in));
	ends_close(&p);
	if (r < 0) {
		if (sent) /* it must not run without being known here */
			exec_kill_tree(x);
		exec_fail(x, r, &e);
		return;
	}
	exec_set_state(x, EXEC_STARTED);
	x->started_mono = began;
	x->deadline_ns = x->request->timeout_ms ? x->started_mono + x->request->timeout_ms * 1000000ULL : 0;
	x->net_base = sandbox_net_bytes(x->sandbox);
	x->oom_base = x->sandbox->stat.group.oom_kills;
	x->kernel_base = x->sandbox->stat.kernel.kills;
	x->pids_base = x->sandbox->stat.group.pids_refused;
	if (x->request->cpu_ms)
		exec_look_at_cpu(x); /* from here on it counts */
	exec_arm(x);
	if (later)
		watch_later(x);
	if (x->request->background) /* the audit log has all of it */
		exec_trim(x);
	exec_signal_early(x);
	exec_tell(x);
}

/* Those that wait for a group, oldest first. */
static struct exec *next_waiting(struct sandbox *b)
{
	struct exec *found = NULL;
	unsigned left = b->waiting;

	for (struct exec *x = b->execs; x && left; x = x->next) {
		left -= x->waits;
		if (x->waits && !x->wait.prev)
			found = x;
	}
	return found;
}

/*
 * Whether the group at hand can be joined by @x. A fork of the warm process joins as the user that it runs as; for another
 * user than the last there has to be another descriptor, and the group at hand is ended.
 */
static bool group_fits(struct exec *x)
{
	struct sandbox *b = x->sandbox;

	if (b->group < 0 || x->request->way != EXEC_CODE)
		return b->group >= 0;
	if (b->group_code >= 0 && b->group_uid == x->request->user.uid + 1)
		return true;
	b->group_uid = x->request->user.uid + 1;
	warden_link_call(b->service->warden, WARDEN_GROUP_END, b->handle, b->group_no, NULL, NULL, NULL);
	sandbox_drop_group(b);
	return false;
}

static bool may_start(struct exec *x)
{
	struct sandbox *b = x->sandbox;

	if (!b->synced)
		return false; /* the agent may have execs that are not known yet: not before it has listed them */
	if (!sandbox_net_ready(b))
		return false; /* what it would ask the network for first would fail */
	return sandbox_system_ready(b, &x->request->user);
}

void exec_group_came(struct sandbox *b, int r, const struct err *e)
{
	struct exec *x = next_waiting(b);
	struct err why = { 0 };

	if (!x || (r == 0 && !may_start(x)))
		return;
	if (r < 0) {
		/* Without a group it could not be ended as a whole: not weaker than asked. */
		err_set(&why, ERR_EXHAUSTED, r, "cannot make a control group for the command: %.180s",
			e ? e->msg : "the warden has ended");
		exec_fail(x, r, &why);
	} else if (group_fits(x)) {
		start(x);
	}
	if (next_waiting(b))
		sandbox_ask_for_group(b);
}

/* Its row is stored. */
static void on_stored(void *arg)
{
	struct exec *x = arg;
	struct err e = { 0 };

	if (x->sandbox->state != SANDBOX_RUNNING) {
		exec_fail(x, err_set(&e, WHY_SANDBOX_LOST, -ESRCH, "the sandbox has ended"), &e);
		return;
	}
	if (!may_start(x))
		return;
	if (group_fits(x))
		start(x);
	else
		sandbox_ask_for_group(x->sandbox);
}

void exec_start_waiting(struct sandbox *b)
{
	struct exec *x = next_waiting(b);

	if (!x || !may_start(x))
		return;
	if (group_fits(x))
		start(x);
	if (next_waiting(b))
		sandbox_ask_for_group(b);
}

void exec_system_came(struct sandbox *b, int r, const struct err *e)
{
	struct err why = { 0 };
	struct exec *x;

	/* Not in a sandbox that is less than was promised. */
	while (r < 0 && (x = next_waiting(b)) && user_is_system(&x->request->user)) {
		err_set(&why, e ? err_what(e) : WHY_SERVICE_LOST, r, "/usr cannot be made writable: %.180s",
			e ? e->msg : "the warden has ended");
		exec_fail(x, r, &why);
	}
	exec_start_waiting(b);
}

int exec_store(struct exec *x, const char *result, struct err *e)
{
	AUTO(buf_done) struct buf spec = BUF_INIT(2 * MIB);
	struct json j = JSON_INIT(&spec);
	struct exec_row row = {
		.id = x->id,
		.sandbox = x->sandbox->id,
		.number = x->number,
		.group = x->group_no,
		.started_ns = x->started_ns,
		.result = result,
		.ended_ns = x->ended_ns,
	};
	int r;

	jout_object(&j, NULL);
	exec_request_write_kept(x->request, sandbox_mask(x->sandbox), &j);
	if (x->was[0])
		jout_str(&j, "was", x->was);
	jout_end(&j);
	if (jout_done(&j) < 0)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "the command is too large to be stored");
	row.spec = spec.data;
	r = execs_insert(x->sandbox->service->db, &row, e);
	x->stored = r == 0;
	if (x->stored && x->row_pending) {
		x->row_pending = false;
		x->sandbox->unstored--;
	}
	return r;
}

/*
 * Of many that have ended in a short time most are forgotten soon, for newer ones: only what remains after a while gets a
 * row.
 */
static bool may_store(const struct exec *x, uint64_t now)
{
	return !x->ended_mono || x->sandbox->unstored <= FEW_UNSTORED || now - x->ended_mono > UNSTORED_NS;
}

/*
 * Most execs are over in a moment, and their caller waits: nothing of them needs to be found again before their end.
 * Those that take longer get their row here, a moment later.
 */
void exec_store_running(struct service *s)
{
	const uint64_t now = clock_mono_ns();
	size_t at = 0;
	struct sandbox *b;

	if (!s->fresh)
		return;
	s->fresh = 0;
	while ((b = map_next(&s->sandboxes, &at))) {
		sandbox_flush(b);
		for (struct exec *x = b->execs; x && b->unstored; x = x->next) {
			if (x->stored)
				continue;
			if (x->state == EXEC_WAITING || !may_store(x, now))
				s->fresh++; /* it still waits for its start, or may be forgotten: next time */
			else if ((x->ended_ns ? exec_store_end(x, NULL) : exec_store(x, NULL, NULL)) == 0)
				turn_dirty(s->turn);
		}
	}
}

int exec_new(struct sandbox *b, const struct who *who, struct exec_request *request, struct exec_sink *sink,
	     struct exec **ret, struct err *e)
{
	const struct tenant_quota one = { .execs = 1 };
	AUTO(exec_request_free) struct exec_request *mine = request;
	struct exec *x;
	int r = b->state == SANDBOX_LOST ? sandbox_lost(b, e) : 0;

	if (b->opened && r == 0)
		r = err_set(e, WHY_SANDBOX_STOPPED, -EBUSY, "sandbox '%s' is stopped", b->request->name);
	if (r == 0)
		r = sandbox_ready(b, e);
	if (r == 0 && request->again)
		r = sandbox_again_check(b, request->again, e);
	if (r < 0)
		return r;
	if (b->service->draining)
		return err_set(e, WHY_STOPPING, -ESHUTDOWN, "the daemon is stopping");
	r = service_room(b->service, e);
	if (r < 0)
		return r;
	if (b->running >= RUNNING_MAX)
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "exec limit reached (%u per sandbox)", b->running);
	r = tenant_take(b->tenant, &one, e);
	if (r < 0)
		return r;
	x = exec_alloc(b, NULL, b->next_exec, e);
	r = x ? 0 : -ENOMEM;
	if (r == 0) {
		x->request = TAKE_PTR(mine);
		x->who = *who;
		x->sink = sink;
		x->started_ns = wall_now(b->service);
		r = exec_charge(x, e);
	}
	if (r == 0) {
		/* A client that gets its id before its end must be able to find it again. */
		r = x->request->background || sink ? exec_store(x, NULL, e) : 0;
		if (r == 0 && x->request->again)
			r = sandbox_again_add(b, x->id, TAKE_PTR(x->request->again), e);
		if (r == 0 && x->request->idem[0])
			r = idem_note(b->service, b->tenant, x->request->idem, x->request->idem_body, x->id, e);
	}
	if (r < 0) {
		if (x && x->stored)
			execs_delete(b->service->db, x->id, NULL);
		if (x)
			exec_unref(x);
		tenant_give(b->tenant, &one);
		return r;
	}
	b->next_exec++;
	exec_list(x);
	b->running++;
	b->service->running_execs++;
	if (!x->request->resident)
		sandbox_use(b);
	exec_note_begin(x);
	if (!x->stored) {
		x->row_pending = true;
		b->unstored++;
		b->service->fresh++;
		service_soon(b->service);
	}
	exec_ref(x); /* the caller's */
	if (x->stored)
		turn_after(b->service->turn, &x->wait, on_stored, x);
	else
		on_stored(x);
	*ret = x;
	return 0;
}
