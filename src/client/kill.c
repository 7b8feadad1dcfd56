/* `cloche kill`. */
#include "client/client.h"
#include "base/base.h"
#include "client/show.h"

static const struct option options[] = {
	{ "signal", required_argument, NULL, 's' },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche kill [options] SANDBOX EXEC…\n"
	"\n"
	"Ends execs with all their processes (KILL), waits until they have ended and prints their ids. The sandbox stays:\n"
	"`cloche rm` removes it. `cloche logs --list SANDBOX` lists execs.\n"
	"\n"
	"  -s, --signal NAME   send this signal to all processes of the exec instead, as TERM or 15, and do not wait\n";

static json_t *signal_body(const char *name)
{
	char *end = NULL;
	long number = strtol(name, &end, 10);

	if (*name && !*end)
		return json_pack("{s:I}", "signal", (json_int_t)number);
	return json_pack("{s:s}", "signal", name);
}

static int kill_one(struct args *a, struct conn *c, const char *exec, const char *name, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *body = NULL, *answer = NULL;
	int r = url_add(&path, "/v1/sandboxes/%s/execs/%s", a->rest[0], exec);

	if (r == 0 && name) {
		body = signal_body(name);
		if (!body)
			return err_set(e, ERR_INVALID, -EINVAL, "--signal '%.20s': not UTF-8", name);
		r = buf_adds(&path, "/signal");
	}
	if (r == 0)
		r = conn_json(c, name ? "POST" : "DELETE", buf_str(&path), body, &answer, e);
	if (r < 0)
		return r;
	if (a->json && answer)
		return show_json(answer, SHOW_LINE, e);
	if (!a->json)
		show_line(exec);
	return 0;
}

static int run(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	const char *name = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0)
		name = optarg;
	if (r < 0 || a->help)
		return r;
	if (a->nrest == 1) {
		err_set(e, ERR_INVALID, -EINVAL, "missing EXEC");
		err_remedy(e, "`cloche logs --list %.64s` lists its execs; `cloche rm %.64s` ends the sandbox",
			   a->rest[0], a->rest[0]);
		return -EINVAL;
	}
	r = args_connect(a, 2, -1, "SANDBOX and EXEC", &c, e);
	for (int i = 1; i < a->nrest && r == 0; i++)
		r = kill_one(a, c, a->rest[i], name, e);
	return r;
}

const struct command cmd_kill = {
	.name = "kill",
	.text = "end execs, or send them a signal",
	.help = help,
	.letters = "s:",
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
