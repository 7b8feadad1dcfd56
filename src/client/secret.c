/* `cloche secret`. */
#include "client/client.h"
#include "base/base.h"
#include "base/base64.h"
#include "client/input.h"
#include "client/show.h"
#include "client/thing.h"
#include "client/tty.h"

#include <fcntl.h>
#include <unistd.h>

#define VALUE_MAX (64 * KIB)

enum { OPT_FROM_FILE = 256, OPT_FROM_ENV, OPT_DESCRIPTION };

static const char help[] =
	"usage: cloche secret set [options] NAME\n"
	"       cloche secret rotate [options] NAME\n"
	"       cloche secret ls\n"
	"       cloche secret inspect NAME…\n"
	"       cloche secret rm [-f] NAME…\n"
	"\n"
	"A secret is a value that only sandboxes receive: `cloche create --secret NAME`. No command prints its value.\n"
	"\n";

static const struct thing secret;

/* ---- set, rotate ---- */

static const struct option set_options[] = {
	{ "from-file", required_argument, NULL, OPT_FROM_FILE },
	{ "from-env", required_argument, NULL, OPT_FROM_ENV },
	{ "description", required_argument, NULL, OPT_DESCRIPTION },
	{ NULL, 0, NULL, 0 },
};

static const char set_help[] =
	"usage: cloche secret set [options] NAME\n"
	"\n"
	"Sets a secret. An existing one gets a new value, also in running sandboxes. The value is read from stdin, or\n"
	"typed; never from the command line, which other users can see.\n"
	"\n"
	"  --from-file FILE    read the value from this file              stdin, without a final newline\n"
	"  --from-env VAR      read the value from this environment variable\n"
	"  --description TEXT  description of the secret\n";

static const char rotate_help[] =
	"usage: cloche secret rotate [options] NAME\n"
	"\n"
	"Gives an existing secret a new value, also in running sandboxes: in files and injected headers at once, in\n"
	"variables with the next exec.\n"
	"\n"
	"  --from-file FILE    read the value from this file              stdin, without a final newline\n"
	"  --from-env VAR      read the value from this environment variable\n"
	"  --description TEXT  description of the secret\n";

static void wipe(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_done(b);
}

static void wipep(struct buf *b)
{
	wipe(b);
}

/* One line, not shown while it is typed. */
static int read_typed(struct buf *to, struct err *e)
{
	static const char ask[] = "value: ";
	AUTO(tty_restore) struct tty t = TTY_INIT;
	char c;

	if (tty_quiet(&t, STDIN_FILENO) < 0)
		return err_set(e, ERR_INVALID, -ENOTTY, "the terminal cannot hide what is typed");
	fd_write_all(STDERR_FILENO, ask, sizeof(ask) - 1);
	while (read(STDIN_FILENO, &c, 1) == 1 && c != '\n' && c != '\r' && c != 4) {
		if (c == 127 || c == 8)
			buf_cut(to, to->len ? to->len - 1 : 0);
		else if (buf_addc(to, c) < 0)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "a secret must be at most 64K");
	}
	fd_write_all(STDERR_FILENO, "\n", 1);
	return 0;
}

