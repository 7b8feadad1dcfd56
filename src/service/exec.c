#include "service/exec.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "driver/exec.h"
#include "driver/link.h"
#include "service/event.h"
#include "service/exec_impl.h"
#include "service/wlink.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define RUNNING_MAX 256U /* in one sandbox */
#define CPU_STEP_MS 100
#define KILL_WAIT_MS 10000

/* --- lifetime --- */

struct exec *exec_alloc(struct box *b, const char *id, uint32_t number, struct err *e)
{
	struct exec *x = calloc(1, sizeof(*x));
	int r = 0;

	if (!x) {
		err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an exec");
		return NULL;
	}
	x->box = b;
	x->number = number;
	x->in = -1;
	x->refs = 1;
	x->in_queue = (struct buf)BUF_INIT(MIB + 64 * KIB);
	if (id)
		snprintf(x->id, sizeof(x->id), "%s", id);
	else
		r = id_new(x->id, sizeof(x->id));
	if (r < 0) {
		free(x);
		err_sys(e, ERR_INTERNAL, r, "make an id");
		return NULL;
	}
	box_ref(b);
	stream_init(x, EXEC_OUT);
	stream_init(x, EXEC_ERR);
	return x;
}

void exec_list(struct exec *x)
{
	x->next = x->box->execs;
	x->box->execs = x;
	x->box->nexecs++;
	if (map_put(&x->box->service->execs, x->id, x) < 0)
		log_warn("no memory to find exec %s by its id", x->id);
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
			x->silent = true;
			return;
		}
	turn_cancel(&x->wait);
	exec_unkeep(x);
	exec_timer_stop(x);
	for (int i = 0; i < 2; i++) {
		stream_close(&x->stream[i]);
		spool_drop(&x->stream[i].spool);
		digest_done(&x->stream[i].digest);
	}
	stdin_close(x);
	buf_done(&x->in_queue);
	exec_want_free(x->want);
	box_unref(x->box);
	free(x);
}

struct exec *exec_find(struct box *b, const char *id, struct err *e)
{
	struct exec *x = map_get(&b->service->execs, id);

	if (!x || x->box != b) {
		err_set(e, ERR_NOT_FOUND, -ENOENT, "no exec '%.64s' in this sandbox", id);
		return NULL;
	}
	return x;
}

/* --- who watches --- */

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

	/* Each is moved back before it is called, so that whoever is removed meanwhile is not met again. */
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
	return x->state != EXEC_WAITING && (!x->want || !x->want->tty || x->stream[0].fd >= 0 || x->state == EXEC_ENDED);
}

/* --- time --- */

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

void exec_timer(struct exec *x, uint64_t ms, void (*fn)(uv_timer_t *t))
{
	if (!x->timer) {
		x->timer = malloc(sizeof(*x->timer));
		if (!x->timer)
			abort(); /* without it a limit would not be kept */
		uv_timer_init(x->box->service->loop, x->timer);
		x->timer->data = x;
	}
	uv_timer_start(x->timer, fn, ms, 0);
}

/* It was killed and does not end: a process that the kernel can not let go of. */
static void on_kill_overdue(uv_timer_t *t)
{
	struct exec *x = t->data;

	log_warn("exec %s does not end although it was killed", x->id);
	x->exited = true;
	x->exit.status = SIGKILL;
	stream_exited(&x->stream[0]);
	stream_exited(&x->stream[1]);
	exec_check_end(x);
}

/* The second best: found again, and we died before its group was noted. */
static void exec_kill_number(struct box *b, uint32_t number)
{
	const uint32_t payload[2] = { SIGKILL, FRAME_SCOPE_GROUP };

	alink_send(&b->link, FRAME_SIGNAL, number, payload, sizeof(payload), NULL, 0);
}

void exec_kill_tree(struct exec *x)
{
	struct box *b = x->box;

	if (x->exited || !b->handle)
		return;
	if (x->group_no)
		wlink_call(b->service->warden, WARDEN_GROUP_KILL, b->handle, x->group_no, NULL, NULL, NULL);
	else
		exec_kill_number(b, x->number);
	exec_timer(x, KILL_WAIT_MS, on_kill_overdue);
}

static void on_time(uv_timer_t *t);

