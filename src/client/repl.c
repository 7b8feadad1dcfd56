/*
 * `cloche repl`: a terminal for a context. Lines are collected until the context says that they are complete; then they run over
 * one WebSocket, while Ctrl-C interrupts them. Without a terminal the same is done with the lines of stdin, without prompts.
 */
#include "client/client.h"
#include "base/base.h"
#include "client/line.h"
#include "client/repl_show.h"
#include "client/show.h"
#include "client/text.h"
#include "client/tty.h"
#include "client/want.h"
#include "client/ws.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define HISTORY "200" /* cells of the context that can be recalled */
#define SHOWN_MATCHES 100U
#define INPUT_MAX (32 * MIB) /* more code than that is refused by the API */
#define TYPED_MAX (64 * KIB) /* while code runs */
#define PASTE_ON "\x1b[?2004h"
#define PASTE_OFF "\x1b[?2004l"

enum { OPT_CONTEXT = 256, OPT_PLOTS, OPT_TIMEOUT };

static const struct option options[] = {
	{ "context", required_argument, NULL, OPT_CONTEXT },
	{ "plots", required_argument, NULL, OPT_PLOTS },
	{ "run-timeout", required_argument, NULL, OPT_TIMEOUT },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche repl [options] [LANGUAGE [SANDBOX]]\n"
	"\n"
	"Runs code as you type it, and keeps its variables: python (the default), javascript (js), typescript (ts), shell (sh), r.\n"
	"Without SANDBOX it makes one, which is deleted at the end; options below say how. In a sandbox, it uses the context of\n"
	"that language. Pictures are saved as files. Code in a pipe runs as well, without prompts.\n"
	"\n"
	"  --context CONTEXT   another context of the sandbox, by its id\n"
	"  --plots DIR         where pictures go; `none`: nowhere            .\n"
	"  --run-timeout TIME  interrupt each piece of code after this time  none\n"
	"\n"
	"Keys: Tab completes, up and down show earlier lines, Ctrl-C drops the line or interrupts the code, Ctrl-D leaves.\n";

struct repl {
	struct conn *conn;
	json_t *body; /* of the sandbox to be made */
	char sandbox[256], context[256];
	const char *timeout;
	bool own, tty, running, over, eof, broken;
	int end_signal;
	struct ws *ws;
	struct tty term;
	struct line line;
	struct buf cell; /* complete lines, not run yet */
	struct buf in; /* of stdin, not taken yet */
	struct repl_show show;
	int signals;
	bool any_failed;
	const char *first, *more; /* prompts */
};

/* --- calls --- */

static int path_of(const struct repl *p, const char *call, struct buf *path)
{
	return url_add(path, "/v1/sandboxes/%s/contexts/%s/", p->sandbox, p->context) < 0 ? -ENOMEM :
											    buf_adds(path, call);
}

static int ask(struct repl *p, const char *call, const char *code, json_t **ret, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *body = json_pack("{s:s}", "code", code);

	if (!body)
		return err_set(e, ERR_INVALID, -EINVAL, "this is not UTF-8");
	return path_of(p, call, &path) < 0 ? -ENOMEM : conn_json(p->conn, "POST", buf_str(&path), body, ret, e);
}

static int make_sandbox(struct repl *p, struct err *e)
{
	AUTO_JSON json_t *answer = NULL;
	int r;

	/* A client that is killed cannot delete it. */
	if (!json_object_get(p->body, "idle"))
		json_object_set_new(p->body, "idle", json_pack("{s:s}", "delete", "10m"));
	conn_doing(p->conn, "cloche: waiting for the sandbox");
	r = conn_json(p->conn, "POST", "/v1/sandboxes", p->body, &answer, e);
	if (r < 0)
		return r;
	snprintf(p->sandbox, sizeof(p->sandbox), "%s", show_str(answer, "id"));
	p->own = true;
	return 0;
}

static void delete_sandbox(struct repl *p)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct err e = { 0 };

	if (p->own && url_add(&path, "/v1/sandboxes/%s", p->sandbox) == 0 &&
	    conn_json(p->conn, "DELETE", buf_str(&path), NULL, NULL, &e) < 0)
		show_warn("sandbox %s: %s", p->sandbox, e.msg);
}

