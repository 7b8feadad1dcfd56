/* `cloche ls`. */
#include "client/client.h"
#include "base/base.h"
#include "client/list.h"
#include "client/show.h"
#include "client/table.h"
#include "client/text.h"

enum { OPT_META = 256, OPT_STATE, OPT_ALL, OPT_TENANT };

static const struct option options[] = {
	{ "meta", required_argument, NULL, OPT_META },
	{ "state", required_argument, NULL, OPT_STATE },
	{ "quiet", no_argument, NULL, 'q' },
	{ "all", no_argument, NULL, OPT_ALL },
	{ NULL, 0, NULL, 0 },
};

static const char help[] = "usage: cloche ls [options]\n"
			   "\n"
			   "Lists sandboxes, the newest first.\n"
			   "\n"
			   "  --meta NAME=VALUE   only those with this metadata (repeatable)\n"
			   "  --state STATE       only running, paused, hibernated, stopped or lost sandboxes\n"
			   "  -q, --quiet         print ids only\n"
			   "  --all               of all tenants (admin)\n";

static void add_row(struct table *t, const json_t *s, bool tenants)
{
	AUTO(buf_done) struct buf meta = BUF_INIT(64 * KIB);
	const char *id = show_str(s, "id"), *name = show_str(s, "name"), *expires = show_str(s, "expires_at");
	const json_t *cpus = json_object_get(s, "cpus");
	char tmp[32];

	table_add(t, id);
	table_add(t, strcmp(id, name) ? name : "");
	if (tenants)
		table_add(t, show_str(s, "tenant"));
	table_add(t, show_str(s, "state"));
	table_add(t, show_str(s, "image"));
	table_add(t, show_str(s, "isolation"));
	table_addf(t, "%g", json_number_value(cpus));
	table_add(t, text_size(show_u64(s, "memory"), tmp, sizeof(tmp)));
	table_add(t, show_age(show_str(s, "created_at"), tmp, sizeof(tmp)));
	table_add(t, *expires ? show_age(expires, tmp, sizeof(tmp)) : "");
	show_pairs(json_object_get(s, "metadata"), &meta);
	table_add(t, buf_str(&meta));
}

static int print(const json_t *list, bool tenants, struct err *e)
{
	static const char *const titles[] = { "ID",   "NAME",	"STATE", "IMAGE",   "ISOLATION",
					      "CPUS", "MEMORY", "AGE",	 "EXPIRES", "METADATA" };
	static const char *const more[] = { "ID",   "NAME",   "TENANT", "STATE",   "IMAGE",   "ISOLATION",
					    "CPUS", "MEMORY", "AGE",	"EXPIRES", "METADATA" };
	AUTO(table_done) struct table t;
	const json_t *s;
	size_t i;

	table_init(&t, tenants ? more : titles, tenants ? ARRAY_LEN(more) : ARRAY_LEN(titles),
		   tenants ? 0x1e0 << 1 : 0x1e0);
	json_array_foreach(list, i, s) add_row(&t, s, tenants);
	return table_print(&t, e);
}

static int run(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf query = BUF_INIT(32 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *list = NULL;
	bool quiet = false, all = false;
	const json_t *s;
	size_t i;
	int opt, r, q = 0;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == 'q') {
			quiet = true;
		} else if (opt == OPT_STATE) {
			q = url_add(&query, "&state=%s", optarg);
		} else if (opt == OPT_ALL) {
			all = true;
			q = url_add(&query, "&tenant=%s", "*");
		} else {
			r = args_query_meta(&query, optarg, e);
			if (r < 0)
				return r;
		}
		if (q < 0)
			return err_sys(e, ERR_INVALID, q, "the request is too large");
	}
	if (r == 0 && !a->help)
		r = args_count(a, 0, 0, "options", e);
	if (r < 0 || a->help)
		return r;
	r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = list_sandboxes(c, buf_str(&query), &list, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(list, SHOW_LINE, e);
	if (!quiet)
		return print(list, all, e);
	json_array_foreach(list, i, s) show_line(show_str(s, "id"));
	return 0;
}

const struct command cmd_ls = {
	.name = "ls",
	.text = "list sandboxes",
	.help = help,
	.letters = "q",
	.options = options,
	.run = run,
};
