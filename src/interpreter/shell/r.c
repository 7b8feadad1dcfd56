/* R's process: starts it, sends cells and questions, and makes events of its messages. All it says may be of the cell's making. */
#include "interpreter/shell/r.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/utf8.h"

#include "base/base.h"

#define REQUEST "%-11s %8u %10zu\n" /* 32 bytes */
#define HEAD_MAX 128
#define MESSAGE_FREE (64 * KIB) /* so much may be said beside results */
#define NAME_MAX_BYTES 256
#define VALUE_MAX (64 * KIB)
#define TRACEBACK_MAX (256 * KIB)
#define RESULT_MAX (10 * MIB)
#define RESULTS_MAX 1000
#define HANGUP_MS 3000
#define LOOK_MS 200
#define AGAIN_LOOKS 4
#define INTERRUPTS_MAX 4
#define ASK_MS 10000
#define START_MS 60000

static const unsigned char source[] = {
#include <src/interpreter/shell/kernel_r.inc>
};

static const char too_many_says[] =
	"the cell has shown more than 1,000 results, or more than four times the size that one may have";

/* --- the process --- */

/* Runs in the child. What R starts itself must not get a request: its stdin is at its end. */
static void r_exec(const struct session *s, const int fds[5])
{
	static const int want[5] = { 6, 1, 2, 7, 9 };
	int high[5], null, text;

	session_child(s);
	for (int i = 0; i < 5; i++) {
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 20);
		if (high[i] < 0)
			_exit(127);
	}
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	text = memfd_create("kernel", 0);
	if (null < 0 || text < 0 || fd_write_all(text, (const char *)source, sizeof(source)) < 0)
		_exit(127);
	dup2(null, 0);
	dup2(text, 8);
	for (int i = 0; i < 5; i++)
		dup2(high[i], want[i]);
	/* Without a locale it could not even print an umlaut. */
	if (!getenv("LC_ALL") && !getenv("LC_CTYPE"))
		setenv("LANG", "C.UTF-8", 0);
	execlp("R", "R", "--no-echo", "--no-restore", "--no-save", "-f", "/proc/self/fd/8", (char *)NULL);
	_exit(errno == ENOENT ? 127 : 126);
}

static void clear_cell(struct r *r)
{
	struct buf *const texts[] = { &r->data, &r->rows, &r->name, &r->value, &r->traceback, &r->place };

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		buf_done(texts[i]);
	for (size_t i = 0; i < R_PARTS_MAX; i++) {
		buf_done(&r->part[i].content);
		buf_done(&r->left_out[i].content);
	}
	r->parts = r->parts_left_out = r->bytes = 0;
}

int r_init(struct r *r, struct session *s, struct events *ev, struct err *e)
{
	*r = (struct r){ .session = s, .result_max = RESULT_MAX };
	*s = (struct session){ .events = ev, .input = -1, .out = { -1, -1 }, .status = -1, .code = -1, .shell = "R" };
	s->code = memfd_create("cell", MFD_CLOEXEC);
	return s->code < 0 ? err_set(e, ERR_INTERNAL, -errno, "memory for a cell: %s", strerror(errno)) : 0;
}

void r_done(struct r *r)
{
	clear_cell(r);
	buf_done(&r->in);
	session_done(r->session);
}