static int read_value(const char *file, const char *var, struct buf *to, struct err *e)
{
	AUTO_CLOSE int fd = -1;
	const char *value;
	int r;

	if (file && var)
		return err_set(e, ERR_INVALID, -EINVAL, "--from-file cannot be used with --from-env");
	if (var) {
		value = getenv(var);
		if (!value)
			return err_set(e, ERR_NOT_FOUND, -ENOENT, "--from-env: variable %.60s is not set", var);
		return buf_adds(to, value) < 0 ? err_set(e, ERR_TOO_LARGE, -E2BIG, "a secret must be at most 64K") : 0;
	}
	if (!file && isatty(STDIN_FILENO))
		return read_typed(to, e);
	if (file) {
		fd = open(file, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return err_sys(e, ERR_NOT_FOUND, -errno, "%.150s", file);
	}
	r = input_read(file ? fd : STDIN_FILENO, file ? file : "stdin", to, e);
	if (r < 0)
		return r == -E2BIG ? err_set(e, ERR_TOO_LARGE, r, "a secret must be at most 64K") : r;
	if (!file && to->len && to->data[to->len - 1] == '\n')
		buf_cut(to, to->len - 1);
	return 0;
}

static int put_value(json_t *body, const struct buf *value, struct err *e)
{
	json_t *text = memchr(buf_str(value), '\0', value->len) ? NULL : json_stringn(buf_str(value), value->len);
	const size_t size = BASE64_SIZE(value->len);
	AUTO_FREE char *coded = NULL;

	if (text)
		return json_object_set_new(body, "value", text) < 0 ? err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory") :
								      0;
	coded = malloc(size);
	if (!coded)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	base64_encode(value->data, value->len, coded);
	json_object_set_new(body, "value_base64", json_string(coded));
	explicit_bzero(coded, size);
	return 0;
}

static int put(struct args *a, bool there, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(wipe) struct buf value = BUF_INIT(VALUE_MAX + 1);
	AUTO_JSON json_t *body = json_object(), *old = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	const char *file = NULL, *var = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == OPT_FROM_FILE)
			file = optarg;
		else if (opt == OPT_FROM_ENV)
			var = optarg;
		else if ((r = args_set_text(body, "description", optarg, e)) < 0)
			return r;
	}
	if (r < 0 || a->help)
		return r;
	if (a->nrest > 1) { /* most likely the value, which is not to be said again */
		err_set(e, ERR_INVALID, -EINVAL,
			"unexpected argument after NAME: values are not taken from the command line, which other users "
			"can see");
		err_remedy(e, "give the value on stdin, type it, or use --from-file or --from-env");
		return -EINVAL;
	}
	r = args_connect(a, 1, 1, "NAME", &c, e);
	if (r == 0 && there)
		r = thing_url(&secret, a->rest[0], &path);
	if (r == 0 && there)
		r = conn_get(c, buf_str(&path), &old, e);
	if (r == 0)
		r = read_value(file, var, &value, e);
	if (r == 0)
		r = put_value(body, &value, e);
	return r < 0 ? r : thing_put(a, c, &secret, body, e);
}

static int run_set(struct args *a, struct err *e)
{
	return put(a, false, e);
}

static int run_rotate(struct args *a, struct err *e)
{
	return put(a, true, e);
}

/* ---- ls, inspect, rm ---- */

static const char ls_help[] = "usage: cloche secret ls\n"
			      "\n"
			      "Lists secrets; never their values.\n"
			      "\n";

static const struct column columns[] = {
	{ "NAME", cell_text, "name" },
	{ "VERSION", cell_number, "version" },
	{ "SIZE", cell_number, "size" },
	{ "UPDATED", cell_age, "updated_at" },
	{ "DESCRIPTION", cell_text, "description" },
	{ NULL, NULL, NULL },
};

static const struct thing secret = { "SECRET", "/v1/secrets", "secrets", NULL, columns, 6 };

static const char inspect_help[] =
	"usage: cloche secret inspect NAME…\n"
	"\n"
	"Prints all details of secrets except their values as JSON; an array when there are several.\n"
	"\n";

static const char rm_help[] =
	"usage: cloche secret rm [-f] NAME…\n"
	"\n"
	"Removes secrets. In sandboxes that have one, it is no longer injected, and new commands do not get its variable;\n"
	"its file remains until the sandbox ends.\n"
	"\n"
	"  -f, --force         ignore secrets that do not exist\n";

static const struct command set = {
	.name = "secret set",
	.text = "set a secret",
	.help = set_help,
	.options = set_options,
	.complete = COMPLETE_NAMES,
	.names = "secret",
	.run = run_set,
};

static const struct command rotate = {
	.name = "secret rotate",
	.text = "give a secret a new value",
	.help = rotate_help,
	.options = set_options,
	.complete = COMPLETE_NAMES,
	.names = "secret",
	.run = run_rotate,
};

static const struct command ls = THING_LS(secret, "list secrets", ls_help);
static const struct command inspect =
	THING_INSPECT(secret, "print all details of a secret except its value", inspect_help);
static const struct command rm = THING_RM(secret, "remove secrets", rm_help);

static const struct command *const verbs[] = { &set, &rotate, &ls, &inspect, &rm, NULL };

const struct command cmd_secret = {
	.name = "secret",
	.text = "manage secrets",
	.help = help,
	.verbs = verbs,
	.run = args_noun,
};
