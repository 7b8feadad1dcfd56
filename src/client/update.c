/* `cloche update`. */
#include "client/client.h"
#include "base/base.h"
#include "client/show.h"
#include "client/want.h"

enum { OPT_CPUS = 256, OPT_MEMORY, OPT_DISK, OPT_PIDS };

static const char help[] =
	"usage: cloche update [options] SANDBOX\n"
	"\n"
	"Changes limits of an existing sandbox, and prints its id. Memory, processes and CPUs can change while it runs; the\n"
	"disk, and more CPUs than it sees, only while it is hibernated. See also `cloche extend` and `cloche rename`.\n"
	"\n"
	"  --cpus N            CPU cores, as 0.5 or 2\n"
	"  --memory SIZE       memory; fails when more is in use\n"
	"  --disk SIZE         disk space\n"
	"  --pids N            processes and threads\n";

static const struct option options[] = {
	{ "cpus", required_argument, NULL, OPT_CPUS },
	{ "memory", required_argument, NULL, OPT_MEMORY },
	{ "disk", required_argument, NULL, OPT_DISK },
	{ "pids", required_argument, NULL, OPT_PIDS },
	{ NULL, 0, NULL, 0 },
};

/* Reads it as `create` does: by the option of want_options that has the same name. */
static int limit_apply(json_t *body, int opt, const char *arg, struct err *e)
{
	const char *name = options[opt - OPT_CPUS].name;
	const struct option *o = want_options;

	while (strcmp(o->name, name) != 0)
		o++;
	return want_apply(body, o->val, arg, e);
}

static int run(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *body = json_object(), *answer = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		r = limit_apply(body, opt, optarg, e);
		if (r < 0)
			return r;
	}
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, 1, "SANDBOX", e);
	if (r == 0 && !json_object_size(body)) {
		r = err_set(e, ERR_INVALID, -EINVAL, "nothing to change: give --cpus, --memory, --disk or --pids");
		err_remedy(e, "see `cloche update --help`");
	}
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s", a->rest[0]);
	if (r == 0)
		r = conn_json(c, "PATCH", buf_str(&path), body, &answer, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(answer, SHOW_LINE, e);
	show_line(show_str(answer, "id"));
	return 0;
}

const struct command cmd_update = {
	.name = "update",
	.text = "change limits of a sandbox",
	.help = help,
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
