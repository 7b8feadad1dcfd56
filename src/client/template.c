/* `cloche template`. */
#include "client/client.h"
#include "base/base.h"
#include "client/input.h"
#include "client/ref.h"
#include "client/show.h"
#include "client/thing.h"
#include "client/want.h"

#include <fcntl.h>
#include <unistd.h>

#define CODE_MAX (1 * MIB)

enum {
	OPT_CHECKPOINT = 256,
	OPT_START,
	OPT_WARM_PYTHON,
	OPT_WARM,
	OPT_READY,
	OPT_WARM_CONTEXT,
	OPT_WARM_TIMEOUT,
	OPT_DESCRIPTION
};

static const char help[] =
	"usage: cloche template set [options] NAME\n"
	"       cloche template ls\n"
	"       cloche template inspect NAME…\n"
	"       cloche template rm [-f] NAME…\n"
	"\n"
	"A template names the settings of new sandboxes and what is prepared ahead for them: `cloche create --template\n"
	"NAME`. `cloche template set --help` lists the options.\n"
	"\n";

static const struct thing template;

/* ---- set ---- */

static const struct option set_options[] = {
	{ "checkpoint", required_argument, NULL, OPT_CHECKPOINT },
	{ "start", required_argument, NULL, OPT_START },
	{ "warm-python", required_argument, NULL, OPT_WARM_PYTHON },
	{ "warm", required_argument, NULL, OPT_WARM },
	{ "warm-context", required_argument, NULL, OPT_WARM_CONTEXT },
	{ "ready", required_argument, NULL, OPT_READY },
	{ "warm-timeout", required_argument, NULL, OPT_WARM_TIMEOUT },
	{ "description", required_argument, NULL, OPT_DESCRIPTION },
	{ NULL, 0, NULL, 0 },
};

static const char set_help[] =
	"usage: cloche template set [options] NAME\n"
	"\n"
	"Makes or replaces a template: settings that are not given get their defaults, not their earlier values. With warm\n"
	"code, the command returns when it is ready, or says why it failed.\n"
	"\n"
	"  --description TEXT  description of the template\n"
	"  --checkpoint CHECKPOINT   new sandboxes start with its files: an id, or SANDBOX:NAME\n"
	"  --start LINE        a line for /bin/sh that runs in the background of every new sandbox\n"
	"  --warm-python CODE  code to run once, ahead, as `import numpy, pandas`; `cloche exec --code` continues it.\n"
	"                      @FILE reads it from a file, @- from stdin\n"
	"  --warm-context python  a started context of the code interpreter, in every new sandbox\n"
	"  --warm LINE         a line for /bin/sh that is started ahead, and continues in every new sandbox\n"
	"  --ready TEXT        text that --warm writes to its stdout when it is ready\n"
	"  --warm-timeout TIME   limit for the warm code to become ready\n"
	"settings of its sandboxes, unless a create overrides them:\n";

static int read_code(const char *name, json_t **ret, struct err *e)
{
	bool std = !strcmp(name, "-");
	AUTO_CLOSE int fd = std ? -1 : open(name, O_RDONLY | O_CLOEXEC);
	AUTO(buf_done) struct buf b = BUF_INIT(CODE_MAX);
	int r;

	if (!std && fd < 0)
		return err_sys(e, ERR_NOT_FOUND, -errno, "%.150s", name);
	r = input_read(std ? STDIN_FILENO : fd, std ? "stdin" : name, &b, e);
	if (r < 0)
		return r;
	*ret = json_stringn(buf_str(&b), b.len);
	return *ret ? 0 : err_set(e, ERR_INVALID, -EINVAL, "%.150s: not UTF-8", name);
}

static json_t *part(json_t *body, const char *key)
{
	json_t *o = json_object_get(body, key);

	if (!o) {
		o = json_object();
		json_object_set_new(body, key, o);
	}
	return o;
}

static int set_warm(json_t *body, const char *arg, struct err *e)
{
	json_t *code = NULL;
	int r;

	if (arg[0] != '@')
		return args_set_text(part(body, "warm"), "python", arg, e);
	r = read_code(arg + 1, &code, e);
	if (r == 0)
		json_object_set_new(part(body, "warm"), "python", code);
	return r;
}

