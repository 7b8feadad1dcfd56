/* `cloche pool`. */
#include "client/client.h"
#include "base/base.h"
#include "base/str.h"
#include "client/show.h"
#include "client/thing.h"

enum { OPT_TEMPLATE = 256, OPT_MIN, OPT_MAX };

static const char help[] =
	"usage: cloche pool set --template NAME --min N [--max N] NAME\n"
	"       cloche pool ls\n"
	"       cloche pool inspect NAME…\n"
	"       cloche pool rm [-f] NAME…\n"
	"\n"
	"A pool keeps sandboxes of a template ready. `cloche create --template` takes one of them when it asks for\n"
	"no other settings; each is handed out once and never returns to the pool.\n"
	"\n";

static const struct thing pool;

/* ---- set ---- */

static const struct option set_options[] = {
	{ "template", required_argument, NULL, OPT_TEMPLATE },
	{ "min", required_argument, NULL, OPT_MIN },
	{ "max", required_argument, NULL, OPT_MAX },
	{ NULL, 0, NULL, 0 },
};

static const char set_help[] = "usage: cloche pool set --template NAME --min N [--max N] NAME\n"
			       "\n"
			       "Makes a pool, or changes it.\n"
			       "\n"
			       "  --template NAME     template of the sandboxes\n"
			       "  --min N             number of sandboxes to keep ready, up to 256\n"
			       "  --max N             limit, including sandboxes that were handed out   none\n";

static int apply(json_t *body, int opt, const char *arg, struct err *e)
{
	uint64_t n;
	int r;

	if (opt == OPT_TEMPLATE)
		return args_set_text(body, "template", arg, e);
	r = parse_u64(arg, &n, e);
	if (r == 0 && n > 1024)
		r = err_set(e, ERR_INVALID, -ERANGE, "'%.40s': must be at most 1024", arg);
	if (r < 0)
		return err_wrap(e, r, opt == OPT_MIN ? "--min" : "--max");
	json_object_set_new(body, opt == OPT_MIN ? "min" : "max", json_integer((json_int_t)n));
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
	if (r == 0 && (!json_object_get(body, "template") || !json_object_get(body, "min"))) {
		r = err_set(e, ERR_INVALID, -EINVAL, "a pool needs --template and --min");
		err_remedy(e, "see `cloche pool set --help`");
	}
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	return r < 0 ? r : thing_put(a, c, &pool, body, e);
}

/* ---- ls, inspect, rm ---- */

static const char ls_help[] =
	"usage: cloche pool ls\n"
	"\n"
	"Lists pools: how many sandboxes are ready, exist (including those handed out), were served, were missed\n"
	"(created on demand) and failed.\n"
	"\n";

static const struct column columns[] = {
	{ "NAME", cell_text, "name" },
	{ "TEMPLATE", cell_text, "template" },
	{ "MIN", cell_number, "min" },
	{ "MAX", cell_number, "max" },
	{ "READY", cell_number, "ready" },
	{ "ALIVE", cell_number, "alive" },
	{ "SERVED", cell_number, "served" },
	{ "MISSED", cell_number, "missed" },
	{ "FAILED", cell_number, "failed" },
	{ "LAST ERROR", cell_text, "last_error" },
	{ NULL, NULL, NULL },
};

static const struct thing pool = { "POOL", "/v1/pools", "pools", NULL, columns, 0x1fc };

static const char inspect_help[] = "usage: cloche pool inspect NAME…\n"
				   "\n"
				   "Prints all details of pools as JSON; an array when there are several.\n"
				   "\n";

static const char rm_help[] = "usage: cloche pool rm [-f] NAME…\n"
			      "\n"
			      "Removes pools and their ready sandboxes. Sandboxes that were handed out are kept.\n"
			      "\n"
			      "  -f, --force         ignore pools that do not exist\n";

static const struct command set = {
	.name = "pool set",
	.text = "make or change a pool",
	.help = set_help,
	.options = set_options,
	.complete = COMPLETE_NAMES,
	.names = "pool",
	.run = run_set,
};

static const struct command ls = THING_LS(pool, "list pools", ls_help);
static const struct command inspect = THING_INSPECT(pool, "print all details of a pool", inspect_help);
static const struct command rm = THING_RM(pool, "remove pools", rm_help);

static const struct command *const verbs[] = { &set, &ls, &inspect, &rm, NULL };

const struct command cmd_pool = {
	.name = "pool",
	.text = "manage pools of ready sandboxes",
	.help = help,
	.verbs = verbs,
	.run = args_noun,
};
