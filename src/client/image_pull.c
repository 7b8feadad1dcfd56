/* `cloche image pull`, `update` and `outdated`: images from registries. */
#include "base/base.h"
#include "base/base64.h"
#include "client/image.h"
#include "client/progress.h"
#include "client/show.h"
#include "client/sse.h"
#include "oci/login.h"
#include "oci/name.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define AUTH_MAX (1 * MIB)
#define PASSWORD_MAX 16384U

enum { OPT_AUTH_FILE = 256, OPT_PASSWORD_STDIN };

static const struct option options[] = {
	{ "quiet", no_argument, NULL, 'q' },
	{ "username", required_argument, NULL, 'u' },
	{ "password-stdin", no_argument, NULL, OPT_PASSWORD_STDIN },
	{ "auth-file", required_argument, NULL, OPT_AUTH_FILE },
	{ NULL, 0, NULL, 0 },
};

static const struct option login_options[] = {
	{ "username", required_argument, NULL, 'u' },
	{ "password-stdin", no_argument, NULL, OPT_PASSWORD_STDIN },
	{ "auth-file", required_argument, NULL, OPT_AUTH_FILE },
	{ NULL, 0, NULL, 0 },
};

#define LOGIN_HELP                                                                                                     \
	"  -u, --username NAME     user name at the registry; with --password-stdin\n"                                 \
	"  --password-stdin        read the password from stdin\n"                                                     \
	"  --auth-file FILE        logins, as `skopeo login --authfile FILE` writes them   REGISTRY_AUTH_FILE\n"
#define OPTIONS_HELP "  -q, --quiet             no progress\n" LOGIN_HELP

static const char pull_help[] =
	"usage: cloche image pull [options] NAME…\n"
	"\n"
	"Pulls images from their registries: python:3.12-slim, registry.example:5000/team/app:1, NAME@sha256:DIGITS. What is\n"
	"here already is not fetched again. An interrupt cancels the pull; the next one continues with the layers that were complete.\n"
	"\n" OPTIONS_HELP;

static const char update_help[] =
	"usage: cloche image update [options] [NAME…]\n"
	"\n"
	"Pulls again those of the images whose tag has moved; without names, of all that were pulled. Sandboxes that are there\n"
	"keep the image that they were made from.\n"
	"\n" OPTIONS_HELP;

static const char outdated_help[] =
	"usage: cloche image outdated [options] [NAME…]\n"
	"\n"
	"Asks the registries which tags have moved since the images were pulled; without names, of all that were pulled.\n"
	"Exits with 1 if one has.\n"
	"\n" LOGIN_HELP;

struct login {
	const char *username, *file;
	bool from_stdin;
	char password[PASSWORD_MAX + 1];
};