static int apply(json_t *body, int opt, const char *arg, struct err *e)
{
	char *shell[] = { (char[]){ "/bin/sh" }, (char[]){ "-c" }, (char *)(uintptr_t)arg };
	int r;

	switch (opt) {
	case OPT_CHECKPOINT:
		return args_set_text(body, "checkpoint", arg, e);
	case OPT_DESCRIPTION:
		return args_set_text(body, "description", arg, e);
	case OPT_START:
		return args_set_text(part(body, "start"), "shell", arg, e);
	case OPT_WARM_PYTHON:
		return set_warm(body, arg, e);
	case OPT_WARM:
		return args_set_words(part(body, "warm"), "cmd", shell, ARRAY_LEN(shell), e);
	case OPT_WARM_CONTEXT:
		return args_set_text(part(body, "warm"), "context", arg, e);
	case OPT_READY:
		return args_set_text(part(body, "warm"), "ready", arg, e);
	case OPT_WARM_TIMEOUT:
		r = args_set_time(part(body, "warm"), "timeout", arg, e);
		return r < 0 ? err_wrap(e, r, "--warm-timeout") : 0;
	default:
		return want_apply(body, opt, arg, e);
	}
}

static int check_warm(const json_t *warm, struct err *e)
{
	bool python = json_object_get(warm, "python"), cmd = json_object_get(warm, "cmd"),
	     ready = json_object_get(warm, "ready"), context = json_object_get(warm, "context");

	if (python && (cmd || ready))
		return err_set(e, ERR_INVALID, -EINVAL, "--warm-python cannot be used with --warm and --ready");
	if (cmd != ready)
		return err_set(e, ERR_INVALID, -EINVAL, "--warm and --ready must be used together");
	if (context && (python || cmd || ready))
		return err_set(e, ERR_INVALID, -EINVAL,
			       "--warm-context cannot be used with --warm, --ready and --warm-python");
	if (warm && !python && !cmd && !context)
		return err_set(e, ERR_INVALID, -EINVAL, "--warm-timeout needs --warm-python, --warm-context or --warm");
	return 0;
}

static int run_set(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object();
	AUTO(conn_close) struct conn *c = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		r = apply(body, opt, optarg, e);
		if (r < 0)
			return r;
	}
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, 1, "NAME", e);
	if (r == 0)
		r = check_warm(json_object_get(body, "warm"), e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = ref_resolve(c, body, "checkpoint", e);
	if (r == 0 && !a->json && json_object_get(body, "warm"))
		conn_doing(c, "cloche: waiting until the warm code is ready");
	return r < 0 ? r : thing_put(a, c, &template, body, e);
}

/* ---- ls, inspect, rm ---- */

static const char ls_help[] = "usage: cloche template ls\n"
			      "\n"
			      "Lists templates.\n"
			      "\n";

static void cell_config(struct table *t, const json_t *one, const char *field)
{
	table_add(t, show_str(json_object_get(one, "config"), field));
}

static void cell_warm(struct table *t, const json_t *one, const char *field)
{
	const json_t *warm = json_object_get(one, field);
	bool ready = json_is_true(json_object_get(warm, "ready")) || *show_str(warm, "since");

	table_add(t, !json_is_object(warm) ? "" : ready ? "ready" : "not yet");
}

static const struct column columns[] = {
	{ "NAME", cell_text, "name" },
	{ "VERSION", cell_number, "version" },
	{ "IMAGE", cell_config, "image" },
	{ "ISOLATION", cell_config, "isolation" },
	{ "CHECKPOINT", cell_text, "checkpoint" },
	{ "WARM", cell_warm, "warm" },
	{ "UPDATED", cell_age, "updated_at" },
	{ "DESCRIPTION", cell_text, "description" },
	{ NULL, NULL, NULL },
};

static const struct thing template = { "TEMPLATE", "/v1/templates", "templates", NULL, columns, 2 };

static const char inspect_help[] = "usage: cloche template inspect NAME…\n"
				   "\n"
				   "Prints all details of templates as JSON; an array when there are several.\n"
				   "\n";

static const char rm_help[] =
	"usage: cloche template rm [-f] NAME…\n"
	"\n"
	"Removes templates. Sandboxes made from them are kept; remove pools of a template first.\n"
	"\n"
	"  -f, --force         ignore templates that do not exist\n";

static const struct command set = {
	.name = "template set",
	.text = "make or change a template",
	.help = set_help,
	.more_help = want_help,
	.letters = "e:",
	.options = set_options,
	.more = want_options,
	.complete = COMPLETE_NAMES,
	.names = "template",
	.run = run_set,
};

static const struct command ls = THING_LS(template, "list templates", ls_help);
static const struct command inspect = THING_INSPECT(template, "print all details of a template", inspect_help);
static const struct command rm = THING_RM(template, "remove templates", rm_help);

static const struct command *const verbs[] = { &set, &ls, &inspect, &rm, NULL };

const struct command cmd_template = {
	.name = "template",
	.text = "manage templates for new sandboxes",
	.help = help,
	.verbs = verbs,
	.run = args_noun,
};