/* Also the first question to the context: it starts, or says why it cannot. */
static int recall(struct repl *p, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *answer = NULL;
	const json_t *cells;
	int r = path_of(p, "history?last=" HISTORY, &path);

	conn_doing(p->conn, "cloche: waiting for the interpreter");
	if (r == 0)
		r = conn_get(p->conn, buf_str(&path), &answer, e);
	conn_doing(p->conn, NULL);
	cells = json_object_get(answer, "cells");
	for (size_t i = 0; i < json_array_size(cells); i++) {
		AUTO_FREE char *code = strdup(show_str(json_array_get(cells, i), "code"));
		char *rest = code;

		for (char *l; code && (l = strsep(&rest, "\n"));)
			line_remember(&p->line, l);
	}
	return r;
}

/* --- running --- */

static void on_binary(void *arg, const uint8_t *data, size_t len)
{
	(void)arg;
	(void)data;
	(void)len;
}

static bool on_full(void *arg)
{
	(void)arg;
	return false; /* what comes is written at once */
}

static void on_text(void *arg, const char *data, size_t len)
{
	struct repl *p = arg;
	json_t *m = json_loadb(data, len, JSON_ALLOW_NUL, NULL);

	if (m && repl_show(&p->show, m) && p->running) {
		p->running = false;
		p->any_failed = p->any_failed || p->show.failed;
		p->over = p->over || p->show.left;
	}
	json_decref(m);
}

static int connect_ws(struct repl *p, struct err *e)
{
	const struct ws_calls calls = {
		.binary = on_binary, .text = on_text, .full = on_full, .max = 64 * MIB, .arg = p
	};
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	int r = path_of(p, "attach", &path);

	ws_free(p->ws);
	p->ws = NULL;
	if (r == 0)
		r = ws_open(p->conn, buf_str(&path), &calls, &p->ws, e);
	if (r == 0)
		ws_text(p->ws, "{\"type\":\"interrupt\"}"); /* a connection without a first message is cut */
	return r;
}

static void execute(struct repl *p)
{
	AUTO_JSON json_t *m = json_pack("{s:s,s:s}", "type", "execute", "code", buf_str(&p->cell));
	AUTO_FREE char *text = NULL;
	struct err e = { 0 };

	p->show.failed = false;
	p->show.error[0] = '\0';
	if (m && p->timeout)
		json_object_set_new(m, "timeout", json_string(p->timeout));
	else if (m)
		json_object_set_new(m, "timeout", json_integer(0));
	text = m ? json_dumps(m, JSON_COMPACT) : NULL;
	buf_clear(&p->cell);
	if (!text) {
		show_warn("the code is not UTF-8");
		p->any_failed = true;
	} else if (!p->ws && connect_ws(p, &e) < 0) {
		show_error(&e);
		p->any_failed = true;
	} else {
		ws_text(p->ws, text);
		p->running = true;
	}
}

/* Whether the lines so far can run; otherwise *ret_indent begins the next one. */
static bool complete(struct repl *p, struct buf *ret_indent)
{
	AUTO_JSON json_t *answer = NULL;
	struct err e = { 0 };

	if (ask(p, "is_complete", buf_str(&p->cell), &answer, &e) < 0)
		return true; /* to run it says what is wrong */
	if (strcmp(show_str(answer, "status"), "incomplete") != 0)
		return true;
	buf_adds(ret_indent, show_str(answer, "indent"));
	return false;
}

static bool blank(const char *text)
{
	return !text[strspn(text, " \t\n")];
}

/* Adds a line to the cell. @last: no more input has arrived yet. */
static void take_line(struct repl *p, const char *text, bool last)
{
	AUTO(buf_done) struct buf indent = BUF_INIT(64 * KIB);

	if ((p->cell.len && buf_addc(&p->cell, '\n') < 0) || buf_adds(&p->cell, text) < 0) {
		show_warn("code of more than %llu bytes is left out", (unsigned long long)p->cell.max);
		p->any_failed = true;
		buf_clear(&p->cell);
	}
	line_remember(&p->line, text);
	line_begin(&p->line, "");
	if (!last)
		return;
	if (blank(buf_str(&p->cell)))
		buf_clear(&p->cell);
	else if (complete(p, &indent))
		execute(p);
	else
		line_begin(&p->line, buf_str(&indent));
}

/* --- the keyboard --- */

