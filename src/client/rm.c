/* `cloche rm`. */
#include "client/client.h"
#include "base/base.h"
#include "client/list.h"
#include "client/show.h"
#include "client/thing.h"

enum { OPT_ALL = 256 };

static const struct option options[] = {
	{ "force", no_argument, NULL, 'f' },
	{ "all", no_argument, NULL, OPT_ALL },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche rm [options] SANDBOX… | --all\n"
	"\n"
	"Ends sandboxes and removes everything in them. Prints the name of each. Their checkpoints, and\n"
	"sandboxes made from those, are kept; `cloche checkpoint rm` removes checkpoints.\n"
	"\n"
	"  -f, --force         ignore sandboxes that do not exist\n"
	"  --all               all sandboxes of this tenant\n";

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *list = NULL, *removed = json_array();
	AUTO(conn_close) struct conn *c = NULL;
	struct removal m = { .thing = &thing_sandbox, .removed = removed };
	bool all = false;
	int opt, r;
	json_t *s;
	size_t n;

	while ((r = args_next(a, &opt, e)) > 0) {
		m.force = m.force || opt == 'f';
		all = all || opt == OPT_ALL;
	}
	if (r < 0 || a->help)
		return r;
	r = args_connect(a, all ? 0 : 1, all ? 0 : -1, all ? "options" : "SANDBOX, or --all", &c, e);
	if (r == 0 && all)
		r = list_sandboxes(c, "", &list, e);
	if (r < 0)
		return r;
	m.conn = c;
	for (int i = 0; i < a->nrest; i++)
		removal_one(&m, a->rest[i]);
	m.force = m.force || all; /* some may end while we go through the list */
	json_array_foreach(list, n, s) removal_one(&m, show_str(s, "id"));
	return removal_end(a, &m, e);
}

const struct command cmd_rm = {
	.name = "rm",
	.text = "end and remove sandboxes",
	.help = help,
	.letters = "f",
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
