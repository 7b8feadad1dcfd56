/*
 * The shell's process. A cell is a memory file that the shell reads as descriptor 7. Its lines come through a pipe: one that
 * reads the file, and one that reports status and folder on descriptor 9, which the commands of the cell do not have. The
 * shell reads the second line even if the cell was cut short; dash drops what it has read ahead then, so it is sent again.
 */
#include "interpreter/shell/session.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/utf8.h"

#include "base/base.h"

#define CODE_FD 7
#define STATUS_FD 9
#define PIECE_MAX 65536
#define HANGUP_MS 3000
#define PIPE_SIZE (1 << 20)

/* With the number of the cell, too: from here on SIGINT ends it. */
#define RUN_LINE "printf 'begun %u\\0' >&9; . /proc/self/fd/7 </dev/null 9>&-\n"
/* With the number of the cell: a report that is repeated belongs to an earlier one. */
#define REPORT_LINE "printf '%%s %%s %%s\\0' %u \"$?\" \"$PWD\" >&9\n"
#define AGAIN_MS 200

int session_init(struct session *s, struct events *ev, struct err *e)
{
	*s = (struct session){ .events = ev, .input = -1, .out = { -1, -1 }, .status = -1, .code = -1 };
	s->shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
	s->code = memfd_create("cell", MFD_CLOEXEC);
	if (s->code < 0)
		return err_set(e, ERR_INTERNAL, -errno, "memory for a cell: %s", strerror(errno));
	return session_start(s, e);
}

static void session_end(struct session *s)
{
	if (s->pid) {
		kill(-s->pid, SIGKILL);
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, 0);
		s->pid = 0;
	}
	fd_closep(&s->input);
	fd_closep(&s->status);
	fd_closep(&s->out[0]);
	fd_closep(&s->out[1]);
	s->input = s->status = s->out[0] = s->out[1] = -1;
}

void session_done(struct session *s)
{
	session_end(s);
	fd_closep(&s->code);
	free(TAKE_PTR(s->folder));
}

void session_child(const struct session *s)
{
	sigset_t none;

	setpgid(0, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	if (s->folder && chdir(s->folder) < 0 && chdir("/") < 0)
		_exit(127);
}

/* Runs in the child, so it may only use what is safe after a fork, before exec. */
static void shell_exec(const struct session *s, const int fds[5])
{
	static const int want[5] = { 0, 1, 2, CODE_FD, STATUS_FD };
	int high[5];

	session_child(s);
	for (int i = 0; i < 5; i++) {
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 20);
		if (high[i] < 0)
			_exit(127);
	}
	for (int i = 0; i < 5; i++)
		dup2(high[i], want[i]);
	/* Prompts would be mixed into the output. */
	setenv("PS1", "", 1);
	setenv("PS2", "", 1);
	unsetenv("PROMPT_COMMAND");
	unsetenv("ENV");
	if (!strcmp(s->shell, "/bin/bash"))
		execl(s->shell, "bash", "--noprofile", "--norc", "--noediting", "-i", (char *)NULL);
	else
		execl(s->shell, "sh", "-i", (char *)NULL);
	_exit(127);
}

static int send_report(struct session *s)
{
	char line[96];

	snprintf(line, sizeof(line), REPORT_LINE, s->number);
	return fd_write_all(s->input, line, strlen(line));
}

static int send_line(struct session *s, const char *text)
{
	return fd_write_all(s->input, text, strlen(text));
}

/* Reads the status descriptor: 1 and the answer without its NUL, 0 if it is incomplete, -EPIPE at its end. */
static int read_answer(struct session *s)
{
	ssize_t n = read(s->status, s->answer + s->answer_len, sizeof(s->answer) - s->answer_len);
	char *end;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	s->answer_len += (size_t)n;
	end = memchr(s->answer, 0, s->answer_len);
	if (!end && s->answer_len == sizeof(s->answer))
		return -EPROTO;
	return end != NULL;
}

/* Takes the status out of an answer; -EAGAIN if it is an earlier cell's, or none. */
static int take_answer(struct session *s)
{
	size_t len = strlen(s->answer) + 1;
	char *rest;
	const bool begun = !strncmp(s->answer, "begun ", 6);
	unsigned long number = strtoul(s->answer + (begun ? 6 : 0), &rest, 10);
	long status = begun ? 0 : strtol(rest, &rest, 10);

	if (begun && number == s->number)
		events_begun(s->events); /* if that fails, the next event fails, too */
	if (!begun && number == s->number && *rest == ' ' && rest[1] == '/') {
		char *folder = strdup(rest + 1);
		if (folder) {
			free(s->folder);
			s->folder = folder;
		}
	}
	s->answer_len -= len;
	memmove(s->answer, s->answer + len, s->answer_len);
	return number == s->number && !begun ? (int)(status & 0xff) : -EAGAIN;
}

