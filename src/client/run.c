/*
 * `cloche run --image NAME` of a stored image: only the daemon has those, so a sandbox of its is made, the command runs in it as
 * with `cloche exec`, and it is removed. `cloche` comes here when the image is neither `host` nor a folder.
 */
#include "client/client.h"
#include "base/base.h"
#include "client/image.h"
#include "client/input.h"
#include "client/session.h"
#include "client/show.h"
#include "client/want.h"

#include <unistd.h>

#define IDLE_S 60 /* what is left of a run that was killed goes after so long without a call */

enum { OPT_ENTRYPOINT = 256, OPT_NO_TTY, OPT_RM };

static const struct option options[] = {
	{ "entrypoint", required_argument, NULL, OPT_ENTRYPOINT },
	{ "tty", no_argument, NULL, 't' },
	{ "no-tty", no_argument, NULL, OPT_NO_TTY },
	{ "interactive", no_argument, NULL, 'i' },
	{ "rm", no_argument, NULL, OPT_RM },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche run --image IMAGE [options] [-- COMMAND [ARG…]]\n"
	"\n"
	"Runs a command in a new sandbox of a stored image, by a daemon, and removes the sandbox. Without COMMAND the\n"
	"image's own runs; with one, it is what the image's entrypoint gets.\n"
	"\n"
	"  --entrypoint PROGRAM   instead of the image's; \"\" for none\n"
	"  -t, --tty           a terminal                                    when stdin and stdout are one\n"
	"  --no-tty            none\n"
	"  -i, --interactive, --rm   no effect: stdin is always passed on, and the sandbox always removed\n";

struct run {
	json_t *body;
	const char *image, *entrypoint; /* NULL: the image's own */
	enum { TTY_AUTO, TTY_YES, TTY_NO } tty;
};

static int apply(struct run *x, int opt, char *arg, struct err *e)
{
	switch (opt) {
	case OPT_ENTRYPOINT:
		x->entrypoint = arg;
		return 0;
	case 't':
		x->tty = TTY_YES;
		return 0;
	case OPT_NO_TTY:
		x->tty = TTY_NO;
		return 0;
	case 'i': /* as it is in any case */
	case OPT_RM:
		return 0;
	default:
		return want_apply(x->body, opt, arg, e);
	}
}

static void add_all(json_t *to, const json_t *words)
{
	for (size_t i = 0; i < json_array_size(words); i++)
		json_array_append(to, json_array_get(words, i));
}

/* The entrypoint, then the words of the caller; without those, of the image, unless the entrypoint is another. */
static int command_of(const struct run *x, const struct args *a, const json_t *image, json_t *exec, struct err *e)
{
	const json_t *config = json_object_get(image, "config");
	json_t *cmd = json_array();

	if (x->entrypoint && *x->entrypoint)
		json_array_append_new(cmd, json_string(x->entrypoint));
	else if (!x->entrypoint)
		add_all(cmd, json_object_get(config, "entrypoint"));
	for (int i = 0; i < a->nrest; i++)
		if (json_array_append_new(cmd, json_string(a->rest[i])) < 0) {
			json_decref(cmd);
			return err_set(e, ERR_INVALID, -EINVAL, "argument %d is not UTF-8", i + 1);
		}
	if (!a->nrest && !x->entrypoint)
		add_all(cmd, json_object_get(config, "cmd"));
	if (!json_array_size(cmd)) {
		json_decref(cmd);
		err_set(e, ERR_INVALID, -EINVAL, "image '%.100s' has no command of its own", x->image);
		err_remedy(e, "give one, as in `cloche run --image %.100s -- /bin/sh`", x->image);
		return -EINVAL;
	}
	json_object_set_new(exec, "cmd", cmd);
	return 0;
}

static int run_in(struct conn *c, const struct run *x, const char *sandbox, json_t *exec, struct err *e)
{
	struct session_opts o = { .sandbox = sandbox, .body = exec, .input = true };
	struct session_end end;
	int r;

	o.tty = x->tty == TTY_YES || (x->tty == TTY_AUTO && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
	keys_parse("ctrl-p,ctrl-q", &o.keys, NULL);
	if (o.tty)
		session_set_tty(exec);
	else
		json_object_set_new(exec, "stdin_open", json_true());
	r = session_run(c, &o, &end, e);
	return r < 0 ? r : session_finish(&o, &end);
}

/* One request and one answer, in the shape of `cloche run --json`. */
static int run_json(struct conn *c, const json_t *sandbox, json_t *exec, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *answer = NULL;
	int r = isatty(STDIN_FILENO) ? 0 : input_set(exec, e);

	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s/execs", show_str(sandbox, "id"));
	if (r == 0)
		r = conn_json(c, "POST", buf_str(&path), exec, &answer, e);
	if (r < 0)
		return r;
	json_object_set(answer, "enforced", json_object_get(sandbox, "enforced"));
	r = show_json(answer, SHOW_LINE, e);
	return r < 0 ? r : session_exit_code(answer);
}

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object(), *exec = json_object(), *image = NULL, *sandbox = NULL;
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB), remove = BUF_INIT(8 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	struct run x = { .body = body };
	int opt, r, code;

	while ((r = args_next(a, &opt, e)) > 0) {
		r = apply(&x, opt, optarg, e);
		if (r < 0)
			return r;
	}
	if (r < 0 || a->help)
		return r;
	if (a->json && x.tty == TTY_YES)
		return err_set(e, ERR_INVALID, -EINVAL, "--json cannot be used with --tty");
	x.image = show_str(body, "image");
	if (!json_object_get(body, "idle"))
		json_object_set_new(body, "idle", json_integer(IDLE_S));
	r = conn_open(&a->conn, &c, e);
	if (r < 0)
		return err_wrap(e, r, "image '%.60s' can only be one that a daemon stores", x.image);
	if (image_url(&path, x.image, "") < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "the name of the image is too long");
	r = conn_get(c, buf_str(&path), &image, e);
	if (r == 0)
		r = command_of(&x, a, image, exec, e);
	if (r == 0)
		r = conn_json(c, "POST", "/v1/sandboxes", body, &sandbox, e);
	if (r < 0)
		return r;
	code = a->json ? run_json(c, sandbox, exec, e) : run_in(c, &x, show_str(sandbox, "id"), exec, e);
	if (code < 0)
		a->error_code = session_error_code(e);
	r = url_add(&remove, "/v1/sandboxes/%s", show_str(sandbox, "id"));
	if (r == 0)
		conn_json(c, "DELETE", buf_str(&remove), NULL, NULL, NULL);
	return code;
}

const struct command cmd_run = {
	.name = "run",
	.text = "run a command in a new sandbox",
	.help = help,
	.more_help = want_help,
	.letters = "+ite:",
	.options = options,
	.more = want_options,
	.run = run,
};
