/* `cloche restore`. */
#include "client/client.h"
#include "base/base.h"
#include "base/str.h"
#include "client/ref.h"
#include "client/show.h"
#include "client/want.h"

enum { OPT_AS = 256, OPT_COUNT };

static const struct option options[] = {
	{ "as", required_argument, NULL, OPT_AS },
	{ "count", required_argument, NULL, OPT_COUNT },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche restore SANDBOX CHECKPOINT\n"
	"       cloche restore --as NAME [options] SANDBOX CHECKPOINT\n"
	"       cloche restore [options] CHECKPOINT\n"
	"\n"
	"Puts a sandbox back to a checkpoint: its id, name and key are kept, its processes are ended, and those in a\n"
	"checkpoint with memory continue. Or makes new sandboxes from a checkpoint, and prints their ids. After SANDBOX,\n"
	"CHECKPOINT may be a name; alone, it is an id or SANDBOX:NAME.\n"
	"\n"
	"new sandboxes\n"
	"  --as NAME           make a new sandbox with this name (repeatable)\n"
	"  --count N           number of new sandboxes, up to 256            1\n"
	"  settings that replace those of the checkpoint:\n";

struct restore {
	json_t *names, *body;
	bool settings; /* something of a create was asked for */
};

static int apply(struct restore *x, int opt, const char *arg, struct err *e)
{
	uint64_t n;
	int r;

	if (opt == OPT_AS)
		return json_array_append_new(x->names, json_string(arg)) < 0 ?
			       err_set(e, ERR_INVALID, -EINVAL, "--as '%.60s': not UTF-8", arg) :
			       0;
	x->settings = true;
	if (opt != OPT_COUNT)
		return want_apply(x->body, opt, arg, e);
	r = parse_u64(arg, &n, e);
	if (r == 0 && (n < 1 || n > 256))
		r = err_set(e, ERR_INVALID, -ERANGE, "'%.40s': must be 1 to 256", arg);
	if (r < 0)
		return err_wrap(e, r, "--count");
	json_object_set_new(x->body, "count", json_integer((json_int_t)n));
	return 0;
}

/* Of one sandbox: in place, or one new. The daemon knows the names of its checkpoints. */
static int of_sandbox(struct args *a, struct restore *x, struct conn *c, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *v = NULL;
	const json_t *as = json_array_get(x->names, 0);
	int r = args_set_text(x->body, "checkpoint", a->rest[1], e);

	if (r == 0)
		r = ref_resolve(c, x->body, "checkpoint", e);
	if (r == 0 && as)
		r = args_set_text(x->body, "as", json_string_value(as), e);
	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s/restore", a->rest[0]);
	if (r == 0)
		r = conn_json(c, "POST", buf_str(&path), x->body, &v, e);
	if (r < 0)
		return r;
	show_not_done(v, SHOW_NOTES);
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	if (as)
		show_line(show_str(v, "id"));
	return 0;
}

static int of_checkpoint(struct args *a, struct restore *x, struct conn *c, const char *word, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	size_t names = json_array_size(x->names);
	AUTO_JSON json_t *v = NULL;
	int r = ref_url(&path, word, "/restore", "");

	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "'%.100s'", word);
	if (names == 1)
		json_object_set(x->body, "as", json_array_get(x->names, 0));
	else if (names)
		json_object_set(x->body, "names", x->names);
	if (names > 1 && !json_object_get(x->body, "count"))
		json_object_set_new(x->body, "count", json_integer((json_int_t)names));
	r = conn_json(c, "POST", buf_str(&path), x->body, &v, e);
	return r < 0 ? r : show_made(a->json, v, e);
}

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object(), *names = json_array();
	struct restore x = { .body = body, .names = names };
	AUTO(buf_done) struct buf word = BUF_INIT(1 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	bool many;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		r = apply(&x, opt, optarg, e);
		if (r < 0)
			return r;
	}
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, 2, "SANDBOX and CHECKPOINT", e);
	if (r < 0)
		return r;
	many = x.settings || json_array_size(names) > 1;
	if (a->nrest == 2 && many && !json_array_size(names) && !json_object_get(body, "count")) {
		err_set(e, ERR_INVALID, -EINVAL, "settings can only be given for new sandboxes");
		err_remedy(e, "make a new sandbox with --as, or leave the settings out");
		return -EINVAL;
	}
	r = conn_open(&a->conn, &c, e);
	if (r < 0)
		return r;
	if (a->nrest == 2 && !many)
		return of_sandbox(a, &x, c, e);
	if (a->nrest == 1)
		return of_checkpoint(a, &x, c, a->rest[0], e);
	if (buf_addf(&word, "%s:%s", a->rest[0], a->rest[1]) < 0)
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "the names are too long");
	return of_checkpoint(a, &x, c, buf_str(&word), e);
}

const struct command cmd_restore = {
	.name = "restore",
	.text = "go back to a checkpoint, or make sandboxes from it",
	.help = help,
	.more_help = want_help,
	.letters = "e:",
	.options = options,
	.more = want_options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox checkpoint",
	.run = run,
};