static void draw(struct repl *p)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	unsigned rows = 24, columns = 80;

	if (!p->tty || p->running || p->over)
		return;
	tty_size(STDOUT_FILENO, &rows, &columns);
	line_draw(&p->line, p->cell.len ? p->more : p->first, columns, &out);
	fwrite(buf_str(&out), 1, out.len, stdout);
	fflush(stdout);
}

static void say(const char *text)
{
	fputs(text, stdout);
	fflush(stdout);
}

static size_t characters(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

static size_t common(const json_t *matches, size_t len)
{
	const char *first = json_string_value(json_array_get(matches, 0));

	for (size_t i = 1; i < json_array_size(matches); i++) {
		const char *other = json_string_value(json_array_get(matches, i));
		size_t n = 0;

		while (other && n < len && first[n] == other[n])
			n++;
		len = n;
	}
	while (len && ((unsigned char)first[len] & 0xc0) == 0x80)
		len--;
	return len;
}

static void show_matches(const json_t *matches)
{
	say("\n");
	for (size_t i = 0; i < json_array_size(matches) && i < SHOWN_MATCHES; i++) {
		AUTO(buf_done) struct buf b = BUF_INIT(MIB);
		const char *text = json_string_value(json_array_get(matches, i));

		if (text && text_escape(&b, text, strlen(text)) == 0)
			printf("%s  ", buf_str(&b));
	}
	say(json_array_size(matches) > SHOWN_MATCHES ? "…\n" : "\n");
}

static void tab(struct repl *p)
{
	AUTO(buf_done) struct buf code = BUF_INIT(2 * LINE_MAX_BYTES), by = BUF_INIT(MIB);
	AUTO_JSON json_t *answer = NULL;
	const json_t *matches;
	const char *first;
	size_t from, total, before = 0;
	struct err e = { 0 };

	if (!p->line.at || blank(buf_str(&p->line.text))) {
		line_replace(&p->line, 0, "    ");
		return;
	}
	if (p->cell.len)
		buf_addf(&code, "%s\n", buf_str(&p->cell));
	buf_add(&code, buf_str(&p->line.text), p->line.at);
	if (ask(p, "complete", buf_str(&code), &answer, &e) < 0)
		return;
	matches = json_object_get(answer, "matches");
	first = json_string_value(json_array_get(matches, 0));
	from = (size_t)show_u64(answer, "start");
	total = characters(buf_str(&code), code.len);
	if (!first || from > total)
		return;
	/* Bytes of the characters from there to the cursor. */
	while (before < p->line.at && characters(buf_str(&p->line.text) + p->line.at - before, before) < total - from)
		before++;
	buf_add(&by, first, common(matches, strlen(first)));
	if (by.len > before || json_array_size(matches) == 1)
		line_replace(&p->line, before, buf_str(&by));
	else
		show_matches(matches);
}

static void on_key(struct repl *p, unsigned char c)
{
	AUTO(buf_done) struct buf text = BUF_INIT(LINE_MAX_BYTES);

	switch (line_feed(&p->line, c)) {
	case LINE_MORE:
		break;
	case LINE_DONE:
	case LINE_PASTED:
		draw(p);
		say("\n");
		buf_add(&text, buf_str(&p->line.text), p->line.text.len);
		take_line(p, buf_str(&text), !p->line.pasting);
		break;
	case LINE_CANCEL:
		draw(p);
		say("^C\n");
		buf_clear(&p->cell);
		line_begin(&p->line, "");
		break;
	case LINE_END:
		say("\n");
		p->over = true;
		break;
	case LINE_TAB:
		tab(p);
		break;
	case LINE_CLEAR:
		say("\x1b[H\x1b[2J");
		break;
	}
}

/* The next complete line of a stdin that is no terminal; its end completes the last one. */
static void next_line(struct repl *p)
{
	char *end = p->in.len ? memchr(p->in.data, '\n', p->in.len) : NULL;
	AUTO(buf_done) struct buf text = BUF_INIT(INPUT_MAX);
	size_t n = end ? (size_t)(end - p->in.data) : p->in.len;

	if (!end && (!p->eof || !p->in.len)) {
		if (p->eof && p->cell.len)
			execute(p); /* it ends in the middle: to run it says where */
		else
			p->over = p->eof;
		return;
	}
	if (memchr(buf_str(&p->in), '\0', n))
		show_warn("a line with a NUL ends there");
	buf_add(&text, buf_str(&p->in), n);
	buf_drop(&p->in, end ? n + 1 : n);
	/* Before an indented line no code ends, and to ask for each line of a long function would take minutes. */
	take_line(p, buf_str(&text), !p->in.len || (p->in.data[0] != ' ' && p->in.data[0] != '\t'));
}

/* What is typed while code runs is for the next line, but for Ctrl-C, also one that came together with the end of the line. */
static void take_interrupts(struct repl *p)
{
	size_t kept = 0;

	for (size_t i = 0; p->running && i < p->in.len; i++)
		if (p->in.data[i] == 3)
			ws_text(p->ws, "{\"type\":\"interrupt\"}");
		else
			p->in.data[kept++] = p->in.data[i];
	if (p->running)
		buf_cut(&p->in, kept);
}

static void read_keys(struct repl *p)
{
	char data[KIB];
	ssize_t n = read(STDIN_FILENO, data, sizeof(data));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0)
		p->over = true;
	else
		buf_add(&p->in, data, (size_t)n);
	take_interrupts(p);
}

