#include "client/client.h"
#include "base/base.h"
#include "client/list.h"
#include "client/show.h"

enum { OPT_ALL = 256 };

static const struct option options[] = {
	{ "force", no_argument, NULL, 'f' },
	{ "all", no_argument, NULL, OPT_ALL },
	{ NULL, 0, NULL, 0 },
};

static const char help[] = "usage: cloche rm [options] SANDBOX… | --all\n"
			   "\n"
			   "Ends sandboxes and removes everything in them. Prints the name of each.\n"
			   "\n"
			   "  -f, --force         one that is not there is no error\n"
			   "  --all               all of this tenant\n";

static int remove_one(struct conn *c, const char *id, bool force, json_t *removed, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct err mine = { 0 };
	int r = url_add(&path, "/v1/sandboxes/%s", id);

	if (r == 0)
		r = conn_json(c, "DELETE", buf_str(&path), NULL, NULL, &mine);
	if (r < 0 && force && mine.kind == ERR_NOT_FOUND && r == -ENOENT)
		return 0;
	if (r == 0)
		json_array_append_new(removed, json_string(id));
	else
		*e = mine;
	return r;
}

static void print_names(const json_t *removed)
{
	const json_t *v;
	size_t i;

	json_array_foreach(removed, i, v) show_line(json_string_value(v));
}

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *list = NULL, *removed = json_array();
	AUTO(conn_close) struct conn *c = NULL;
	bool force = false, all = false;
	struct err first = { 0 };
	int opt, r, bad = 0;
	json_t *s;
	size_t n;

	while ((r = args_next(a, &opt, e)) > 0) {
		force = force || opt == 'f';
		all = all || opt == OPT_ALL;
	}
	if (r < 0 || a->help)
		return r;
	r = args_count(a, all ? 0 : 1, all ? 0 : -1, all ? "options" : "SANDBOX, or --all", e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0 && all)
		r = list_sandboxes(c, "", &list, e);
	if (r < 0)
		return r;
	/* One that fails does not keep the others. */
	for (int i = 0; i < a->nrest; i++) {
		r = remove_one(c, a->rest[i], force, removed, e);
		if (r < 0 && !bad)
			first = *e;
		bad = bad ? bad : r;
	}
	json_array_foreach(list, n, s)
	{
		r = remove_one(c, show_str(s, "id"), true, removed, e);
		if (r < 0 && !bad)
			first = *e;
		bad = bad ? bad : r;
	}
	if (a->json)
		show_json(removed, SHOW_LINE, e);
	else
		print_names(removed);
	*e = first;
	/* The list is the answer, and there is only one of them. */
	a->json = a->json && !bad;
	return bad;
}

const struct command cmd_rm = {
	.name = "rm",
	.text = "end and remove sandboxes",
	.help = help,
	.letters = "f",
	.options = options,
	.complete = COMPLETE_SANDBOX,
	.run = run,
};