void r_die(struct r *r)
{
	struct session *s = r->session;
	int status = 0;

	if (!r->up || waitpid(s->pid, &status, WNOHANG) != s->pid)
		return;
	s->pid = 0;
	session_drain(s);
	if (WIFSIGNALED(status)) {
		const struct rlimit none = { 0 };
		sigset_t all;

		setrlimit(RLIMIT_CORE, &none);
		sigemptyset(&all);
		signal(WTERMSIG(status), SIG_DFL);
		sigprocmask(SIG_SETMASK, &all, NULL);
		kill(getpid(), WTERMSIG(status));
	}
	_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

/* --- results --- */

static bool is_binary(const char *type)
{
	return (!strncmp(type, "image/", 6) && strcmp(type, "image/svg+xml") != 0) || !strcmp(type, "application/pdf");
}

static void leave_out(struct r *r, const char *type, uint64_t size)
{
	struct r_part *p = &r->left_out[r->parts_left_out];

	if (r->parts_left_out == R_PARTS_MAX)
		return;
	snprintf(p->type, sizeof(p->type), "%s", type);
	buf_clear(&p->content);
	p->content.max = 32;
	if (buf_addf(&p->content, "%llu", (unsigned long long)size) == 0)
		r->parts_left_out++;
}

static int add_part(struct r *r, const char *type, const char *data, size_t len)
{
	const bool text = !strcmp(type, "text/plain");
	const size_t whole = len, size = is_binary(type) ? BASE64_SIZE(len) : len;
	struct r_part *p = &r->part[r->parts];

	if (text && len > r->result_max / 10) {
		len = utf8_whole(data, (size_t)(r->result_max / 10));
		leave_out(r, type, whole);
	} else if (r->parts == R_PARTS_MAX || r->bytes + size > r->result_max ||
		   (!strcmp(type, "application/json") && !request_is_json(data, len))) {
		leave_out(r, type, whole);
		return 0;
	}
	snprintf(p->type, sizeof(p->type), "%s", type);
	p->content = (struct buf)BUF_INIT(len + 1);
	r->parts++;
	r->bytes += size;
	return buf_add(&p->content, data, len);
}

static int put_part(const struct r_part *p, struct json *j)
{
	AUTO_FREE char *text = NULL;

	if (!strcmp(p->type, "application/json")) {
		jout_raw(j, p->type, p->content.data, p->content.len);
	} else if (is_binary(p->type)) {
		text = malloc(BASE64_SIZE(p->content.len));
		if (!text)
			return -ENOMEM;
		jout_strn(j, p->type, text, base64_encode(p->content.data, p->content.len, text));
	} else {
		jout_strn(j, p->type, buf_str(&p->content), p->content.len);
	}
	return 0;
}

static int show(struct r *r, bool is_main)
{
	struct events *ev = r->session->events;
	AUTO(buf_done) struct buf b = { 0 };
	struct json j = JSON_INIT(&b);
	int n = 0;

	r->results++;
	r->result_bytes += r->bytes + r->data.len;
	if (ev->keep || r->too_many)
		return 0;
	if (r->results > RESULTS_MAX || r->result_bytes > 4 * r->result_max) {
		r->too_many = true;
		return kill(-r->session->pid, SIGINT) < 0 ? -errno : 0;
	}
	events_open(&j, "result", ev->id);
	jout_object(&j, "mime");
	for (size_t i = 0; n == 0 && i < r->parts; i++)
		n = put_part(&r->part[i], &j);
	jout_end(&j);
	jout_bool(&j, "is_main", is_main);
	if (r->data.len)
		jout_raw(&j, "data", r->data.data, r->data.len);
	if (r->rows.len)
		jout_u64(&j, "truncated_data", strtoull(buf_str(&r->rows), NULL, 10));
	if (r->parts_left_out) {
		jout_object(&j, "truncated");
		for (size_t i = 0; i < r->parts_left_out; i++)
			jout_u64(&j, r->left_out[i].type, strtoull(buf_str(&r->left_out[i].content), NULL, 10));
		jout_end(&j);
	}
	return n < 0 ? n : events_send(ev, &j);
}

/* --- messages --- */

static void end_result(struct r *r)
{
	for (size_t i = 0; i < R_PARTS_MAX; i++)
		buf_done(&r->part[i].content);
	buf_done(&r->data);
	buf_done(&r->rows);
	r->parts = r->parts_left_out = r->bytes = 0;
}

static int put(struct buf *b, const char *data, size_t len, size_t max)
{
	buf_clear(b);
	b->max = max + 64;
	if (len <= max)
		return buf_add(b, data, len);
	buf_add(b, data, utf8_whole(data, max));
	return buf_addf(b, "… %zu more bytes", len - max);
}

/* "NUMBER STATUS FOLDER" */
static int end_cell(struct r *r, const char *text)
{
	struct session *s = r->session;
	char *rest;
	const unsigned long number = strtoul(text, &rest, 10);
	const long status = strtol(rest, &rest, 10);

	if (number != s->number)
		return 0;
	if (*rest == ' ' && rest[1] == '/') {
		char *folder = strdup(rest + 1);

		free(s->folder);
		s->folder = folder;
	}
	r->status = status != 0;
	r->ended = true;
	return 0;
}

static int take_message(struct r *r, const char *kind, const char *data, size_t len)
{
	struct events *ev = r->session->events;
	AUTO_FREE char *text = NULL;
	int n;

	if (!strncmp(kind, "part:", 5))
		return add_part(r, kind + 5, data, len);
	if (!strcmp(kind, "data")) {
		if (r->bytes + len > r->result_max || !request_is_json(data, len)) {
			leave_out(r, kind, len);
			return 0;
		}
		return put(&r->data, data, len, len);
	}
	if (!strcmp(kind, "rows"))
		return put(&r->rows, data, len, 20);
	if (!strcmp(kind, "name"))
		return put(&r->name, data, len, NAME_MAX_BYTES);
	if (!strcmp(kind, "value"))
		return put(&r->value, data, len, VALUE_MAX);
	if (!strcmp(kind, "traceback"))
		return put(&r->traceback, data, len, TRACEBACK_MAX);
	if (!strcmp(kind, "place"))
		return put(&r->place, data, len, 40);
	if (!strncmp(kind, "reply:", 6))
		return request_is_json(data, len) ? add_part(r, kind + 6, data, len) : 0;
	text = strndup(data, len);
	if (!text)
		return -ENOMEM;
	if (!strcmp(kind, "begun"))
		return strtoul(text, NULL, 10) == r->session->number ? events_begun(ev) : 0;
	if (!strcmp(kind, "show")) {
		n = session_drain(r->session); /* what was printed before it comes before it */
		if (n == 0 && r->parts + r->parts_left_out)
			n = show(r, *text == '1');
		end_result(r);
		return n < 0 ? n : fd_write_all(r->session->input, ".", 1); /* R waits for it */
	}
	return !strcmp(kind, "end") ? end_cell(r, text) : 0;
}

/* Takes whole messages out of what came. */
static int take_messages(struct r *r)
{
	int n = 0;

	while (n == 0 && r->in.len) {
		size_t gone = r->skip < r->in.len ? (size_t)r->skip : r->in.len, at;
		char *end, *space, *rest;
		unsigned long long len;

		buf_drop(&r->in, gone);
		r->skip -= gone;
		end = r->in.len ? memchr(r->in.data, '\n', r->in.len < HEAD_MAX ? r->in.len : HEAD_MAX) : NULL;
		if (!end)
			return r->in.len >= HEAD_MAX ? -EPROTO : 0;
		at = (size_t)(end - r->in.data) + 1;
		space = memchr(r->in.data, ' ', at);
		len = space ? strtoull(space + 1, &rest, 10) : 0;
		if (!space || rest != end || rest == space + 1)
			return -EPROTO;
		*space = '\0';
		if (len > r->result_max + MESSAGE_FREE) {
			leave_out(r, strncmp(r->in.data, "part:", 5) ? r->in.data : r->in.data + 5, len);
			r->skip = len;
			buf_drop(&r->in, at);
			continue;
		}
		if (r->in.len - at < len) {
			*space = ' ';
			return 0;
		}
		n = take_message(r, r->in.data, r->in.data + at, (size_t)len);
		buf_drop(&r->in, at + (size_t)len);
	}
	return n;
}

/* -EPIPE at its end; -EPROTO for what is no message. */
static int read_messages(struct r *r)
{
	char *room;
	ssize_t n;

	r->in.max = (size_t)r->result_max + MESSAGE_FREE + HEAD_MAX + 64 * KIB;
	room = buf_room(&r->in, 64 * KIB);
	if (!room)
		return -ENOMEM;
	n = read(r->session->status, room, 64 * KIB);
	if (n <= 0)
		return n == 0 ? -EPIPE : errno == EAGAIN || errno == EINTR ? 0 : -errno;
	buf_added(&r->in, (size_t)n);
	return take_messages(r);
}

/* --- running --- */

static int send_request(struct r *r, const char *kind, const struct buf *before, size_t number, const struct request *q)
{
	struct session *s = r->session;
	char line[40];
	int n;

	clear_cell(r);
	r->ended = r->too_many = false;
	r->interrupted = r->silent = 0;
	r->results = r->result_bytes = 0;
	if (ftruncate(s->code, 0) < 0 || lseek(s->code, 0, SEEK_SET) < 0)
		return -errno;
	n = before->len ? fd_write_all(s->code, before->data, before->len) : 0;
	if (n == 0)
		n = fd_write_all(s->code, q->code, q->code_len);
	s->number++;
	snprintf(line, sizeof(line), REQUEST, kind, s->number, number);
	return n < 0 ? n : fd_write_all(s->input, line, strlen(line));
}

static int send_error(struct r *r)
{
	struct events *ev = r->session->events;
	AUTO(buf_done) struct buf b = { 0 };
	struct json j = JSON_INIT(&b);
	char *column;

	events_open(&j, "error", ev->id);
	jout_str(&j, "name", r->too_many ? "TooManyResults" : buf_str(&r->name));
	jout_str(&j, "value", r->too_many ? too_many_says : buf_str(&r->value));
	jout_str(&j, "traceback", buf_str(&r->traceback));
	if (r->place.len) {
		jout_u64(&j, "line", strtoull(buf_str(&r->place), &column, 10));
		jout_u64(&j, "column", strtoull(column, NULL, 10));
	}
	return events_send(ev, &j);
}

static void interrupt(struct r *r)
{
	kill(-r->session->pid, SIGINT);
	r->interrupted++;
}

/* What takes a message as its own while R is gone is a child that it has left. */
static int wait_message(struct r *r, int signals, int requests, bool *hung_up)
{
	struct session *s = r->session;
	struct pollfd p[] = {
		{ .fd = s->status, .events = POLLIN },		 { .fd = signals, .events = POLLIN },
		{ .fd = *hung_up ? -1 : requests, .events = 0 }, { .fd = s->out[0], .events = POLLIN },
		{ .fd = s->out[1], .events = POLLIN },
	};
	int n = poll(p, ARRAY_LEN(p), *hung_up ? HANGUP_MS : LOOK_MS);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	if (n == 0 && *hung_up)
		return -ETIME;
	if (n == 0)
		r_die(r);
	/* R ignores it while system() starts a command, which then has no such thing pending. */
	if (n == 0 && r->interrupted && r->interrupted < INTERRUPTS_MAX && ++r->silent % AGAIN_LOOKS == 0)
		interrupt(r);
	if (p[1].revents) {
		struct signalfd_siginfo info;
		(void)!read(signals, &info, sizeof(info));
		interrupt(r);
	}
	if (p[2].revents) {
		*hung_up = true;
		interrupt(r);
	}
	if (session_drain(s) < 0)
		return -ETIME;
	return p[0].revents ? read_messages(r) : 0;
}

/* R has ended, or what it says makes no sense. */
static int broken(struct r *r, int n, struct err *e)
{
	if (n == -EPIPE) {
		for (int i = 0; i < 50; i++) {
			r_die(r);
			usleep(20000);
		}
	}
	return err_set(e, ERR_INTERNAL, n, "R: %s",
		       n == -EPROTO ? "code has written to its descriptors" : strerror(-n));
}

int r_run(struct r *r, const struct request *q, int signals, int requests, enum session_end *ret, struct err *e)
{
	struct session *s = r->session;
	AUTO(buf_done) struct buf before = BUF_INIT(64 * MIB);
	bool hung_up = false;
	char score[16];
	int n = 0;

	for (size_t i = 0; n == 0 && i < q->env_count; i++) {
		const struct request_var *v = &q->env[i];

		n = buf_addf(&before, "%s%s%s", v->name, v->value ? "=" : "", v->value ? v->value : "");
		if (n == 0)
			n = buf_addc(&before, '\0');
	}
	if (!r->up && r_start(r, e) < 0)
		return -EIO;
	session_score(s, "1000", score);
	if (n == 0)
		n = send_request(r, "execute", &before, before.len, q);
	while (n == 0 && !r->ended)
		n = wait_message(r, signals, requests, &hung_up);
	*ret = hung_up ? SESSION_HUNG_UP : r->status || r->too_many ? SESSION_FAILED : SESSION_DONE;
	if (n == -ETIME) {
		*ret = SESSION_HUNG_UP;
		return 0;
	}
	if (n < 0)
		return broken(r, n, e);
	session_drain(s);
	session_score(s, score, NULL);
	n = *ret == SESSION_FAILED ? send_error(r) : 0;
	clear_cell(r);
	return n < 0 ? err_set(e, ERR_INTERNAL, n, "the events have no reader") : 0;
}

/* R answers with numbers of its own: no signal is expected, and no one waits longer than the daemon. */
static int wait_end(struct r *r, unsigned ms)
{
	bool hung_up = false;
	int n = 0;

	for (unsigned i = 0; n == 0 && !r->ended && i < ms / LOOK_MS; i++)
		n = wait_message(r, -1, -1, &hung_up);
	return n < 0 ? n : r->ended ? 0 : -ETIMEDOUT;
}

int r_ask(struct r *r, const char *kind, const struct request *q, struct json *j, struct err *e)
{
	const struct buf none = { 0 };
	size_t all = 0, cursor;
	AUTO(buf_done) struct buf kept = BUF_INIT(MESSAGE_FREE);
	int n;

	for (size_t i = 0; i < q->code_len; i++)
		all += ((unsigned char)q->code[i] & 0xc0) != 0x80;
	cursor = q->cursor < all ? (size_t)q->cursor : all;
	if (!r->up && r_start(r, e) < 0)
		return -EIO;
	r->session->events->keep = &kept;
	n = send_request(r, kind, &none, cursor, q);
	if (n == 0)
		n = wait_end(r, ASK_MS);
	r->session->events->keep = NULL;
	if (n < 0)
		return n == -ETIMEDOUT ? err_set(e, ERR_INTERNAL, -EINVAL, "R does not answer") : broken(r, n, e);
	if (!r->parts)
		return err_set(e, ERR_INTERNAL, -EINVAL, "R has no answer to this");
	for (size_t i = 0; i < r->parts; i++)
		jout_raw(j, r->part[i].type, r->part[i].content.data, r->part[i].content.len);
	clear_cell(r);
	return 0;
}

int r_start(struct r *r, struct err *e)
{
	struct session *s = r->session;
	int n, status = 0;

	r->up = false;
	n = session_spawn(s, r_exec, e);
	if (n < 0)
		return n;
	fd_set_nonblock(s->status);
	buf_done(&r->in);
	clear_cell(r);
	r->skip = 0;
	r->ended = false;
	s->number = 0;
	n = wait_end(r, START_MS);
	r->up = n == 0;
	if (r->up)
		return 0;
	kill(s->pid, SIGKILL);
	waitpid(s->pid, &status, 0);
	s->pid = 0;
	return err_set(e, ERR_INTERNAL, n,
		       n == -EPIPE && WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "there is no R" :
											"R does not start");
}