static void feed_keys(struct repl *p)
{
	size_t n = 0;

	while (n < p->in.len && !p->running && !p->over)
		on_key(p, (unsigned char)p->in.data[n++]);
	draw(p); /* once for all that came together: a long paste would be drawn for each of its bytes */
	buf_drop(&p->in, n);
	take_interrupts(p);
}

static void read_input(struct repl *p)
{
	char data[16 * KIB];
	ssize_t n = read(STDIN_FILENO, data, sizeof(data));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		p->eof = true;
	} else if (buf_add(&p->in, data, (size_t)n) < 0) {
		show_warn("a line of more than %llu bytes", (unsigned long long)(p->in.max));
		p->any_failed = p->over = true;
	}
}

/* --- the loop --- */

static void take_signal(struct repl *p)
{
	struct signalfd_siginfo info;

	if (read(p->signals, &info, sizeof(info)) != sizeof(info) || info.ssi_signo == SIGWINCH)
		return;
	if (info.ssi_signo == SIGINT && p->running && p->ws) {
		ws_text(p->ws, "{\"type\":\"interrupt\"}");
		return;
	}
	p->end_signal = (int)info.ssi_signo;
	p->over = true;
}

static int open_signals(struct repl *p, sigset_t *before, struct err *e)
{
	static const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(taken); i++)
		sigaddset(&set, taken[i]);
	sigprocmask(SIG_BLOCK, &set, before);
	p->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return p->signals < 0 ? err_sys(e, ERR_INTERNAL, -errno, "signalfd") : 0;
}

static void turn_ws(struct repl *p)
{
	struct err e = { 0 };

	if (!p->ws || ws_turn(p->ws, &e) == 1)
		return;
	ws_free(p->ws);
	p->ws = NULL;
	if (!p->running)
		return; /* the next execution connects again */
	show_warn("the connection was lost, and the code was interrupted");
	p->running = false;
	p->any_failed = true;
	p->over = !p->tty;
}

static bool wants_line(const struct repl *p)
{
	return !p->tty && !p->running && (p->eof || (p->in.len && memchr(p->in.data, '\n', p->in.len)));
}

static int loop(struct repl *p)
{
	while (!p->over) {
		struct pollfd fds[] = { { .fd = -1, .events = POLLIN },
					{ .fd = p->signals, .events = POLLIN },
					{ .fd = -1 } };

		turn_ws(p);
		if (p->over)
			break;
		draw(p);
		if (p->tty && p->in.len && !p->running) {
			feed_keys(p);
			continue;
		}
		if (wants_line(p)) {
			next_line(p);
			continue;
		}
		if (p->tty ? p->in.len < TYPED_MAX : !p->running && !p->eof)
			fds[0].fd = STDIN_FILENO;
		if (p->ws) {
			fds[2].fd = ws_fd(p->ws);
			fds[2].events = ws_events(p->ws);
		}
		if (poll(fds, ARRAY_LEN(fds), -1) < 0 && errno != EINTR)
			return -errno;
		if (fds[1].revents)
			take_signal(p);
		if (fds[0].revents && p->tty)
			read_keys(p);
		else if (fds[0].revents)
			read_input(p);
	}
	return 0;
}

static int loop_on_terminal(struct repl *p)
{
	int r = tty_keys(&p->term, STDIN_FILENO);

	if (r < 0)
		return r;
	say(PASTE_ON);
	r = loop(p);
	say(PASTE_OFF);
	tty_restore(&p->term);
	return r;
}

