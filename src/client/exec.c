/* `cloche exec`. */
#include "client/client.h"
#include "base/base.h"
#include "base/base64.h"
#include "client/input.h"
#include "client/session.h"
#include "client/show.h"

#include <unistd.h>

enum { OPT_CWD = 256, OPT_USER, OPT_TIMEOUT, OPT_KEYS, OPT_RESTART, OPT_SHELL, OPT_CODE, OPT_MERGE };

static const struct option options[] = {
	{ "tty", no_argument, NULL, 't' },
	{ "interactive", no_argument, NULL, 'i' },
	{ "env", required_argument, NULL, 'e' },
	{ "cwd", required_argument, NULL, OPT_CWD },
	{ "user", required_argument, NULL, OPT_USER },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "background", no_argument, NULL, 'd' },
	{ "restart", required_argument, NULL, OPT_RESTART },
	{ "detach-keys", required_argument, NULL, OPT_KEYS },
	{ "shell", no_argument, NULL, OPT_SHELL },
	{ "code", no_argument, NULL, OPT_CODE },
	{ "merge-output", no_argument, NULL, OPT_MERGE },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche exec [options] SANDBOX [--] COMMAND [ARGUMENT…]\n"
	"\n"
	"Runs a command in a sandbox and exits with its exit code (128+N ended by signal N, 124 timeout, 125 cloche\n"
	"itself failed, 126 not executable, 127 not found, 137 killed by a limit). Signals go to the command; three\n"
	"interrupts in a row leave it running.\n"
	"\n"
	"  cloche exec box -- python3 -c 'print(6 * 7)'\n"
	"  cloche exec -it box -- bash\n"
	"\n"
	"  -i, --interactive   connect stdin to the command\n"
	"  -t, --tty           a terminal inside, connected to stdin\n"
	"  -e, --env NAME[=VALUE]  a variable; without a value, the caller's (repeatable)\n"
	"  --cwd DIR           working folder                                the sandbox's\n"
	"  --user NAME[:GROUP]     a name in the sandbox, or UID[:GID]       the sandbox's\n"
	"  --timeout TIME      wall time, as 30s, 5m; 0 removes the limit    the sandbox's\n"
	"  --shell             COMMAND is one string for /bin/sh\n"
	"  --code              COMMAND is code for the warm Python of the sandbox's template; `-`: read it from stdin\n"
	"  --merge-output      stderr goes to stdout, in the order in which the command writes\n"
	"  -d, --background    print the exec's id and leave it running; stderr says when its timeout ends it\n"
	"  --restart always    with -d: run it again when the sandbox starts again, also after a reboot (storage disk)\n"
	"  --detach-keys KEYS  with -t: leave it running                     ctrl-p,ctrl-q\n";

struct exec_cmd {
	json_t *body;
	bool tty, input, background, shell, code;
	struct keys keys;
};

static int apply(void *cmd, int opt, const char *arg, struct err *e)
{
	struct exec_cmd *x = cmd;
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
	case OPT_RESTART:
		json_object_set_new(x->body, "restart", json_string(arg));
		return 0;
	case OPT_SHELL:
		x->shell = true;
		return 0;
	case OPT_MERGE:
		json_object_set_new(x->body, "output", json_string("merged"));
		return 0;
	case OPT_CODE:
		x->code = true;
		return 0;
	case 'e':
		r = args_add_env(x->body, arg, e);
		return r < 0 ? err_wrap(e, r, "--env") : 0;
	case OPT_CWD:
	case OPT_USER:
		return args_set_text(x->body, opt == OPT_CWD ? "cwd" : "user", arg, e);
	case OPT_TIMEOUT:
		r = args_set_time(x->body, "timeout", arg, e);
		return r < 0 ? err_wrap(e, r, "--timeout") : 0;
	default:
		return keys_parse(arg, &x->keys, e);
	}
}

/* Code that is on our stdin, so that nothing of it has to be quoted. */
static int set_code(struct exec_cmd *x, const char *word, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(STDIN_MAX);
	int r;

	if (strcmp(word, "-"))
		return args_set_text(x->body, "code", word, e);
	if (x->input)
		return err_set(e, ERR_INVALID, -EINVAL,
			       "--code - reads the code from stdin: it cannot be used with -i and -t");
	r = input_read(STDIN_FILENO, "stdin", &b, e);
	if (r < 0)
		return r;
	if (json_object_set_new(x->body, "code", json_stringn(buf_str(&b), b.len)) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "the code is not UTF-8");
	return 0;
}

static int set_command(struct exec_cmd *x, char **argv, int argc, struct err *e)
{
	if (x->shell && x->code)
		return err_set(e, ERR_INVALID, -EINVAL, "--shell cannot be used with --code");
	if ((x->shell || x->code) && argc > 1) {
		err_set(e, ERR_INVALID, -EINVAL, "%s takes one argument, got %d", x->code ? "--code" : "--shell", argc);
		err_remedy(e, "quote it as one argument");
		return -EINVAL;
	}
	if (x->code)
		return set_code(x, argv[0], e);
	if (x->shell)
		return args_set_text(x->body, "shell", argv[0], e);
	return args_set_words(x->body, "cmd", argv, argc, e);
}

/* A default ends what was meant to stay: a server, say. */
static void show_end(const json_t *exec)
{
	const char *at = show_str(exec, "ends_at");

	if (*at)
		show_warn("note: it ends at %s; use --timeout 0 for no limit", at);
}

/* One request, one answer. */
static int plain(struct args *a, struct exec_cmd *x, struct conn *c, const char *sandbox, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *answer = NULL;
	int r = 0;

	if (x->input && !x->tty)
		r = input_set(x->body, e);
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
	if (x->background && !a->json)
		show_end(answer);
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
	return session_finish(&o, &end);
}

static int parse(struct args *a, struct exec_cmd *x, const char **ret_sandbox, struct err *e)
{
	int r = args_sandbox(a, apply, x, ret_sandbox, e);

	if (r < 0 || a->help)
		return r;
	if (!a->nrest) {
		err_set(e, ERR_INVALID, -EINVAL, "no %s given", x->code ? "code" : "command");
		err_remedy(
			e,
			x->code ?
				"give code, as in `cloche exec --code %.64s 'print(6 * 7)'`; `-` reads it from stdin" :
				"give a command, as in `cloche exec %.64s -- echo hello`",
			*ret_sandbox);
		return -EINVAL;
	}
	if (x->tty && a->json && !x->background)
		return err_set(e, ERR_INVALID, -EINVAL, "--json cannot be used with --tty");
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
		session_set_tty(body);
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
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
