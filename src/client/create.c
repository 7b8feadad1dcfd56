/* `cloche create`. */
#include "client/client.h"
#include "base/base.h"
#include "client/ref.h"
#include "client/show.h"
#include "client/want.h"

#define WAITS "cloche: waiting for the sandbox; the first virtual machine takes longer"

enum { OPT_VERBOSE = 'v', OPT_NAME = 256, OPT_KEY, OPT_TEMPLATE, OPT_CHECKPOINT };

static const struct option options[] = {
	{ "name", required_argument, NULL, OPT_NAME },
	{ "key", required_argument, NULL, OPT_KEY },
	{ "template", required_argument, NULL, OPT_TEMPLATE },
	{ "checkpoint", required_argument, NULL, OPT_CHECKPOINT },
	{ "verbose", no_argument, NULL, OPT_VERBOSE },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche create [options]\n"
	"\n"
	"Makes a sandbox that stays until it is removed, and prints its id.\n"
	"\n"
	"  cloche create --name box --memory 1G --ttl 1h\n"
	"\n"
	"identity\n"
	"  --name NAME         name, usable in place of its id               the id\n"
	"  --key KEY           get or create: the same key always names the same sandbox\n"
	"source\n"
	"  --template NAME     start from the settings of a template, or take a sandbox of its pool\n"
	"  --checkpoint CHECKPOINT   start from its files (and memory) and settings: an id, or SANDBOX:NAME\n"
	"  -v, --verbose       with --template: also print what could not be renewed in its processes\n";

static int run(struct args *a, struct err *e)
{
	static const char *const fields[] = { "name", "key", "template", "checkpoint" };
	AUTO_JSON json_t *body = json_object(), *answer = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	bool verbose = false;
	const char *cpus;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == OPT_VERBOSE) {
			verbose = true;
			continue;
		}
		if (opt >= OPT_NAME && opt <= OPT_CHECKPOINT)
			r = args_set_text(body, fields[opt - OPT_NAME], optarg, e);
		else
			r = want_apply(body, opt, optarg, e);
		if (r < 0)
			return r;
	}
	if (r == 0 && !a->help && (r = args_count(a, 0, 0, "options", e)) < 0) { /* as `docker run -v`, `docker run` */
		e->remedy[0] = '\0';
		err_remedy(e, "%s",
			   verbose ? "folders are mounted with --mount SRC:DST[:ro]; -v is --verbose here" :
				     "an image is given with --image; `cloche exec SANDBOX -- COMMAND` runs a command");
	}
	if (r < 0 || a->help)
		return r;
	r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = ref_resolve(c, body, "checkpoint", e);
	if (r == 0 && !a->json)
		conn_doing(c, WAITS);
	if (r == 0)
		r = conn_json(c, "POST", "/v1/sandboxes", body, &answer, e);
	if (r < 0)
		return r;
	/* Notes of a template are the same for each sandbox: they are printed with --verbose only. */
	show_not_done(answer, json_object_get(body, "template") && !verbose ? SHOW_WARNINGS : SHOW_NOTES);
	if (a->json)
		return show_json(answer, SHOW_LINE, e);
	cpus = show_str(json_object_get(answer, "enforced"), "cpus");
	if (strstr(cpus, "this host has"))
		show_warn("note: --cpus: %s", cpus);
	show_line(show_str(answer, "id"));
	return 0;
}

const struct command cmd_create = {
	.name = "create",
	.text = "make a sandbox that stays",
	.help = help,
	.more_help = want_help,
	.letters = "ve:",
	.options = options,
	.more = want_options,
	.run = run,
};