static int start(struct args *a, struct repl *p, struct err *e)
{
	int r = conn_open(&a->conn, &p->conn, e);

	if (r == 0 && !p->sandbox[0])
		r = make_sandbox(p, e);
	if (r == 0)
		r = recall(p, e);
	if (r == 0)
		r = connect_ws(p, e);
	return r;
}

/* --- the command --- */

static int set_language(struct repl *p, const char *text, struct err *e)
{
	static const struct {
		const char *name, *is, *first, *more;
	} names[] = {
		{ "python", "python", ">>> ", "... " },
		{ "py", "python", ">>> ", "... " },
		{ "javascript", "javascript", "> ", "| " },
		{ "js", "javascript", "> ", "| " },
		{ "typescript", "typescript", "> ", "| " },
		{ "ts", "typescript", "> ", "| " },
		{ "shell", "shell", "$ ", "> " },
		{ "bash", "shell", "$ ", "> " },
		{ "sh", "shell", "$ ", "> " },
		{ "r", "r", "> ", "+ " },
		{ "R", "r", "> ", "+ " },
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(text, names[i].name)) {
			snprintf(p->context, sizeof(p->context), "%s", names[i].is);
			p->first = names[i].first;
			p->more = names[i].more;
			return 0;
		}
	return err_set(e, ERR_INVALID, -EINVAL,
		       "no language '%.40s': python, javascript (js), typescript (ts), shell (sh) or r", text);
}

static int parse(struct args *a, struct repl *p, struct err *e)
{
	const char *context = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == OPT_CONTEXT)
			context = optarg;
		else if (opt == OPT_PLOTS)
			p->show.folder = strcmp(optarg, "none") ? optarg : NULL;
		else if (opt == OPT_TIMEOUT)
			p->timeout = optarg;
		else if ((r = want_apply(p->body, opt, optarg, e)) < 0)
			return r;
	}
	if (r == 0 && !a->help)
		r = args_count(a, 0, 2, "a language and a sandbox", e);
	if (r < 0 || a->help)
		return r;
	r = set_language(p, a->nrest ? a->rest[0] : "python", e);
	if (r == 0 && a->json)
		r = err_set(e, ERR_INVALID, -EINVAL, "--json cannot be used with repl");
	if (r == 0 && context && a->nrest < 2)
		r = err_set(e, ERR_INVALID, -EINVAL, "--context needs a sandbox that has it");
	if (r == 0 && a->nrest == 2 && json_object_size(p->body))
		r = err_set(e, ERR_INVALID, -EINVAL,
			    "options of a new sandbox cannot be used with '%.100s', which is there", a->rest[1]);
	if (r == 0 && a->nrest == 2)
		snprintf(p->sandbox, sizeof(p->sandbox), "%s", a->rest[1]);
	if (r == 0 && context)
		snprintf(p->context, sizeof(p->context), "%s", context);
	return r;
}

static int run(struct args *a, struct err *e)
{
	struct repl p = { .term = TTY_INIT,
			  .signals = -1,
			  .show.folder = ".",
			  .cell = BUF_INIT(INPUT_MAX),
			  .in = BUF_INIT(INPUT_MAX) };
	sigset_t before;
	int r;

	p.body = json_object();
	line_init(&p.line);
	sigprocmask(SIG_BLOCK, NULL, &before);
	r = parse(a, &p, e);
	if (r < 0 || a->help)
		goto out;
	p.tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	r = open_signals(&p, &before, e);
	if (r == 0)
		r = start(a, &p, e);
	if (r == 0)
		r = p.tty ? loop_on_terminal(&p) : loop(&p);
	ws_free(p.ws);
	delete_sandbox(&p);
	if (r == 0)
		r = p.end_signal ? 128 + p.end_signal : !p.tty && p.any_failed;
out:
	sigprocmask(SIG_SETMASK, &before, NULL);
	conn_close(p.conn);
	fd_close(p.signals);
	line_done(&p.line);
	buf_done(&p.cell);
	buf_done(&p.in);
	json_decref(p.body);
	return r;
}

const struct command cmd_repl = {
	.name = "repl",
	.text = "run code as you type it",
	.help = help,
	.more_help = want_help,
	.letters = "e:",
	.options = options,
	.more = want_options,
	.complete = COMPLETE_WORDS,
	.words = "python javascript typescript shell r",
	.run = run,
};
