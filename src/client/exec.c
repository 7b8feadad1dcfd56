#include "client/client.h"
#include "base/base.h"
#include "base/str.h"
#include "client/base64.h"
#include "client/session.h"
#include "client/show.h"
#include "client/tty.h"

#include <unistd.h>

#define STDIN_MAX (2 * MIB) /* of what goes into one request */

enum { OPT_CWD = 256, OPT_USER, OPT_TIMEOUT, OPT_KEYS, OPT_SHELL };

static const struct option options[] = {
	{ "tty", no_argument, NULL, 't' },
	{ "interactive", no_argument, NULL, 'i' },
	{ "env", required_argument, NULL, 'e' },
	{ "cwd", required_argument, NULL, OPT_CWD },
	{ "user", required_argument, NULL, OPT_USER },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "background", no_argument, NULL, 'd' },
	{ "detach-keys", required_argument, NULL, OPT_KEYS },
	{ "shell", no_argument, NULL, OPT_SHELL },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche exec [options] SANDBOX [--] COMMAND [ARGUMENT…]\n"
	"\n"
	"Runs a command in a sandbox and exits with its exit code (128+N ended by signal N, 124 timeout, 125 cloche\n"
	"itself failed, 126 not executable, 127 not found, 137 killed by a limit). Signals go to the command; three\n"
	"interrupts in a row leave it running.\n"
	"\n"
	"  -i, --interactive   our stdin is the command's\n"
	"  -t, --tty           a terminal inside, with our stdin\n"
	"  -e, --env NAME[=VALUE]  a variable; without a value, ours (repeatable)\n"
	"  --cwd DIR           where it starts                               the sandbox's\n"
	"  --user NAME|UID[:GID]   user, root (of the sandbox), or ids       the sandbox's\n"
	"  --timeout TIME      wall time, as 30s, 5m; 0 lifts it             the sandbox's\n"
	"  --shell             COMMAND is one text for /bin/sh\n"
	"  -d, --background    prints the exec's id and leaves it running\n"
	"  --detach-keys KEYS  with -t: leave it running                     ctrl-p,ctrl-q\n";

struct exec_cmd {
	json_t *body;
	bool tty, input, background, shell;
	struct keys keys;
};

static int apply(struct exec_cmd *x, int opt, const char *arg, struct err *e)
{
	uint64_t ms;
	int r;

	switch (opt) {
	case 't':
		x->tty = x->input = true;
		return 0;
	case 'i':
		x->input = true;
		return 0;
	case 'd':
		x->background = true;
		return 0;
	case OPT_SHELL:
		x->shell = true;
		return 0;
	case 'e':
		r = args_add_env(x->body, arg, e);
		return r < 0 ? err_wrap(e, r, "--env") : 0;
	case OPT_CWD:
	case OPT_USER:
		if (json_object_set_new(x->body, opt == OPT_CWD ? "cwd" : "user", json_string(arg)) < 0)
			return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", arg);
		return 0;
	case OPT_TIMEOUT:
		r = parse_duration(arg, &ms, e);
		if (r < 0)
			return err_wrap(e, r, "--timeout");
		json_object_set_new(x->body, "timeout",
				    ms % 1000 ? json_real((double)ms / 1000) : json_integer((json_int_t)(ms / 1000)));
		return 0;
	default:
		return keys_parse(arg, &x->keys, e);
	}
}

static int set_command(struct exec_cmd *x, char **argv, int argc, struct err *e)
{
	json_t *cmd = json_array();

	if (x->shell && argc == 1) {
		json_decref(cmd);
		return json_object_set_new(x->body, "shell", json_string(argv[0])) < 0
			       ? err_set(e, ERR_INVALID, -EINVAL, "the command is not UTF-8")
			       : 0;
	}
	for (int i = 0; i < argc; i++)
		if (json_array_append_new(cmd, json_string(argv[i])) < 0) {
			json_decref(cmd);
			return err_set(e, ERR_INVALID, -EINVAL, "word %d of the command is not UTF-8", i + 1);
		}
	json_object_set_new(x->body, "cmd", cmd);
	return x->shell ? err_set(e, ERR_INVALID, -EINVAL, "--shell takes one word, not %d", argc) : 0;
}

static void set_tty(json_t *body)
{
	unsigned rows = 24, columns = 80;
	const char *term = getenv("TERM");

	tty_size(STDIN_FILENO, &rows, &columns);
	json_object_set_new(body, "tty", json_pack("{s:i, s:i}", "rows", (int)rows, "cols", (int)columns));
	if (!json_object_get(body, "env"))
		json_object_set_new(body, "env", json_object());
	if (term && *term && !json_object_get(json_object_get(body, "env"), "TERM"))
		json_object_set_new(json_object_get(body, "env"), "TERM", json_string(term));
}