int session_spawn(struct session *s, void (*child)(const struct session *s, const int fds[5]), struct err *e)
{
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, error[2] = { -1, -1 }, status[2] = { -1, -1 }, r = 0;
	AUTO_CLOSE int code = -1;
	char name[32];

	session_end(s);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", s->code);
	code = open(name, O_RDONLY | O_CLOEXEC);
	if (code < 0 || pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0 ||
	    pipe2(status, O_CLOEXEC) < 0)
		r = -errno;
	if (r == 0) {
		s->pid = fork();
		if (s->pid == 0)
			child(s, (const int[5]){ in[0], out[1], error[1], code, status[1] });
		if (s->pid < 0) {
			r = -errno;
			s->pid = 0;
		}
	}
	fd_closep(&in[0]);
	fd_closep(&out[1]);
	fd_closep(&error[1]);
	fd_closep(&status[1]);
	s->input = in[1];
	s->out[0] = out[0];
	s->out[1] = error[0];
	s->status = status[0];
	s->answer_len = s->tail_len[0] = s->tail_len[1] = 0;
	if (r < 0) {
		session_end(s);
		return err_set(e, ERR_INTERNAL, r, "start %s: %s", s->shell, strerror(-r));
	}
	setpgid(s->pid, s->pid);
	for (int i = 0; i < 2; i++) {
		fcntl(s->out[i], F_SETPIPE_SZ, PIPE_SIZE); /* a smaller pipe works, too */
		fd_set_nonblock(s->out[i]);
	}
	return 0;
}

int session_start(struct session *s, struct err *e)
{
	int r = session_spawn(s, shell_exec, e);

	if (r < 0)
		return r;
	/* The shell's warning about a missing terminal is not output of a cell: it is read and dropped here. */
	r = send_line(s, strcmp(s->shell, "/bin/bash") ? "set +m\n" :
							 "set +mH +o history; shopt -u checkwinsize; unset PS1 PS2\n");
	s->number++;
	if (r == 0)
		r = send_report(s);
	while (r == 0)
		r = read_answer(s);
	if (r < 0)
		return err_set(e, ERR_INTERNAL, r, "%s has ended at its start", s->shell);
	take_answer(s);
	fd_set_nonblock(s->status);
	for (int i = 0; i < 2; i++) {
		char room[4096];
		while (read(s->out[i], room, sizeof(room)) > 0)
			;
	}
	return 0;
}

/* Forwards one pipe's content. An incomplete character at its end waits for the rest. */
static int drain_one(struct session *s, int i)
{
	char room[PIECE_MAX + 4];

	for (;;) {
		size_t have = s->tail_len[i], whole;
		ssize_t n;
		int r;
		memcpy(room, s->tail[i], have);
		n = read(s->out[i], room + have, PIECE_MAX);
		if (n <= 0)
			return 0;
		have += (size_t)n;
		whole = utf8_whole(room, have);
		if (have - whole > 3)
			whole = have;
		r = events_text(s->events, i ? "stderr" : "stdout", room, whole);
		if (r < 0)
			return r;
		s->tail_len[i] = have - whole;
		memcpy(s->tail[i], room + whole, have - whole);
	}
}

int session_drain(struct session *s)
{
	int r = drain_one(s, 0);

	return r < 0 ? r : drain_one(s, 1);
}

static int add_quoted(struct buf *b, const char *text)
{
	int r = buf_addc(b, '\'');

	for (; r == 0 && *text; text++)
		r = *text == '\'' ? buf_adds(b, "'\\''") : buf_addc(b, *text);
	return r < 0 ? r : buf_addc(b, '\'');
}

/* The lines that run a cell, with the variables of this execution set before it. */
static int add_lines(struct buf *b, const struct request *q, unsigned number)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < q->env_count; i++) {
		const struct request_var *v = &q->env[i];
		r = buf_addf(b, "__had%zu=${%s+x} __was%zu=${%s-}; ", i, v->name, i, v->name);
		if (r == 0 && v->value) {
			r = buf_addf(b, "export %s=", v->name);
			if (r == 0)
				r = add_quoted(b, v->value);
			if (r == 0)
				r = buf_addc(b, '\n');
		} else if (r == 0) {
			r = buf_addf(b, "unset %s\n", v->name);
		}
	}
	if (r == 0)
		r = buf_addf(b, RUN_LINE, number);
	return r < 0 ? r : buf_addf(b, REPORT_LINE, number);
}

static int add_undo(struct buf *b, const struct request *q)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < q->env_count; i++) {
		r = buf_addf(
			b,
			"if [ -n \"$__had%zu\" ]; then export %s=\"$__was%zu\"; else unset %s; fi; unset __had%zu __was%zu\n",
			i, q->env[i].name, i, q->env[i].name, i, i);
	}
	return r;
}

static int put_code(int fd, const char *code, size_t len)
{
	int r;

	if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	r = fd_write_all(fd, code, len);
	return r < 0 ? r : fd_write_all(fd, "\n", 1);
}

static int shell_gone(struct session *s, int *ret_status, struct err *e)
{
	int status = 0;

	session_drain(s);
	waitpid(s->pid, &status, 0);
	s->pid = 0;
	*ret_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	return session_start(s, e);
}