struct pulling {
	struct progress progress;
	const char *name;
	char what[400]; /* the progress line's text: the name, and how many layers are there */
	bool show;
	struct sse sse;
	json_t *end;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* --- the login --- */

static int read_password(struct login *l, struct err *e)
{
	size_t len = 0;
	ssize_t n;

	while (len < PASSWORD_MAX && (n = read(STDIN_FILENO, l->password + len, PASSWORD_MAX - len)) > 0)
		len += (size_t)n;
	while (len && (l->password[len - 1] == '\n' || l->password[len - 1] == '\r'))
		len--;
	l->password[len] = '\0';
	return len ? 0 : err_set(e, ERR_INVALID, -EINVAL, "--password-stdin: stdin has no password");
}

/* "USER:PASSWORD" in base64, of the entry for @registry. */
static int add_entry(const char *coded, json_t *body, const char *path, struct err *e)
{
	AUTO_FREE char *text = malloc(strlen(coded) + 1);
	ssize_t n = text ? base64_decode(coded, strlen(coded), text) : -ENOMEM;
	char *colon = n > 0 ? memchr(text, ':', (size_t)n) : NULL;

	if (!colon)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.150s': an `auth` must be USER:PASSWORD in base64", path);
	json_object_set_new(body, "username", json_stringn(text, (size_t)(colon - text)));
	json_object_set_new(body, "password", json_stringn(colon + 1, (size_t)(text + n - colon - 1)));
	return 0;
}

static int read_auth_file(const char *path, const struct oci_name *name, json_t *body, struct err *e)
{
	AUTO_FREE char *text = malloc(AUTH_MAX);
	ssize_t n = text ? fd_get(AT_FDCWD, path, text, AUTH_MAX) : -ENOMEM;
	AUTO_JSON json_t *o = n >= 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
	const char *coded;

	if (n < 0)
		return err_sys(e, ERR_INVALID, (int)n, "read '%.150s'", path);
	if (!json_is_object(o))
		return err_set(e, ERR_INVALID, -EINVAL, "'%.150s' is not valid JSON", path);
	coded = show_str(oci_login_find(o, name->registry, name->repository), "auth");
	return *coded ? add_entry(coded, body, path, e) : 0;
}

/* Only what is for that registry leaves this machine. */
static int add_login(const struct login *l, const char *name, json_t *body, struct err *e)
{
	const char *file = l->file ? l->file : getenv("REGISTRY_AUTH_FILE");
	struct oci_name n;
	int r;

	if (l->username) {
		json_object_set_new(body, "username", json_string(l->username));
		json_object_set_new(body, "password", json_string(l->password));
		return 0;
	}
	if (!file || !*file)
		return 0;
	r = oci_name_parse(name, &n, e);
	return r < 0 ? r : read_auth_file(file, &n, body, e);
}

/* --- one pull --- */

static int on_event(void *arg, const struct sse *s)
{
	struct pulling *p = arg;
	AUTO_JSON json_t *v = json_loadb(s->data.data, s->data.len, JSON_REJECT_DUPLICATES, NULL);
	uint64_t bytes;

	if (!strcmp(s->event, "end")) {
		json_decref(p->end);
		p->end = json_incref(v);
	} else if (!strcmp(s->event, "progress") && p->show) {
		bytes = show_u64(v, "bytes");
		snprintf(p->what, sizeof(p->what), "%u of %u layers  %.350s", (unsigned)show_u64(v, "ready"),
			 (unsigned)show_u64(v, "layers"), p->name);
		p->progress.total = show_u64(v, "total");
		progress_add(&p->progress, bytes > p->progress.done ? bytes - p->progress.done : 0);
	}
	return 0;
}

static int on_bytes(void *arg, const void *data, size_t len)
{
	return sse_feed(&((struct pulling *)arg)->sse, data, len);
}

static int cancel(struct conn *c, const char *operation, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(4 * KIB);
	struct err ignored = { 0 };

	if (url_add(&path, "/v1/operations/%s", operation) == 0)
		conn_json(c, "DELETE", buf_str(&path), NULL, NULL, &ignored);
	return err_set(e, ERR_LOST, -EINTR, "interrupted: the pull was cancelled");
}

/* Until it has ended, which *ret says. */
static int follow(struct conn *c, const char *operation, struct pulling *p, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(4 * KIB);
	AUTO(call_free) struct call *call = NULL;
	struct call_spec spec = { .method = "GET", .accept = "text/event-stream", .sink = on_bytes, .arg = p };
	int r = url_add(&path, "/v1/operations/%s/events", operation);

	spec.path = buf_str(&path);
	if (r == 0)
		r = call_start(c, &spec, &call, e);
	if (r == 0)
		r = call_head(call, e);
	while (r == 0 && !call_ended(call) && !interrupted)
		r = conn_turn(c, 200, e);
	if (interrupted)
		return cancel(c, operation, e);
	return r < 0 ? r : call_wait(call, e);
}

static int end_error(const json_t *end, struct err *e)
{
	const json_t *error = json_object_get(end, "error");

	err_set(e, ERR_LOST, -EIO, "%.230s",
		*show_str(error, "message") ? show_str(error, "message") : "the pull did not end well");
	if (*show_str(error, "remedy"))
		err_remedy(e, "%.190s", show_str(error, "remedy"));
	return -EIO;
}

static int pull_one(struct args *a, struct conn *c, const char *name, const struct login *l, bool quiet, struct err *e)
{
	AUTO_JSON json_t *body = json_pack("{s:s, s:b}", "name", name, "background", 1), *operation = NULL;
	struct pulling p = { .show = !quiet, .name = name };
	const json_t *result;
	int r = body ? add_login(l, name, body, e) : err_set(e, ERR_INVALID, -EINVAL, "'%.100s' is not UTF-8", name);

	if (r == 0)
		r = conn_json(c, "POST", "/v1/images/pull", body, &operation, e);
	if (r < 0)
		return r;
	sse_init(&p.sse, on_event, &p);
	snprintf(p.what, sizeof(p.what), "%.399s", name);
	progress_init(&p.progress, p.what, 0);
	r = follow(c, show_str(operation, "id"), &p, e);
	progress_done(&p.progress);
	sse_done(&p.sse);
	result = json_object_get(p.end, "result");
	if (r == 0 && strcmp(show_str(p.end, "state"), "done") != 0)
		r = end_error(p.end, e);
	if (r == 0 && a->json)
		r = show_json(result, SHOW_LINE, e);
	else if (r == 0)
		printf("%s %s%s\n", show_str(result, "image"), show_str(result, "digest"),
		       json_is_false(json_object_get(result, "new")) && !quiet ? " (was here)" : "");
	json_decref(p.end);
	return r;
}

/* --- the commands --- */

static int read_options(struct args *a, struct login *l, bool *ret_quiet, struct err *e)
{
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == 'q')
			*ret_quiet = true;
		else if (opt == 'u')
			l->username = optarg;
		else if (opt == OPT_AUTH_FILE)
			l->file = optarg;
		else
			l->from_stdin = true;
	}
	if (r < 0 || a->help)
		return r;
	if (!l->username != !l->from_stdin)
		return err_set(e, ERR_INVALID, -EINVAL, "--username and --password-stdin belong together");
	return l->from_stdin ? read_password(l, e) : 0;
}

