/* `cloche promote`. */
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
	"Copies the changes of a fork back into the sandbox it was made from. Refused when both have changed the\n"
	"same path differently.\n"
	"\n"
	"  -f, --force         use the fork's version of paths that both have changed\n";

/* The first of the paths that keep it from being done, behind the error's message. */
static void name_conflicts(const struct buf *answer, struct err *e)
{
	AUTO_JSON json_t *v = json_loadb(answer->data ? answer->data : "", answer->len, 0, NULL);
	const json_t *list = json_object_get(v, "conflicts"), *one;
	size_t i, len;

	json_array_foreach(list, i, one)
	{
		const char *path = json_string_value(one);

		len = strlen(e->msg);
		if (!path || len + strlen(path) + 8 > sizeof(e->msg)) {
			snprintf(e->msg + len, sizeof(e->msg) - len, ", …");
			return;
		}
		snprintf(e->msg + len, sizeof(e->msg) - len, "%s%s", i ? ", " : ": ", path);
	}
}

static int ask(struct conn *c, const char *sandbox, const json_t *body, json_t **ret, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct call_spec s = { .method = "POST", .body = body };
	AUTO(call_free) struct call *call = NULL;
	int r = url_add(&path, "/v1/sandboxes/%s/promote", sandbox);

	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "'%.100s'", sandbox);
	s.path = buf_str(&path);
	r = call_start(c, &s, &call, e);
	if (r < 0)
		return r;
	r = call_wait(call, e);
	if (r < 0) {
		name_conflicts(call_body(call), e);
		return r;
	}
	*ret = json_loadb(call_body(call)->data, call_body(call)->len, JSON_REJECT_DUPLICATES, NULL);
	return *ret ? 0 : err_set(e, ERR_INTERNAL, -EPROTO, "the daemon's answer is not valid JSON");
}

static int run(struct args *a, struct err *e)
{
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
		r = ask(c, a->rest[1], body, &v, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	json_array_foreach(json_object_get(v, "conflicts"), i, one) if (json_is_string(one))
		show_warn("used the fork's version: %s", json_string_value(one));
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
