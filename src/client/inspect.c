#include "client/client.h"
#include "base/base.h"
#include "client/show.h"

static const char help[] = "usage: cloche inspect SANDBOX…\n"
			   "\n"
			   "Shows everything known about sandboxes, as JSON; several become one array.\n"
			   "\n";

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *all = json_array();
	AUTO(conn_close) struct conn *c = NULL;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, -1, "SANDBOX", e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	for (int i = 0; i < a->nrest && r == 0; i++) {
		AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
		json_t *one = NULL;

		r = url_add(&path, "/v1/sandboxes/%s", a->rest[i]);
		if (r == 0)
			r = conn_get(c, buf_str(&path), &one, e);
		if (r == 0)
			json_array_append_new(all, one);
	}
	if (r < 0)
		return r;
	return show_json(a->nrest == 1 ? json_array_get(all, 0) : all, a->json ? SHOW_LINE : SHOW_PRETTY, e);
}

const struct command cmd_inspect = {
	.name = "inspect",
	.text = "everything about a sandbox",
	.help = help,
	.complete = COMPLETE_SANDBOX,
	.run = run,
};