void session_score(const struct session *s, const char *value, char before[16])
{
	char path[48];
	AUTO_CLOSE int fd = -1;
	ssize_t n = -1;

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)s->pid);
	if (*value)
		fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && before)
		n = read(fd, before, 15);
	if (before)
		before[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		(void)!write(fd, value, strlen(value));
}

/* One round of waiting while a cell runs. */
struct turn {
	struct buf lines; /* for the shell */
	size_t sent;
	bool interrupted, hung_up;
};

static void turn_interrupt(struct session *s)
{
	kill(-s->pid, SIGINT);
	send_report(s); /* bytes that do not fit are not needed: the pipe is full of reports */
}

/*
 * 1 when the cell has ended, 0 to continue waiting, -EPIPE when the shell has ended, -ETIME when the cell's request was
 * dropped.
 */
static int turn_wait(struct session *s, struct turn *t, int signals, int requests)
{
	struct pollfd p[] = {
		{ .fd = s->status, .events = POLLIN },
		{ .fd = signals, .events = POLLIN },
		{ .fd = t->hung_up ? -1 : requests, .events = 0 },
		{ .fd = s->out[0], .events = POLLIN },
		{ .fd = s->out[1], .events = POLLIN },
		{ .fd = t->sent < t->lines.len ? s->input : -1, .events = POLLOUT },
	};
	bool bash = !strcmp(s->shell, "/bin/bash");
	int n = poll(p, ARRAY_LEN(p), t->hung_up ? HANGUP_MS : bash ? -1 : AGAIN_MS);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	if (n == 0 && t->hung_up)
		return -ETIME;
	if (n == 0)
		send_report(s);
	if (p[1].revents) {
		struct signalfd_siginfo info;
		(void)!read(signals, &info, sizeof(info));
		t->interrupted = true;
		turn_interrupt(s);
	}
	if (p[2].revents) {
		t->hung_up = true;
		turn_interrupt(s);
	}
	if (p[5].revents) {
		ssize_t w = write(s->input, t->lines.data + t->sent, t->lines.len - t->sent);
		t->sent += w > 0 ? (size_t)w : 0;
	}
	if (session_drain(s) < 0)
		return -ETIME;
	return p[0].revents ? read_answer(s) : 0;
}

int session_run(struct session *s, const struct request *q, int signals, int requests, enum session_end *ret,
		int *ret_status, struct err *e)
{
	AUTO(buf_done) struct buf undo = BUF_INIT(64 * MIB);
	struct turn t = { .lines = BUF_INIT(64 * MIB) };
	int r = put_code(s->code, q->code, q->code_len);
	char score[16];

	session_score(s, "1000", score);
	s->number++;
	if (r == 0)
		r = add_lines(&t.lines, q, s->number);
	if (r == 0)
		r = add_undo(&undo, q);
	if (r == 0)
		r = fd_set_nonblock(s->input);
	while (r == 0) {
		r = turn_wait(s, &t, signals, requests);
		while (r == 1 && (*ret_status = take_answer(s)) < 0)
			r = memchr(s->answer, 0, s->answer_len) ? 1 : 0;
	}
	buf_done(&t.lines);
	if (r == -EPIPE) {
		*ret = SESSION_EXITED;
		return shell_gone(s, ret_status, e);
	}
	if (r == -ETIME) {
		*ret = SESSION_HUNG_UP;
		return 0;
	}
	session_drain(s);
	session_score(s, score, NULL);
	fcntl(s->input, F_SETFL, fcntl(s->input, F_GETFL) & ~O_NONBLOCK);
	if (r == 1 && undo.len)
		r = fd_write_all(s->input, undo.data, undo.len);
	if (r < 0)
		return err_set(e, ERR_INTERNAL, r, "run the cell: %s", strerror(-r));
	*ret = t.hung_up ? SESSION_HUNG_UP : t.interrupted ? SESSION_INTERRUPTED : SESSION_DONE;
	return 0;
}

int session_check(const struct session *s, const char *code, size_t len, struct err *e)
{
	AUTO_CLOSE int fd = memfd_create("check", MFD_CLOEXEC);
	char text[200];
	int said[2], status;
	ssize_t n = 0;
	size_t have = 0;
	pid_t pid;

	if (fd < 0 || put_code(fd, code, len) < 0 || lseek(fd, 0, SEEK_SET) < 0 || pipe2(said, O_CLOEXEC) < 0)
		return err_set(e, ERR_INTERNAL, -errno, "check a cell: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		dup2(fd, 0);
		dup2(said[1], 2);
		execl(s->shell, s->shell, "-n", (char *)NULL);
		_exit(127);
	}
	fd_close(said[1]);
	while (pid > 0 && (n = read(said[0], text + have, sizeof(text) - 1 - have)) > 0)
		have += (size_t)n;
	fd_close(said[0]);
	text[have] = 0;
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return err_set(e, ERR_INTERNAL, -errno, "check a cell: %s", strerror(errno));
	return status == 0 && !have ? 0 : err_set(e, ERR_INVALID, -EINVAL, "%s", text);
}
