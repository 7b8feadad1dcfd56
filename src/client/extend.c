/* What of a sandbox can be changed while it runs, without a word to what runs in it: how long it stays, and its name. */
#include "client/client.h"
#include "base/base.h"
#include "client/show.h"

static const char extend_help[] =
	"usage: cloche extend SANDBOX TIME\n"
	"\n"
	"Sets when a sandbox is removed: TIME from now, as 30m or 2h; 0: never. Prints that time.\n"
	"\n";

static const char rename_help[] = "usage: cloche rename SANDBOX NAME\n"
				  "\n"
				  "Gives a sandbox another name. Its id stays. Prints the name.\n"
				  "\n";

static int change(struct args *a, const char *method, const char *format, const json_t *body, json_t **ret,
		  struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	int r = conn_open(&a->conn, &c, e);

	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s", a->rest[0]);
	if (r == 0)
		r = buf_adds(&path, format);
	return r < 0 ? r : conn_json(c, method, buf_str(&path), body, ret, e);
}

static int run_extend(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object(), *answer = NULL;
	const char *until;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_count(a, 2, 2, a->nrest ? "TIME" : "SANDBOX and TIME", e);
	if (r == 0)
		r = args_set_time(body, "timeout", a->rest[1], e);
	if (r == 0)
		r = change(a, "POST", "/extend", body, &answer, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(answer, SHOW_LINE, e);
	until = show_str(answer, "expires_at");
	show_line(*until ? until : "never");
	return 0;
}

static int run_rename(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object(), *answer = NULL;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_count(a, 2, 2, a->nrest ? "NAME" : "SANDBOX and NAME", e);
	if (r == 0)
		r = args_set_text(body, "name", a->rest[1], e);
	if (r == 0)
		r = change(a, "PATCH", "", body, &answer, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(answer, SHOW_LINE, e);
	show_line(show_str(answer, "name"));
	return 0;
}

const struct command cmd_extend = {
	.name = "extend",
	.text = "set when a sandbox is removed",
	.help = extend_help,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_extend,
};

const struct command cmd_rename = {
	.name = "rename",
	.text = "give a sandbox another name",
	.help = rename_help,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_rename,
};
