/* `cloche port`: the access to ports of a sandbox (docs/ports.md). */
#include "client/client.h"
#include "base/base.h"
#include "client/show.h"
#include "client/table.h"

enum { OPT_PUBLIC = 256, OPT_PRIVATE, OPT_NEW_TOKEN, OPT_NO_TOKEN };

static const char help[] =
	"usage: cloche port ls SANDBOX\n"
	"       cloche port set [options] SANDBOX PORT\n"
	"       cloche port rm SANDBOX PORT…\n"
	"\n"
	"Controls access to servers inside a sandbox (docs/ports.md). API tokens always have access.\n"
	"`cloche port-forward` forwards a local port.\n"
	"\n";

static const char ls_help[] = "usage: cloche port ls SANDBOX\n"
			      "\n"
			      "Lists the ports that are public or have their own token. All others are private.\n"
			      "\n";

static const char set_help[] =
	"usage: cloche port set [options] SANDBOX PORT\n"
	"\n"
	"Sets the access to a port, and prints its path, and its new token if there is one.\n"
	"\n"
	"  --public            access without a token\n"
	"  --private           access only with a token\n"
	"  --new-token         make a token for this port only; it is printed once and replaces an earlier one\n"
	"  --no-token          remove the port's token\n";

static const char rm_help[] = "usage: cloche port rm SANDBOX PORT…\n"
			      "\n"
			      "Makes ports private again, and removes their tokens.\n"
			      "\n";

static const struct option set_options[] = {
	{ "public", no_argument, NULL, OPT_PUBLIC },
	{ "private", no_argument, NULL, OPT_PRIVATE },
	{ "new-token", no_argument, NULL, OPT_NEW_TOKEN },
	{ "no-token", no_argument, NULL, OPT_NO_TOKEN },
	{ NULL, 0, NULL, 0 },
};

static int port_call(struct args *a, struct conn *c, const char *method, const char *port, const json_t *body,
		     json_t **ret, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	int r = port ? url_add(&path, "/v1/sandboxes/%s/ports/%s", a->rest[0], port) :
		       url_add(&path, "/v1/sandboxes/%s/ports", a->rest[0]);

	return r < 0 ? r : conn_json(c, method, buf_str(&path), body, ret, e);
}

static int run_ls(struct args *a, struct err *e)
{
	static const char *const titles[] = { "PORT", "PUBLIC", "TOKEN", "PATH", "HOST" };
	AUTO(conn_close) struct conn *c = NULL;
	AUTO(table_done) struct table t;
	AUTO_JSON json_t *v = NULL;
	const json_t *one;
	size_t i;
	int r = args_only(a, e);

	table_init(&t, titles, ARRAY_LEN(titles), 1);
	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 1, 1, "SANDBOX", &c, e);
	if (r == 0)
		r = port_call(a, c, "GET", NULL, NULL, &v, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(json_object_get(v, "ports"), SHOW_LINE, e);
	json_array_foreach(json_object_get(v, "ports"), i, one)
	{
		table_addf(&t, "%llu", (unsigned long long)show_u64(one, "port"));
		table_add(&t, json_is_true(json_object_get(one, "public")) ? "yes" : "no");
		table_add(&t, json_is_true(json_object_get(one, "has_token")) ? "yes" : "no");
		table_add(&t, show_str(one, "path"));
		table_add(&t, show_str(one, "host"));
	}
	return table_print(&t, e);
}

static int run_set(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object(), *v = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0)
		json_object_set_new(body, opt <= OPT_PRIVATE ? "public" : "token",
				    json_boolean(opt == OPT_PUBLIC || opt == OPT_NEW_TOKEN));
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 2, 2, a->nrest ? "PORT" : "SANDBOX and PORT", e);
	if (r == 0 && !json_object_size(body)) {
		r = err_set(e, ERR_INVALID, -EINVAL,
			    "nothing to set: give --public, --private, --new-token or --no-token");
		err_remedy(e, "see `cloche port set --help`");
	}
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = port_call(a, c, "PUT", a->rest[1], body, &v, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	show_line(show_str(v, "path"));
	if (*show_str(v, "token"))
		show_line(show_str(v, "token"));
	return 0;
}

static int run_rm(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 2, -1, a->nrest ? "PORT" : "SANDBOX and PORT", &c, e);
	for (int i = 1; i < a->nrest && r == 0; i++) {
		r = port_call(a, c, "DELETE", a->rest[i], NULL, NULL, e);
		if (r == 0 && !a->json)
			show_line(a->rest[i]);
	}
	return r;
}

static const struct command ls = {
	.name = "port ls",
	.text = "list ports that are not private",
	.help = ls_help,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_ls,
};

static const struct command set = {
	.name = "port set",
	.text = "set the access to a port",
	.help = set_help,
	.options = set_options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_set,
};

static const struct command rm = {
	.name = "port rm",
	.text = "make ports private again",
	.help = rm_help,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_rm,
};

static const struct command *const verbs[] = { &ls, &set, &rm, NULL };

const struct command cmd_port = {
	.name = "port",
	.text = "control access to servers inside a sandbox",
	.help = help,
	.verbs = verbs,
	.run = args_noun,
};