static int run_pull(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	struct login l = { 0 };
	bool quiet = false;
	int r = read_options(a, &l, &quiet, e);

	if (r == 0 && !a->help)
		r = args_count(a, 1, -1, "NAME", e);
	if (r < 0 || a->help)
		return r;
	r = conn_open(&a->conn, &c, e);
	signal(SIGINT, on_interrupt);
	for (int i = 0; r == 0 && i < a->nrest; i++)
		r = pull_one(a, c, a->rest[i], &l, quiet, e);
	explicit_bzero(l.password, sizeof(l.password));
	return r;
}

/* Asks about one, with the login for its registry if there is one. */
static int ask(struct conn *c, const char *name, const struct login *l, json_t **ret, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(4 * KIB);
	AUTO_JSON json_t *body = json_object();
	int r = image_url(&path, name, "/outdated");

	if (r < 0)
		return err_set(e, ERR_INVALID, r, "'%.100s' is too long", name);
	r = add_login(l, name, body, e);
	if (r < 0)
		return r;
	return json_object_size(body) ? conn_json(c, "POST", buf_str(&path), body, ret, e) :
					conn_get(c, buf_str(&path), ret, e);
}

typedef int each_fn(struct args *a, struct conn *c, const json_t *answer, void *arg, struct err *e);

/* The names that are given, or all that were pulled and have a tag. */
static int list_names(struct args *a, struct conn *c, json_t *names, struct err *e)
{
	AUTO_JSON json_t *list = NULL;
	const json_t *one;
	size_t i;
	int r = a->nrest ? 0 : conn_get(c, "/v1/images", &list, e);

	for (int n = 0; n < a->nrest; n++)
		json_array_append_new(names, json_string(a->rest[n]));
	json_array_foreach(json_object_get(list, "images"), i,
			   one) if (!strcmp(show_str(json_object_get(one, "source"), "kind"), "pull") &&
				    !strchr(show_str(one, "name"), '@'))
		json_array_append_new(names, json_string(show_str(one, "name")));
	return r;
}

/* For each name. One that fails does not keep the others from being asked; the first failure is the result. */
static int for_each(struct args *a, struct conn *c, const struct login *l, each_fn *fn, void *arg, struct err *e)
{
	AUTO_JSON json_t *names = json_array();
	const json_t *one;
	size_t i;
	int first = list_names(a, c, names, e);

	if (first < 0)
		return first;
	json_array_foreach(names, i, one)
	{
		AUTO_JSON json_t *answer = NULL;
		struct err why = { 0 };
		int r = interrupted ? 0 : ask(c, json_string_value(one), l, &answer, &why);

		if (r == 0 && answer)
			r = fn(a, c, answer, arg, &why);
		if (r < 0 && first == 0) {
			first = r;
			*e = why;
		}
	}
	return first;
}

static int show_outdated(struct args *a, struct conn *c, const json_t *answer, void *arg, struct err *e)
{
	const bool moved = json_is_true(json_object_get(answer, "outdated"));

	(void)c;
	*(bool *)arg = *(bool *)arg || moved;
	if (a->json)
		return show_json(answer, SHOW_LINE, e);
	if (moved)
		printf("%s has moved from %.19s to %.19s\n", show_str(answer, "name"), show_str(answer, "digest"),
		       show_str(answer, "registry_digest"));
	return 0;
}

static int run_outdated(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	struct login l = { 0 };
	bool any = false, quiet = false;
	int r = read_options(a, &l, &quiet, e);

	if (r < 0 || a->help)
		return r;
	r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = for_each(a, c, &l, show_outdated, &any, e);
	explicit_bzero(l.password, sizeof(l.password));
	return r < 0 ? r : any;
}

struct updating {
	struct login login;
	bool quiet;
};

static int update_one(struct args *a, struct conn *c, const json_t *answer, void *arg, struct err *e)
{
	const struct updating *u = arg;

	if (!json_is_true(json_object_get(answer, "outdated")))
		return 0;
	return pull_one(a, c, show_str(answer, "name"), &u->login, u->quiet, e);
}

static int run_update(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	struct updating u = { 0 };
	int r = read_options(a, &u.login, &u.quiet, e);

	if (r < 0 || a->help)
		return r;
	r = conn_open(&a->conn, &c, e);
	signal(SIGINT, on_interrupt);
	if (r == 0)
		r = for_each(a, c, &u.login, update_one, &u, e);
	explicit_bzero(u.login.password, sizeof(u.login.password));
	return r;
}

const struct command image_pull = {
	.name = "image pull",
	.text = "pull images from registries",
	.help = pull_help,
	.letters = "qu:",
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "image",
	.run = run_pull,
};
const struct command image_update = {
	.name = "image update",
	.text = "pull images again whose tag has moved",
	.help = update_help,
	.letters = "qu:",
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "image",
	.run = run_update,
};
const struct command image_outdated = {
	.name = "image outdated",
	.text = "list images whose tag has moved",
	.help = outdated_help,
	.letters = "u:",
	.options = login_options,
	.complete = COMPLETE_NAMES,
	.names = "image",
	.run = run_outdated,
};
