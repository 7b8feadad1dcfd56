/* `cloche shell`. */
#include "client/client.h"
#include "base/base.h"
#include "client/session.h"

#include <unistd.h>

#define TAIL (16 * KIB) /* of what was on the screen, when one comes back */

enum { OPT_ATTACH = 256, OPT_KEYS, OPT_USER, OPT_CWD };

static const struct option options[] = {
	{ "attach", required_argument, NULL, OPT_ATTACH }, { "detach-keys", required_argument, NULL, OPT_KEYS },
	{ "env", required_argument, NULL, 'e' },	   { "cwd", required_argument, NULL, OPT_CWD },
	{ "user", required_argument, NULL, OPT_USER },	   { NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche shell [options] SANDBOX [[--] COMMAND [ARGUMENT…]]\n"
	"\n"
	"Opens a terminal in a sandbox: a shell, or the command. It continues when the connection breaks (cloche\n"
	"reconnects for some seconds) or when it is left with the detach keys; `--attach EXEC` returns to it.\n"
	"\n"
	"  --attach EXEC       return to a shell that was left               (`cloche logs --list SANDBOX` lists them)\n"
	"  --detach-keys KEYS  leave it running                              ctrl-p,ctrl-q\n"
	"  -e, --env NAME[=VALUE]  a variable; without a value, the caller's (repeatable)\n"
	"  --cwd DIR           working folder                                the sandbox's\n"
	"  --user NAME[:GROUP]     a name in the sandbox, or UID[:GID]       the sandbox's\n";

struct shell {
	json_t *body;
	const char *sandbox, *exec;
	struct keys keys;
};

static int apply(void *cmd, int opt, const char *arg, struct err *e)
{
	struct shell *s = cmd;

	switch (opt) {
	case OPT_ATTACH:
		s->exec = arg;
		return 0;
	case OPT_KEYS:
		return keys_parse(arg, &s->keys, e);
	case 'e':
		return args_add_env(s->body, arg, e);
	default:
		return args_set_text(s->body, opt == OPT_CWD ? "cwd" : "user", arg, e);
	}
}

static int parse(struct args *a, struct shell *s, struct err *e)
{
	int r = args_sandbox(a, apply, s, &s->sandbox, e);

	if (r < 0 || a->help)
		return r;
	if (s->exec && a->nrest)
		return err_set(e, ERR_INVALID, -EINVAL,
			       "--attach returns to a running exec: it cannot be used with a command");
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		err_set(e, ERR_INVALID, -ENOTTY, "a shell needs a terminal");
		err_remedy(e, "without a terminal, use `cloche exec -i %.64s -- sh`", s->sandbox);
		return -ENOTTY;
	}
	return 0;
}

static int fill(struct args *a, struct shell *s, struct err *e)
{
	session_set_tty(s->body);
	/* A shell stays as long as its user does. */
	json_object_set_new(s->body, "timeout", json_integer(0));
	if (!a->nrest) {
		/* The better one of those there are. */
		json_object_set_new(s->body, "shell",
				    json_string("command -v bash >/dev/null 2>&1 && exec bash; exec sh"));
		return 0;
	}
	return args_set_words(s->body, "cmd", a->rest, a->nrest, e);
}

/* Where the last screenful of an exec's output begins. */
static int find_offset(struct conn *c, const struct shell *s, uint64_t *ret, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct call_spec spec = { .method = "GET", .accept = "*/*" };
	AUTO(call_free) struct call *call = NULL;
	const char *total;
	uint64_t all = 0;
	int r;

	r = url_add(&path, "/v1/sandboxes/%s/execs/%s/output?stream=tty&offset=0&limit=1", s->sandbox, s->exec);
	spec.path = buf_str(&path);
	if (r == 0)
		r = call_start(c, &spec, &call, e);
	if (r == 0)
		r = call_wait(call, e);
	if (r < 0)
		return r;
	total = call_header(call, "X-Cloche-Total");
	if (total)
		all = strtoull(total, NULL, 10);
	*ret = all > TAIL ? all - TAIL : 0;
	return 0;
}

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object();
	AUTO(conn_close) struct conn *c = NULL;
	struct shell s = { .body = body };
	struct session_opts o = { .body = body, .tty = true, .input = true };
	struct session_end end;
	int r;

	keys_parse("ctrl-p,ctrl-q", &s.keys, NULL);
	r = parse(a, &s, e);
	if (r < 0 || a->help)
		return r;
	r = fill(a, &s, e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0 && s.exec)
		r = find_offset(c, &s, &o.offset, e);
	if (r < 0)
		return r;
	o.sandbox = s.sandbox;
	o.exec = s.exec;
	o.keys = s.keys;
	r = session_run(c, &o, &end, e);
	if (r < 0) {
		a->error_code = session_error_code(e);
		return r;
	}
	return session_finish(&o, &end);
}

const struct command cmd_shell = {
	.name = "shell",
	.text = "open a terminal in a sandbox",
	.help = help,
	.letters = "+e:",
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
