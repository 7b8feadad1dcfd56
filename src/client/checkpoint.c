/* `cloche checkpoint`. */
#include "client/client.h"
#include "base/base.h"
#include "client/checkpoint.h"
#include "client/list.h"
#include "client/show.h"
#include "client/ref.h"
#include "client/thing.h"

static const char help[] =
	"usage: cloche checkpoint [create] [options] SANDBOX [NAME]\n"
	"       cloche checkpoint ls [options]\n"
	"       cloche checkpoint inspect CHECKPOINT…\n"
	"       cloche checkpoint rm [-f] CHECKPOINT…\n"
	"       cloche checkpoint export CHECKPOINT FILE\n"
	"       cloche checkpoint import [options] FILE\n"
	"\n"
	"A checkpoint holds the changed files of a sandbox and, with --memory, its running processes. `cloche restore`\n"
	"goes back to it or makes any number of new sandboxes from it, even after its sandbox was removed. CHECKPOINT is\n"
	"an id, or SANDBOX:NAME. `cloche checkpoint VERB --help` lists the options of each verb.\n"
	"\n";

/* ---- create ---- */

enum { OPT_LABEL = 256, OPT_META, OPT_MEMORY, OPT_SANDBOX, OPT_NAME, OPT_NETWORK };

static const struct option create_options[] = {
	{ "name", required_argument, NULL, OPT_NAME },	     { "label", required_argument, NULL, OPT_LABEL },
	{ "meta", required_argument, NULL, OPT_META },	     { "memory", optional_argument, NULL, OPT_MEMORY },
	{ "network", required_argument, NULL, OPT_NETWORK }, { NULL, 0, NULL, 0 },
};

static const char create_help[] =
	"usage: cloche checkpoint [create] [options] SANDBOX [NAME]\n"
	"\n"
	"Saves the state of a sandbox, which continues to run, and prints the checkpoint's id.\n"
	"\n"
	"  --name NAME         name, the same as NAME; unique among the sandbox's checkpoints\n"
	"  --label TEXT        a label for people\n"
	"  --meta NAME=VALUE   metadata, for `checkpoint ls --meta` (repeatable)\n"
	"  --memory[=auto]     also save running processes; fails when one of them cannot be saved.\n"
	"                      auto: save only files then; stderr says why\n"
	"  --network WHAT      connections to the outside: drop (reset in the copies; stderr lists them) or refuse   drop\n";

static int apply(json_t *body, int opt, const char *arg, struct err *e)
{
	switch (opt) {
	case OPT_META:
		return args_add_meta(body, arg, e);
	case OPT_MEMORY:
		return args_set_memory(body, arg, e);
	case OPT_NETWORK:
		return args_set_copied(body, arg, e);
	case OPT_NAME:
		return args_set_text(body, "name", arg, e);
	default:
		return args_set_text(body, "label", arg, e);
	}
}

/* As a word of its own, as `hibernate` has it, it is taken for the sandbox. */
static void tell_auto(const struct args *a, const json_t *body, struct err *e)
{
	if (!a->nrest || strcmp(a->rest[0], "auto") || !json_is_true(json_object_get(body, "memory")))
		return;
	e->remedy[0] = '\0'; /* it would lead elsewhere */
	err_remedy(e, "write `--memory=auto` as one argument, with the `=`");
}

static int run_create(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *body = json_object(), *v = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		r = apply(body, opt, optarg, e);
		if (r < 0)
			return r;
	}
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, 2, "SANDBOX", e);
	if (r == 0 && a->nrest == 2 && json_object_get(body, "name"))
		r = err_set(e, ERR_INVALID, -EINVAL, "--name and NAME '%.60s' are both given: use one of them",
			    a->rest[1]);
	if (r == 0 && a->nrest == 2)
		r = args_set_text(body, "name", a->rest[1], e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s/checkpoints", a->rest[0]);
	if (r == 0 && !a->json)
		conn_doing(c, "cloche: waiting for the checkpoint");
	if (r == 0)
		r = conn_json(c, "POST", buf_str(&path), body, &v, e);
	if (r < 0) {
		tell_auto(a, body, e);
		return r;
	}
	if (*show_str(v, "memory_refused"))
		show_warn("files only: %s", show_str(v, "memory_refused"));
	show_cut(v);
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	show_line(show_str(v, "id"));
	return 0;
}

/* ---- ls ---- */

