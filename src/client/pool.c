#include "client/client.h"
#include "base/base.h"
#include "base/str.h"
#include "client/show.h"
#include "client/table.h"
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
	r = args_count(a, 1, 1, "NAME", e);
	if (r == 0 && (!json_object_get(body, "template") || !json_object_get(body, "min"))) {
		r = err_set(e, ERR_INVALID, -EINVAL, "a pool needs --template and --min");
		err_remedy(e, "see `cloche pool set --help`");
	}
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = url_add(&path, "/v1/pools/%s", a->rest[0]);
	if (r == 0)
		r = conn_json(c, "PUT", buf_str(&path), body, &v, e);
	return r == 0 && a->json ? show_json(v, SHOW_LINE, e) : r;
}

/* ---- ls, inspect, rm ---- */

static const char ls_help[] =
	"usage: cloche pool ls\n"
	"\n"
	"Lists pools: how many sandboxes are ready, exist (including those handed out), were served, were missed\n"
	"(created on demand) and failed.\n"
	"\n";

static int run_ls(struct args *a, struct err *e)
{
	static const char *const titles[] = { "NAME",  "TEMPLATE", "MIN",    "MAX",    "READY",
					      "ALIVE", "SERVED",   "MISSED", "FAILED", "LAST ERROR" };
	static const char *const numbers[] = { "min", "max", "ready", "alive", "served", "missed", "failed" };
	AUTO(conn_close) struct conn *c = NULL;
	AUTO(table_done) struct table t;
	AUTO_JSON json_t *v = NULL;
	const json_t *list, *one;
	size_t i;
	int r = args_only(a, e);

	table_init(&t, titles, ARRAY_LEN(titles), 0x1fc);
	if (r == 0 && !a->help)
		r = args_count(a, 0, 0, "options", e);
	if (r < 0 || a->help)
		return r;
	r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = conn_get(c, "/v1/pools", &v, e);
	if (r < 0)
		return r;
	list = json_object_get(v, "pools");
	if (a->json)
		return show_json(list, SHOW_LINE, e);
	json_array_foreach(list, i, one)
	{
		table_add(&t, show_str(one, "name"));
		table_add(&t, show_str(one, "template"));
		for (size_t k = 0; k < ARRAY_LEN(numbers); k++)
			table_addf(&t, "%llu", (unsigned long long)show_u64(one, numbers[k]));
		table_add(&t, show_str(one, "last_error"));
	}
	return table_print(&t, e);
}

static const char inspect_help[] = "usage: cloche pool inspect NAME…\n"
				   "\n"
				   "Prints all details of pools as JSON; an array when there are several.\n"
				   "\n";

static int run_inspect(struct args *a, struct err *e)
{
	return thing_inspect(a, &thing_pool, e);
}

static const char rm_help[] = "usage: cloche pool rm [-f] NAME…\n"
			      "\n"
			      "Removes pools and their ready sandboxes. Sandboxes that were handed out are kept.\n"
			      "\n"
			      "  -f, --force         ignore pools that do not exist\n";

static int run_rm(struct args *a, struct err *e)
{
	return thing_rm(a, &thing_pool, e);
}

static const struct command set = {
	.name = "pool set",
	.text = "make or change a pool",
	.help = set_help,
	.options = set_options,
	.complete = COMPLETE_NAMES,
	.names = "pool",
	.run = run_set,
};

static const struct command ls = {
	.name = "pool ls",
	.text = "list pools",
	.help = ls_help,
	.run = run_ls,
};

static const struct command inspect = {
	.name = "pool inspect",
	.text = "print all details of a pool",
	.help = inspect_help,
	.complete = COMPLETE_NAMES,
	.names = "pool",
	.run = run_inspect,
};

static const struct command rm = {
	.name = "pool rm",
	.text = "remove pools",
	.help = rm_help,
	.letters = "f",
	.options = thing_rm_options,
	.complete = COMPLETE_NAMES,
	.names = "pool",
	.run = run_rm,
};

static const struct command *const verbs[] = { &set, &ls, &inspect, &rm, NULL };

const struct command cmd_pool = {
	.name = "pool",
	.text = "manage pools of ready sandboxes",
	.help = help,
	.verbs = verbs,
	.run = args_noun,
};
