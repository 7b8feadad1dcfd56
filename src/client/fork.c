/* `cloche fork`. */
#include "client/client.h"
#include "base/base.h"
#include "base/str.h"
#include "client/show.h"

enum { OPT_NAME = 256, OPT_MEMORY, OPT_NO_SECRETS, OPT_NETWORK };

static const struct option options[] = {
	{ "count", required_argument, NULL, 'n' },	     { "name", required_argument, NULL, OPT_NAME },
	{ "memory", optional_argument, NULL, OPT_MEMORY },   { "network", required_argument, NULL, OPT_NETWORK },
	{ "no-secrets", no_argument, NULL, OPT_NO_SECRETS }, { NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche fork [options] SANDBOX\n"
	"\n"
	"Copies a running sandbox, and prints the ids of the copies. The sandbox continues to run; a change in one of\n"
	"them does not affect the others. `cloche promote` brings the changes of a copy back.\n"
	"\n"
	"  -n, --count N       number of copies, up to 256                   1, or the number of names\n"
	"  --name NAME         name of the first copy, the second … (repeatable)\n"
	"  --memory[=WHEN]     also copy running processes: yes, no, or auto (when possible)   auto\n"
	"  --network WHAT      connections to the outside: drop (reset in the copies; stderr lists them) or refuse   drop\n"
	"  --no-secrets        the copies get no secrets\n";

static int run(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *body = json_object(), *names = json_array(), *v = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	uint64_t n = 0;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == OPT_MEMORY)
			r = args_set_memory(body, optarg, e);
		else if (opt == OPT_NETWORK)
			r = args_set_copied(body, optarg, e);
		else if (opt == OPT_NO_SECRETS)
			r = args_set_text(body, "secrets", "drop", e);
		else if (opt == OPT_NAME && json_array_append_new(names, json_string(optarg)) < 0)
			r = err_set(e, ERR_INVALID, -EINVAL, "--name '%.60s': not UTF-8", optarg);
		else if (opt == 'n')
			r = parse_u64(optarg, &n, e);
		if (r >= 0 && opt == 'n' && (n < 1 || n > 256))
			r = err_set(e, ERR_INVALID, -ERANGE, "'%.40s': must be 1 to 256", optarg);
		if (r < 0)
			return opt == 'n' ? err_wrap(e, r, "--count") : r;
	}
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, 1, "SANDBOX", e);
	if (r < 0)
		return r;
	if (json_array_size(names))
		json_object_set(body, "names", names);
	if (!n)
		n = json_array_size(names) ? json_array_size(names) : 1;
	json_object_set_new(body, "count", json_integer((json_int_t)n));
	r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s/fork", a->rest[0]);
	if (r == 0 && !a->json)
		conn_doing(c, "cloche: waiting for the copies");
	if (r == 0)
		r = conn_json(c, "POST", buf_str(&path), body, &v, e);
	return r < 0 ? r : show_made(a->json, v, e);
}

const struct command cmd_fork = {
	.name = "fork",
	.text = "copy a running sandbox",
	.help = help,
	.letters = "n:",
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