static void on_cpu(void *arg, int r, const struct err *e)
{
	struct exec *x = arg;
	uint64_t used = x->box->stat.group.cpu_usec;

	(void)e;
	if (r == 0 && !x->cpu_base)
		x->cpu_base = used + 1;
	if (r == 0 && !x->exited && x->want->cpu_ms && used + 1 - x->cpu_base > x->want->cpu_ms * 1000) {
		x->cpu_out = true;
		exec_kill_tree(x);
	}
	exec_unref(x);
}

/* For the next thing that can happen: its time is over, or its CPU time is to be looked at. */
void exec_arm(struct exec *x)
{
	uint64_t now = clock_mono_ns(), ms = 0;

	if (x->exited || x->timed_out || x->cpu_out || x->killed)
		return;
	if (x->deadline_ns)
		ms = x->deadline_ns > now ? (x->deadline_ns - now + 999999) / 1000000 : 1;
	if (x->want->cpu_ms && (!ms || ms > CPU_STEP_MS))
		ms = CPU_STEP_MS;
	if (ms)
		exec_timer(x, ms, on_time);
}

static void on_time(uv_timer_t *t)
{
	struct exec *x = t->data;

	if (x->exited)
		return;
	if (x->deadline_ns && clock_mono_ns() >= x->deadline_ns) {
		x->timed_out = true;
		exec_kill_tree(x);
		return;
	}
	if (x->want->cpu_ms) {
		exec_ref(x);
		box_stat(x->box, on_cpu, x);
	}
	exec_arm(x);
}

