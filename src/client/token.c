/* `cloche token`. */
#include "client/client.h"
#include "base/base.h"
#include "base/str.h"
#include "client/show.h"
#include "client/thing.h"

enum { OPT_NAME = 256, OPT_SCOPE, OPT_TENANT, OPT_EXPIRES, OPT_GRACE };

static const struct option options[] = {
	{ "name", required_argument, NULL, OPT_NAME },	   { "scope", required_argument, NULL, OPT_SCOPE },
	{ "tenant", required_argument, NULL, OPT_TENANT }, { "expires", required_argument, NULL, OPT_EXPIRES },
	{ "grace", required_argument, NULL, OPT_GRACE },   { NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche token ls\n"
	"       cloche token create [options]\n"
	"       cloche token rotate [--grace TIME] ID\n"
	"       cloche token rm ID…\n"
	"\n"
	"Every call to the daemon needs a token. A new one is printed once and cannot be shown again.\n"
	"\n"
	"  --name NAME         a name for the token\n"
	"  --scope SCOPE       read, exec, sandbox or admin; each includes those before it   sandbox\n"
	"  --tenant NAME       tenant of the token (admin)                   your own\n"
	"  --expires TIME      the token expires after this time, as 30d     never\n"
	"  --grace TIME        rotate: how long the old token stays valid    0\n";

static const struct column columns[] = {
	{ "ID", cell_text, "id" },
	{ "NAME", cell_text, "name" },
	{ "TENANT", cell_text, "tenant" },
	{ "SCOPE", cell_text, "scope" },
	{ "CREATED", cell_text, "created_at" },
	{ "EXPIRES", cell_text, "expires_at" },
	{ NULL, NULL, NULL },
};

static const struct thing token = { "ID", "/v1/tokens", "tokens", NULL, columns, 0 };

static int do_ls(struct args *a, struct conn *c, struct err *e)
{
	AUTO_JSON json_t *v = NULL;
	int r = conn_get(c, token.path, &v, e);

	return r < 0 ? r : thing_print(a, &token, json_object_get(v, token.key), e);
}

static int show_token(const struct args *a, const json_t *v, struct err *e)
{
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	show_line(show_str(v, "token"));
	return 0;
}

static int do_rotate(struct args *a, struct conn *c, const json_t *body, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *v = NULL;
	int r = args_count(a, 2, 2, "ID", e);

	if (r == 0)
		r = url_add(&path, "/v1/tokens/%s/rotate", a->rest[1]);
	if (r == 0)
		r = conn_json(c, "POST", buf_str(&path), body, &v, e);
	return r < 0 ? r : show_token(a, v, e);
}

static int do_rm(struct args *a, struct conn *c, struct err *e)
{
	AUTO_JSON json_t *removed = json_array();
	struct removal m = { .thing = &token, .conn = c, .removed = removed };
	int r = args_count(a, 2, -1, token.word, e);

	if (r < 0)
		return r;
	for (int i = 1; i < a->nrest; i++)
		removal_one(&m, a->rest[i]);
	return removal_end(a, &m, e);
}

static int apply(json_t *body, int opt, const char *arg, struct err *e)
{
	static const char *const fields[] = { "name", "scope", "tenant", "expires_in", "grace" };
	json_t *value = json_string(arg);
	uint64_t ms;
	int r;

	if (opt == OPT_EXPIRES || opt == OPT_GRACE) {
		json_decref(value);
		r = parse_duration(arg, &ms, e);
		if (r < 0)
			return err_wrap(e, r, opt == OPT_GRACE ? "--grace" : "--expires");
		value = json_integer((json_int_t)(ms / 1000));
	}
	if (json_object_set_new(body, fields[opt - OPT_NAME], value) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", arg);
	return 0;
}

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object(), *v = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	const char *verb;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		r = apply(body, opt, optarg, e);
		if (r < 0)
			return r;
	}
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, -1, "subcommand: ls, create, rotate or rm", e);
	if (r < 0)
		return r;
	verb = a->rest[0];
	if (strcmp(verb, "ls") && strcmp(verb, "create") && strcmp(verb, "rotate") && strcmp(verb, "rm")) {
		err_set(e, ERR_INVALID, -EINVAL, "unknown subcommand '%.40s': must be ls, create, rotate or rm", verb);
		err_remedy(e, "see `cloche token --help`");
		return -EINVAL;
	}
	r = conn_open(&a->conn, &c, e);
	if (r < 0)
		return r;
	if (!strcmp(verb, "rotate"))
		return do_rotate(a, c, body, e);
	if (!strcmp(verb, "rm"))
		return do_rm(a, c, e);
	r = args_count(a, 1, 1, "options", e);
	if (r < 0)
		return r;
	if (!strcmp(verb, "ls"))
		return do_ls(a, c, e);
	r = conn_json(c, "POST", "/v1/tokens", body, &v, e);
	return r < 0 ? r : show_token(a, v, e);
}

const struct command cmd_token = {
	.name = "token",
	.text = "make, list, rotate and remove tokens",
	.help = help,
	.options = options,
	.complete = COMPLETE_WORDS,
	.words = "ls create rotate rm",
	.run = run,
};