/* Our whole stdin as a field of the request. */
static int set_stdin(json_t *body, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(STDIN_MAX);
	AUTO_FREE char *text = NULL;
	size_t size;

	for (;;) {
		char *room = buf_room(&b, b.max - b.len < 65536 ? 1 : 65536);
		ssize_t n = room ? read(STDIN_FILENO, room, b.max - b.len < 65536 ? 1 : 65536) : -1;

		if (!room) {
			err_set(e, ERR_TOO_LARGE, -E2BIG, "stdin is longer than 2M");
			err_remedy(e, "leave out --json or --background, or copy it with `cloche cp`");
			return -E2BIG;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, ERR_INVALID, -errno, "read stdin");
		if (n == 0)
			break;
		buf_added(&b, (size_t)n);
	}
	size = (b.len + 2) / 3 * 4 + 1;
	text = malloc(size);
	if (!text || base64_encode(buf_str(&b), b.len, text, size) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	json_object_set_new(body, "stdin_base64", json_string(text));
	return 0;
}

/* One request, one answer. */
static int plain(struct args *a, struct exec_cmd *x, struct conn *c, const char *sandbox, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *answer = NULL;
	int r = 0;

	if (x->input && !x->tty)
		r = set_stdin(x->body, e);
	if (x->background)
		json_object_set_new(x->body, "background", json_true());
	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s/execs", sandbox);
	if (r == 0)
		r = conn_json(c, "POST", buf_str(&path), x->body, &answer, e);
	if (r < 0)
		return r;
	if (a->json)
		show_json(answer, SHOW_LINE, e);
	else
		show_line(show_str(answer, "id"));
	return x->background ? 0 : session_exit_code(answer);
}

static int live(const struct exec_cmd *x, struct conn *c, const char *sandbox, struct err *e)
{
	const struct session_opts o = {
		.sandbox = sandbox, .body = x->body, .tty = x->tty, .input = x->input, .keys = x->keys
	};
	struct session_end end;
	int r = session_run(c, &o, &end, e);

	if (r < 0)
		return r;
	if (end.how == SESSION_DETACHED) {
		session_tell_detached(&o, &end);
		r = end.signal ? 128 + end.signal : 0;
	} else {
		session_tell_verdict(end.result);
		r = session_exit_code(end.result);
	}
	json_decref(end.result);
	return r;
}

static int parse(struct args *a, struct exec_cmd *x, const char **ret_sandbox, struct err *e)
{
	int opt, r;

	for (unsigned round = 0; round < 2; round++) {
		while ((r = args_next(a, &opt, e)) > 0) {
			r = apply(x, opt, optarg, e);
			if (r < 0)
				return r;
		}
		if (r < 0 || a->help)
			return r;
		if (round == 0) {
			r = args_count(a, 1, -1, "SANDBOX", e);
			if (r < 0)
				return r;
			*ret_sandbox = args_take(a);
		}
	}
	if (!a->nrest) {
		err_set(e, ERR_INVALID, -EINVAL, "no command given");
		err_remedy(e, "give one, as in `cloche exec %.64s -- echo hello`", *ret_sandbox);
		return -EINVAL;
	}
	if (x->tty && a->json && !x->background)
		return err_set(e, ERR_INVALID, -EINVAL, "--json and --tty do not go together");
	return set_command(x, a->rest, a->nrest, e);
}

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object();
	struct exec_cmd x = { .body = body };
	AUTO(conn_close) struct conn *c = NULL;
	const char *sandbox = NULL;
	int r;

	keys_parse("ctrl-p,ctrl-q", &x.keys, NULL);
	r = parse(a, &x, &sandbox, e);
	if (r < 0 || a->help)
		return r;
	if (x.tty)
		set_tty(body);
	r = conn_open(&a->conn, &c, e);
	if (r < 0)
		return r;
	if (a->json || x.background) {
		r = plain(a, &x, c, sandbox, e);
	} else {
		if (x.input && !x.tty)
			json_object_set_new(body, "stdin_open", json_true());
		r = live(&x, c, sandbox, e);
	}
	if (r < 0)
		a->error_code = session_error_code(e);
	return r;
}

const struct command cmd_exec = {
	.name = "exec",
	.text = "run a command in a sandbox",
	.help = help,
	.letters = "+tie:d",
	.options = options,
	.complete = COMPLETE_SANDBOX,
	.run = run,
};