static const struct option ls_options[] = {
	{ "sandbox", required_argument, NULL, OPT_SANDBOX },
	{ "name", required_argument, NULL, OPT_NAME },
	{ "label", required_argument, NULL, OPT_LABEL },
	{ "meta", required_argument, NULL, OPT_META },
	{ "quiet", no_argument, NULL, 'q' },
	{ NULL, 0, NULL, 0 },
};

static const char ls_help[] = "usage: cloche checkpoint ls [options]\n"
			      "\n"
			      "Lists checkpoints, the newest first.\n"
			      "\n"
			      "  --sandbox SANDBOX   only those of this sandbox (by id when it was removed)\n"
			      "  --name NAME         only those with this name\n"
			      "  --label TEXT        only those with this label\n"
			      "  --meta NAME=VALUE   only those with this metadata (repeatable)\n"
			      "  -q, --quiet         print ids only\n";

static void cell_sandbox(struct table *t, const json_t *one, const char *field)
{
	const char *name = show_str(one, "sandbox_name");

	table_add(t, *name ? name : show_str(one, field));
}

static void cell_memory(struct table *t, const json_t *one, const char *field)
{
	if (json_is_true(json_object_get(one, "memory")))
		cell_size(t, one, field);
	else
		table_add(t, "");
}

static int checkpoint_url(struct buf *b, const char *word)
{
	return ref_url(b, word, "", "");
}

static const struct column columns[] = {
	{ "ID", cell_text, "id" },
	{ "NAME", cell_text, "name" },
	{ "SANDBOX", cell_sandbox, "sandbox" },
	{ "IMAGE", cell_text, "image" },
	{ "SIZE", cell_size, "size" },
	{ "MEMORY", cell_memory, "memory_size" },
	{ "FILES", cell_number, "files" },
	{ "AGE", cell_age, "created_at" },
	{ "STATE", cell_text, "state" },
	{ "LABEL", cell_text, "label" },
	{ NULL, NULL, NULL },
};

static const struct thing checkpoint = {
	"CHECKPOINT", "/v1/checkpoints", "checkpoints", checkpoint_url, columns, 0xf0
};

static int add_query(struct buf *query, int opt, char *arg, struct err *e)
{
	int r;

	if (opt == OPT_META)
		return args_query_meta(query, arg, e);
	r = url_add(query, opt == OPT_SANDBOX ? "&sandbox=%s" : opt == OPT_NAME ? "&name=%s" : "&label=%s", arg);
	return r < 0 ? err_sys(e, ERR_INVALID, r, "the request is too large") : 0;
}

static int run_ls(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf query = BUF_INIT(32 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *list = NULL;
	bool quiet = false;
	const json_t *one;
	size_t i;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		quiet = quiet || opt == 'q';
		r = opt == 'q' ? 0 : add_query(&query, opt, optarg, e);
		if (r < 0)
			return r;
	}
	if (r == 0 && !a->help)
		r = args_count(a, 0, 0, "options", e);
	if (r < 0 || a->help)
		return r;
	r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = list_checkpoints(c, buf_str(&query), &list, e);
	if (r < 0)
		return r;
	if (a->json || !quiet)
		return thing_print(a, &checkpoint, list, e);
	json_array_foreach(list, i, one) show_line(show_str(one, "id"));
	return 0;
}

/* ---- inspect, rm ---- */

static const char inspect_help[] = "usage: cloche checkpoint inspect CHECKPOINT…\n"
				   "\n"
				   "Prints all details of checkpoints as JSON; an array when there are several.\n"
				   "\n";

static const char rm_help[] = "usage: cloche checkpoint rm [-f] CHECKPOINT…\n"
			      "\n"
			      "Removes checkpoints. Sandboxes and checkpoints based on them are not affected.\n"
			      "\n"
			      "  -f, --force         ignore checkpoints that do not exist\n";

static const struct command create = {
	.name = "checkpoint create",
	.text = "save the state of a sandbox",
	.help = create_help,
	.options = create_options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_create,
};

static const struct command ls = {
	.name = "checkpoint ls",
	.text = "list checkpoints",
	.help = ls_help,
	.letters = "q",
	.options = ls_options,
	.run = run_ls,
};

static const struct command inspect = THING_INSPECT(checkpoint, "print all details of a checkpoint", inspect_help);
static const struct command rm = THING_RM(checkpoint, "remove checkpoints", rm_help);

static const struct command *const verbs[] = {
	&create, &ls, &inspect, &rm, &checkpoint_export, &checkpoint_import, NULL
};

const struct command cmd_checkpoint = {
	.name = "checkpoint",
	.text = "save, list, export, import and remove states of sandboxes",
	.help = help,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.verbs = verbs,
	.first_verb = true,
	.run = args_noun,
};
