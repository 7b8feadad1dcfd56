#include "client/client.h"
#include "base/base.h"
#include "client/show.h"

static const struct option options[] = {
	{ "force", no_argument, NULL, 'f' },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche promote [-f] FORK SANDBOX\n"
	"\n"
	"Brings what a fork has changed since it was forked back into the sandbox it came from. Refused when both\n"
	"have changed the same path differently.\n"
	"\n"
	"  -f, --force         then take the fork's\n";

static int run(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *body = json_object(), *v = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	const json_t *one;
	size_t i;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0)
		json_object_set_new(body, "force", json_true());
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 2, 2, "FORK and SANDBOX", e);
	if (r == 0)
		r = args_set_text(body, "from", a->rest[0], e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s/promote", a->rest[1]);
	if (r == 0)
		r = conn_json(c, "POST", buf_str(&path), body, &v, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	json_array_foreach(json_object_get(v, "conflicts"), i, one)
	{
		const char *text = json_string_value(one);

		show_warn("the fork's was taken: %s", text ? text : show_str(one, "path"));
	}
	printf("%llu added, %llu changed, %llu removed\n", (unsigned long long)show_u64(v, "added"),
	       (unsigned long long)show_u64(v, "changed"), (unsigned long long)show_u64(v, "removed"));
	return 0;
}

const struct command cmd_promote = {
	.name = "promote",
	.text = "bring the changes of a fork back",
	.help = help,
	.letters = "f",
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