void exec_clock(struct box *b, bool stop)
{
	uint64_t now = clock_mono_ns();

	for (struct exec *x = b->execs; x; x = x->next) {
		if (x->exited || (x->state != EXEC_STARTED && !x->adopted))
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

/* --- start --- */

static const char base_path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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

/* Base, the sandbox's, the exec's own: of a name that comes twice the last counts. */
static const char **make_env(const struct exec *x, uint32_t *ret_n)
{
	const struct kv *more[] = { &x->box->want->env, &x->want->env };
	const char **env = calloc(8 + more[0]->n + more[1]->n, sizeof(*env));
	bool root = x->want->user.uid == 0;
	uint32_t n = 0;

	if (!env)
		return NULL;
	env_put(env, &n, base_path);
	env_put(env, &n, root ? "HOME=/root" : "HOME=/home/user");
	env_put(env, &n, root ? "USER=root" : "USER=user");
	env_put(env, &n, "LANG=C.UTF-8");
	if (x->want->tty)
		env_put(env, &n, "TERM=xterm-256color");
	for (size_t k = 0; k < ARRAY_LEN(more); k++)
		for (uint32_t i = 0; i < more[k]->n; i++)
			env_put(env, &n, more[k]->item[i]);
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

/* A file nobody can write any more: the command reads it at its own pace, and we need not feed it. */
static int stdin_file(const struct exec_want *w)
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

static int open_pipe(int *ret_read, int *ret_write)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	*ret_read = p[0];
	*ret_write = p[1];
	return 0;
}

static int open_ends(const struct exec *x, struct ends *p)
{
	const struct exec_want *w = x->want;
	int r;

	*p = (struct ends){ -1, -1, -1, -1, -1, -1 };
	if (w->tty)
		return 0;
	if (w->stdin_open)
		r = open_pipe(&p->in, &p->host_in);
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
	const struct exec_want *w = x->want;
	AUTO_FREE const char **env = NULL;
	AUTO_FREE uint8_t *out = NULL;
	struct exec_spec spec = { .argv = (const char *const *)w->argv, .argc = w->argc, .filter = -1 };
	struct frame_exec f = {
		.flags = flags,
		.uid = w->user.uid,
		.gid = w->user.gid,
		.rows = w->rows,
		.cols = w->cols,
		.nofile = w->nofile,
		.cpu_seconds = (w->cpu_ms + 999) / 1000,
		.cwd = w->cwd ? w->cwd : x->box->want->spec->workdir,
		.argc = w->argc,
		.argv = (const char *const *)w->argv,
	};
	size_t size = 512 + strlen(f.cwd) + 8ULL * (w->argc + ENV_MAX * 2);
	long len;
	int r;

	env = make_env(x, &f.envc);
	if (!env)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a command");
	spec.envp = f.envp = env;
	spec.envc = f.envc;
	r = exec_check(&spec, e);
	if (r < 0)
		return r;
	size += EXEC_BYTES_MAX;
	out = malloc(size);
	len = out ? frame_exec_encode(&f, out, size) : -ENOMEM;
	if (len < 0)
		return err_set(e, len == -ENOMEM ? ERR_EXHAUSTED : ERR_TOO_LARGE, (int)len, "the command does not fit into a frame");
	*ret = TAKE_PTR(out);
	*ret_len = (size_t)len;
	return 0;
}

static int send_exec(struct exec *x, struct ends *p, struct err *e)
{
	const struct exec_want *w = x->want;
	uint32_t flags = FRAME_EXEC_KEEP | FRAME_EXEC_GROUP | (w->tty ? FRAME_EXEC_TTY : 0) | (w->stdin_open ? FRAME_EXEC_STDIN : 0);
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
	fds[at.group] = x->box->group;
	if (at.out >= 0)
		fds[at.out] = p->host_out;
	if (at.err >= 0)
		fds[at.err] = p->host_err;
	if (at.in >= 0)
		fds[at.in] = p->host_in;
	r = alink_send(&x->box->link, FRAME_EXEC, x->number, payload, len, fds, at.n);
	return r < 0 ? err_sys(e, ERR_LOST, r, "send the command to the agent") : 0;
}

/* It did not even start. */
static void fail(struct exec *x, int r, const struct err *e)
{
	x->failed = true;
	x->fail = *e;
	if (!x->fail.errnum)
		x->fail.errnum = -r;
	x->exited = true;
	exec_end(x);
}

static void start(struct exec *x)
{
	struct err e = { 0 };
	struct ends p;
	int r = open_ends(x, &p);

	if (r < 0) {
		fail(x, err_sys(&e, ERR_EXHAUSTED, r, "make pipes"), &e);
		return;
	}
	r = send_exec(x, &p, &e);
	x->group_no = x->box->group_no;
	/* Whoever finds it again after a restart must be able to end it as a whole. */
	if (x->stored) {
		execs_group(x->box->service->db, x->id, x->group_no, NULL);
		turn_dirty(x->box->service->turn);
	}
	fd_close(x->box->group);
	x->box->group = -1;
	if (r == 0 && !x->want->tty) {
		r = stream_open(&x->stream[EXEC_OUT], p.host_out, &e);
		p.host_out = r == 0 ? -1 : p.host_out;
	}
	if (r == 0 && !x->want->tty) {
		r = stream_open(&x->stream[EXEC_ERR], p.host_err, &e);
		p.host_err = r == 0 ? -1 : p.host_err;
	}
	if (r == 0 && p.host_in >= 0)
		stdin_open(x, TAKE_FD(p.host_in));
	ends_close(&p);
	if (r < 0) {
		fail(x, r, &e);
		return;
	}
	x->state = EXEC_STARTED;
	x->started_mono = clock_mono_ns();
	x->deadline_ns = x->want->timeout_ms ? x->started_mono + x->want->timeout_ms * 1000000ULL : 0;
	x->oom_base = x->box->stat.group.oom_kills;
	x->pids_base = x->box->stat.group.pids_refused;
	if (x->want->cpu_ms) {
		exec_ref(x);
		box_stat(x->box, on_cpu, x);
	}
	exec_arm(x);
	exec_tell(x);
}

/* Those that wait for a group, oldest first. */
static struct exec *next_waiting(struct box *b)
{
	struct exec *found = NULL;

	for (struct exec *x = b->execs; x; x = x->next)
		if (x->state == EXEC_WAITING && !x->exited && !x->wait.prev)
			found = x;
	return found;
}

void exec_group_came(struct box *b, int r, const struct err *e)
{
	struct exec *x = next_waiting(b);
	struct err why = { 0 };

	if (!x || (r == 0 && !b->synced))
		return;
	if (r < 0) {
		/* Without a group it could not be ended as a whole: not weaker than asked. */
		err_set(&why, ERR_EXHAUSTED, r, "no group for the command: %.180s", e ? e->msg : "the warden is gone");
		fail(x, r, &why);
		return;
	}
	start(x);
	if (next_waiting(b))
		box_want_group(b);
}

/* Its row is stored. */
static void on_stored(void *arg)
{
	struct exec *x = arg;
	struct err e = { 0 };

	if (x->box->state != BOX_RUNNING) {
		fail(x, err_set(&e, ERR_LOST, -ESRCH, "the sandbox has ended"), &e);
		return;
	}
	if (!x->box->synced)
		return; /* the agent may have some we do not know: not before it has told us */
	if (x->box->group >= 0)
		start(x);
	else
		box_want_group(x->box);
}

void exec_start_waiting(struct box *b)
{
	struct exec *x = next_waiting(b);

	if (!x)
		return;
	if (b->group >= 0)
		start(x);
	if (next_waiting(b))
		box_want_group(b);
}

int exec_store(struct exec *x, const char *result, struct err *e)
{
	AUTO(buf_done) struct buf spec = BUF_INIT(2 * MIB);
	struct json j = JSON_INIT(&spec);
	struct exec_row row = {
		.id = x->id,
		.box = x->box->id,
		.number = x->number,
		.group = x->group_no,
		.started_ns = x->started_ns,
		.result = result,
		.ended_ns = x->ended_ns,
	};
	int r;

	jout_object(&j, NULL);
	exec_want_write(x->want, &j);
	jout_end(&j);
	if (jout_done(&j) < 0)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "the command is too large to be kept");
	row.spec = spec.data;
	r = execs_insert(x->box->service->db, &row, e);
	x->stored = r == 0;
	return r;
}

/*
 * Most execs are over in a moment, and their caller waits: nothing of them needs to be found again before their end. Those that take longer get
 * their row here, a moment later.
 */
void exec_store_running(struct service *s)
{
	size_t at = 0;
	struct box *b;

	if (!s->fresh)
		return;
	s->fresh = 0;
	while ((b = map_next(&s->boxes, &at)))
		for (struct exec *x = b->running ? b->execs : NULL; x; x = x->next)
			if (!x->stored && !x->ended_ns && x->state == EXEC_STARTED && exec_store(x, NULL, NULL) == 0)
				turn_dirty(s->turn);
}

int exec_new(struct box *b, const struct who *who, struct exec_want *want, struct exec_sink *sink, struct exec **ret, struct err *e)
{
	const struct tenant_quota one = { .execs = 1 };
	AUTO(exec_want_free) struct exec_want *mine = want;
	char field[48];
	struct exec *x;
	int r = box_ready(b, e);

	if (r < 0)
		return r;
	if (b->service->draining)
		return err_set(e, ERR_EXHAUSTED, -ESHUTDOWN, "the daemon is about to stop");
	if (b->running >= RUNNING_MAX)
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "%u execs run in this sandbox, as many as can", b->running);
	r = tenant_take(b->tenant, &one, e);
	if (r < 0)
		return r;
	x = exec_alloc(b, NULL, b->next_exec, e);
	r = x ? 0 : -ENOMEM;
	if (r == 0) {
		x->want = TAKE_PTR(mine);
		x->who = *who;
		x->sink = sink;
		x->started_ns = clock_real_ns();
		r = x->want->background ? exec_store(x, NULL, e) : 0;
		if (r == 0 && x->want->idem[0])
			r = idem_note(b->service, b->tenant, x->want->idem, x->want->idem_body, x->id, e);
	}
	if (r < 0) {
		if (x)
			exec_unref(x);
		tenant_give(b->tenant, &one);
		return r;
	}
	b->next_exec++;
	exec_list(x);
	b->running++;
	b->service->running_execs++;
	box_use(b);
	if (x->want->background) {
		struct audit_rec rec = who_rec(who, "exec.start");
		struct json *j;

		rec.tenant = b->tenant->id;
		rec.sandbox = b->id;
		rec.exec = x->id;
		j = audit_begin(b->service->audit, &rec);
		exec_want_write(x->want, j);
		audit_end(b->service->audit, NULL);
	}
	snprintf(field, sizeof(field), "\"exec\":\"%s\"", x->id);
	event_add(b->service, b, "exec.started", field);
	b->service->fresh += !x->stored;
	exec_ref(x); /* the caller's */
	if (x->stored)
		turn_after(b->service->turn, &x->wait, on_stored, x);
	else
		on_stored(x);
	*ret = x;
	return 0;
}

/* --- what can be done to it --- */

static int check_running(const struct exec *x, struct err *e)
{
	if (x->exited || x->state == EXEC_ENDED)
		return err_set(e, ERR_CONFLICT, -ESRCH, "exec '%s' has ended", x->id);
	return 0;
}

int exec_signal(struct exec *x, int sig, enum exec_scope scope, struct err *e)
{
	uint32_t payload[2] = { (uint32_t)sig, scope == EXEC_PROCESS ? FRAME_SCOPE_PROCESS : FRAME_SCOPE_GROUP };
	int r = check_running(x, e);

	if (r == 0)
		r = box_ready(x->box, e);
	if (r < 0)
		return r;
	if (sig == SIGKILL && scope == EXEC_TREE) {
		x->killed = true;
		exec_kill_tree(x);
		return 0;
	}
	if (sig == SIGKILL)
		x->killed = true;
	r = alink_send(&x->box->link, FRAME_SIGNAL, x->number, payload, sizeof(payload), NULL, 0);
	return r < 0 ? err_sys(e, ERR_LOST, r, "send a signal") : 0;
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

static struct exec *by_number(struct box *b, uint32_t number)
{
	for (struct exec *x = b->execs; x; x = x->next)
		if (x->number == number)
			return x;
	return NULL;
}

static void on_held(struct exec *x, const struct frame *f, int *fds, size_t nfds)
{
	struct frame_held h;
	struct err e = { 0 };
	bool tty;

	if (frame_held_decode(f, &h) < 0 || x->stream[0].fd >= 0 || x->stream[1].fd >= 0)
		return;
	tty = h.flags & FRAME_HELD_TTY;
	if (x->exited) {
		exec_linger(x, h.flags, fds, nfds);
		return;
	}
	if (nfds > 0 && stream_open(&x->stream[EXEC_OUT], fds[0], &e) == 0)
		fds[0] = -1;
	if (!tty && nfds > 1 && stream_open(&x->stream[EXEC_ERR], fds[1], &e) == 0)
		fds[1] = -1;
	if (!tty && h.flags & FRAME_HELD_STDIN && nfds > 2) {
		stdin_open(x, fds[2]);
		fds[2] = -1;
	}
	x->adopted = true;
	x->state = EXEC_STARTED;
	exec_tell(x);
	if (h.flags & FRAME_HELD_ENDED) {
		x->exited = true;
		x->exit = h.exited;
		stream_exited(&x->stream[EXEC_OUT]);
		stream_exited(&x->stream[EXEC_ERR]);
		exec_check_end(x);
		return;
	}
	if (x->deadline_ns)
		exec_arm(x);
}

void exec_frame(struct box *b, const struct frame *f, int *fds, size_t nfds)
{
	struct exec *x = by_number(b, f->id);
	struct err e = { 0 };

	if (!x) {
		/* One we do not know: after a restart, of something that was never acknowledged. Nobody could end it later. */
		if (f->type == FRAME_HELD) {
			if (b->next_exec <= f->id)
				b->next_exec = f->id + 1;
			exec_kill_number(b, f->id);
			alink_send(&b->link, FRAME_RELEASE, f->id, NULL, 0, NULL, 0);
		}
		return;
	}
	exec_ref(x);
	if (f->type == FRAME_HELD) {
		on_held(x, f, fds, nfds);
	} else if (x->exited) {
		; /* said twice, or after we gave up on it */
	} else if (f->type == FRAME_STARTED && x->want->tty && nfds && x->stream[0].fd < 0) {
		if (stream_open(&x->stream[0], fds[0], &e) == 0)
			fds[0] = -1;
		exec_tell(x);
	} else if (f->type == FRAME_EXITED && frame_exited_decode(f, &x->exit) == 0) {
		x->exited = true;
		stream_exited(&x->stream[EXEC_OUT]);
		stream_exited(&x->stream[EXEC_ERR]);
		exec_check_end(x);
	} else if (f->type == FRAME_FAILED) {
		int r = link_error(f, x->want->argc ? x->want->argv[0] : "exec", &e, NULL);

		if (e.kind == ERR_NOT_FOUND || e.kind == ERR_INVALID)
			e.kind = ERR_REFUSED;
		fail(x, r, &e);
	}
	exec_unref(x);
}
