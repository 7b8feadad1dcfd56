/*
 * `cloche run --language NAME`: code from a file or stdin, run by a daemon in a sandbox of its own (POST /v1/run). Output comes as it
 * is written, the value of the last expression as text behind it; what the code has made and shown is saved on request.
 */
#include "client/client.h"
#include "base/base.h"
#include "base/base64.h"
#include "client/input.h"
#include "client/show.h"
#include "client/sse.h"
#include "client/text.h"
#include "client/want.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define CODE_MAX (32 * MIB)
#define FILES_MAX (32 * MIB)
#define EVENT_MAX (64 * MIB) /* artifacts and results in base64 */

enum { OPT_LANGUAGE = 256, OPT_ARTIFACTS, OPT_ONLY, OPT_FILE, OPT_TEMPLATE, OPT_PACKAGE };

static const struct option options[] = {
	{ "language", required_argument, NULL, OPT_LANGUAGE },
	{ "artifacts", required_argument, NULL, OPT_ARTIFACTS },
	{ "only", required_argument, NULL, OPT_ONLY },
	{ "file", required_argument, NULL, OPT_FILE },
	{ "template", required_argument, NULL, OPT_TEMPLATE },
	{ "package", required_argument, NULL, OPT_PACKAGE },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche run --language python|javascript|typescript|shell|r [options] [FILE|-]\n"
	"\n"
	"Runs code from a file or stdin, by a daemon, in a sandbox of its own that ends with it. Prints its output, and the value\n"
	"of the last expression. Exits with 0, 1 when the code fails, 124 at its timeout, 137 at a limit, 125 when cloche fails.\n"
	"\n"
	"  --artifacts DIR     save new files of the working folder and plots (plot-1.png, …) below DIR\n"
	"  --only PATTERN      only files that match, as '*.csv' (repeatable; with --artifacts)\n"
	"  --file SRC[:DST]    a file for the working folder                 (repeatable)\n"
	"  --package NAME      install it first, by pip or npm               (repeatable)\n"
	"  --template NAME     settings of a template\n";

struct code_run {
	bool json;
	int folder; /* where artifacts go; -1: they are not saved */
	unsigned plots;
	int code; /* of this process */
	bool over;
	struct sse sse;
	struct err err;
};

/* --- what is saved --- */

/* @path is a sandbox's word: nothing above @folder, and no link that is there, is followed. */
static int open_below(int folder, const char *path, struct err *e)
{
	AUTO_CLOSE int dir = fcntl(folder, F_DUPFD_CLOEXEC, 3);
	const char *slash;
	int fd;

	for (; (slash = strchr(path, '/')); path = slash + 1) {
		AUTO_FREE char *part = strndup(path, (size_t)(slash - path));

		if (!part || !*part || !strcmp(part, "..") || !strcmp(part, "."))
			return err_set(e, ERR_INVALID, -EINVAL, "an artifact has an invalid path");
		if (mkdirat(dir, part, 0755) < 0 && errno != EEXIST)
			return err_sys(e, ERR_REFUSED, -errno, "make the folder of an artifact");
		fd = openat(dir, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return err_sys(e, ERR_REFUSED, -errno, "open the folder of an artifact");
		close(dir);
		dir = fd;
	}
	if (!*path || !strcmp(path, "..") || !strcmp(path, "."))
		return err_set(e, ERR_INVALID, -EINVAL, "an artifact has an invalid path");
	fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	return fd < 0 ? err_sys(e, ERR_REFUSED, -errno, "write an artifact") : fd;
}

static int save(struct code_run *x, const char *path, const void *data, size_t len)
{
	AUTO_CLOSE int fd = open_below(x->folder, path, &x->err);
	int r = fd < 0 ? fd : fd_write_all(fd, data, len);

	if (fd >= 0 && r < 0)
		err_sys(&x->err, ERR_REFUSED, r, "write an artifact");
	return r;
}

static int save_base64(struct code_run *x, const char *path, const json_t *content)
{
	const size_t len = json_string_length(content);
	AUTO_FREE char *data = malloc(len + 1);
	ssize_t n = data ? base64_decode(json_string_value(content), len, data) : -ENOMEM;

	if (n < 0)
		return err_set(&x->err, ERR_INTERNAL, (int)n, "an artifact is not valid base64");
	return save(x, path, data, (size_t)n);
}

static int save_artifacts(struct code_run *x, const json_t *list)
{
	AUTO(buf_done) struct buf line = BUF_INIT(64 * KIB);
	int r = 0;

	for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
		const json_t *one = json_array_get(list, i), *content = json_object_get(one, "content");
		const char *path = show_str(one, "path");

		if (json_is_string(content)) {
			r = save_base64(x, path, content);
			continue;
		}
		buf_clear(&line);
		text_escape(&line, path, strlen(path));
		fprintf(stderr, "cloche: '%s' is too large and was not saved\n", buf_str(&line));
	}
	return r;
}

/* Those formats of a result that are pictures. */
static int save_plot(struct code_run *x, const json_t *mime)
{
	static const char *const formats[][2] = { { "image/png", "png" },
						  { "image/jpeg", "jpeg" },
						  { "image/svg+xml", "svg" } };
	char name[40];

	for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
		const json_t *v = json_object_get(mime, formats[i][0]);

		if (!json_is_string(v))
			continue;
		snprintf(name, sizeof(name), "plot-%u.%s", ++x->plots, formats[i][1]);
		return i < 2 ? save_base64(x, name, v) : save(x, name, json_string_value(v), json_string_length(v));
	}
	return 0;
}

/* --- what is printed --- */

static void print_text(FILE *to, const json_t *v, const char *end)
{
	fwrite(json_string_value(v), 1, json_string_length(v), to);
	fputs(end, to);
}

static int on_result(struct code_run *x, const json_t *v)
{
	const json_t *mime = json_object_get(v, "mime"), *text = json_object_get(mime, "text/plain");

	if (json_is_string(text))
		print_text(stdout, text, "\n");
	return x->folder >= 0 ? save_plot(x, mime) : 0;
}

static int on_end(struct code_run *x, const json_t *v)
{
	const json_t *verdict = json_object_get(v, "verdict");
	const char *cause = show_str(verdict, "cause");
	AUTO(buf_done) struct buf line = BUF_INIT(4 * KIB);

	x->over = true;
	x->code = !strcmp(cause, "ok")	    ? 0 :
		  !strcmp(cause, "error")   ? 1 :
		  !strcmp(cause, "timeout") ? EXIT_TIMEOUT :
					      EXIT_LIMIT;
	if (x->code > 1) {
		text_escape(&line, show_str(verdict, "detail"), strlen(show_str(verdict, "detail")));
		fflush(stdout);
		fprintf(stderr, "cloche: %s\n", buf_str(&line));
	}
	return x->folder >= 0 ? save_artifacts(x, json_object_get(v, "artifacts")) : 0;
}

static int on_event(void *arg, const struct sse *s)
{
	struct code_run *x = arg;
	AUTO_JSON json_t *v = json_loadb(s->data.data, s->data.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	int r = 0;

	if (!json_is_object(v))
		return 0;
	if (x->json) {
		json_object_set_new(v, "event", json_string(s->event));
		show_json(v, SHOW_LINE, NULL);
	}
	if (!strcmp(s->event, "stdout") && !x->json)
		print_text(stdout, json_object_get(v, "text"), "");
	else if (!strcmp(s->event, "stderr") && !x->json)
		print_text(stderr, json_object_get(v, "text"), "");
	else if (!strcmp(s->event, "error") && !x->json)
		print_text(stderr, json_object_get(v, "traceback"), "");
	else if (!strcmp(s->event, "result"))
		r = x->json ? (x->folder >= 0 ? save_plot(x, json_object_get(v, "mime")) : 0) : on_result(x, v);
	else if (!strcmp(s->event, "end"))
		r = on_end(x, v);
	if (r < 0)
		return r;
	return fflush(stdout) ? -errno : 0;
}

static int on_bytes(void *arg, const void *data, size_t len)
{
	struct code_run *x = arg;

	return sse_feed(&x->sse, data, len);
}

/* --- the request --- */

static int read_all(const char *path, size_t max, struct buf *b, struct err *e)
{
	AUTO_CLOSE int fd = -1;

	b->max = max;
	if (!path || !strcmp(path, "-"))
		return input_read(STDIN_FILENO, "stdin", b, e);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, ERR_NOT_FOUND, -errno, "open '%.200s'", path);
	return input_read(fd, path, b, e);
}

/* SRC[:DST]; DST is the name of SRC unless given. */
static int add_file(json_t *body, const char *arg, struct err *e)
{
	AUTO(buf_done) struct buf data = BUF_INIT(FILES_MAX);
	const char *colon = strrchr(arg, ':'), *name;
	AUTO_FREE char *src = colon ? strndup(arg, (size_t)(colon - arg)) : strdup(arg);
	AUTO_FREE char *coded = NULL;
	json_t *files = json_object_get(body, "files");
	int r = src ? read_all(src, FILES_MAX, &data, e) : -ENOMEM;

	if (r < 0)
		return r;
	name = strrchr(src, '/') ? strrchr(src, '/') + 1 : src;
	coded = malloc(BASE64_SIZE(data.len));
	if (!files) {
		files = json_object();
		json_object_set_new(body, "files", files);
	}
	if (coded)
		base64_encode(buf_str(&data), data.len, coded);
	if (!coded || json_object_set_new(files, colon ? colon + 1 : name, json_pack("{s:s}", "base64", coded)) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': the name is not UTF-8, or out of memory", arg);
	return 0;
}

static int add_word(json_t *body, const char *key, const char *word, struct err *e)
{
	json_t *list = json_object_get(body, key), *v = json_string(word);

	if (!json_is_array(list)) {
		list = json_array();
		json_object_set_new(body, key, list);
	}
	return v && json_array_append_new(list, v) == 0 ? 0 :
							  err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", word);
}

/* The options of a create, as a run says them. */
static int move_options(json_t *create, json_t *body, struct err *e)
{
	static const char *const limits[] = { "cpus", "memory", "disk", "inodes", "io_bps", "pids", "nofile" };
	static const char *const same[] = { "image", "isolation", "network", "secrets", "env" };
	json_t *of = json_object();
	const char *key;
	json_t *v;

	for (size_t i = 0; i < ARRAY_LEN(limits); i++)
		if (json_object_get(create, limits[i])) {
			json_object_set(of, limits[i], json_object_get(create, limits[i]));
			json_object_del(create, limits[i]);
		}
	for (size_t i = 0; i < ARRAY_LEN(same); i++)
		if (json_object_get(create, same[i])) {
			json_object_set(body, same[i], json_object_get(create, same[i]));
			json_object_del(create, same[i]);
		}
	if (json_object_get(create, "exec_timeout"))
		json_object_set(body, "timeout", json_object_get(create, "exec_timeout"));
	json_object_del(create, "exec_timeout");
	if (json_object_size(of))
		json_object_set(body, "limits", of);
	json_decref(of);
	json_object_foreach(create, key, v)
	{
		err_set(e, ERR_INVALID, -EINVAL, "the option for '%s' has no effect on code that is run once", key);
		err_remedy(e, "leave it out; `cloche run --language python --help` lists what there is");
		return -EINVAL;
	}
	return 0;
}

static int send_code(struct args *a, struct code_run *x, const json_t *body, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	AUTO(call_free) struct call *call = NULL;
	const struct call_spec spec = { .method = "POST",
					.path = "/v1/run",
					.body = body,
					.accept = "text/event-stream",
					.sink = on_bytes,
					.arg = x };
	int r = conn_open(&a->conn, &c, e);

	if (r < 0) {
		err_remedy(e, "`cloche serve` starts a daemon");
		return r;
	}
	sse_init(&x->sse, on_event, x);
	x->sse.data.max = x->sse.line.max = EVENT_MAX;
	r = call_start(c, &spec, &call, e);
	if (r == 0)
		r = call_wait(call, e);
	sse_done(&x->sse);
	if (x->err.msg[0]) {
		*e = x->err;
		r = -EIO;
	}
	if (r == 0 && !x->over)
		r = err_set(e, ERR_LOST, -EPIPE, "the daemon has ended the connection before the code did");
	return r < 0 ? r : x->code;
}

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *create = json_object(), *body = json_object();
	AUTO(buf_done) struct buf code = BUF_INIT(CODE_MAX);
	AUTO_CLOSE int folder = -1;
	struct code_run x = { .folder = -1 };
	const char *to = NULL;
	json_t *text;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == OPT_LANGUAGE)
			r = args_set_text(body, "language", optarg, e);
		else if (opt == OPT_ARTIFACTS)
			to = optarg;
		else if (opt == OPT_ONLY)
			r = add_word(body, "artifacts", optarg, e);
		else if (opt == OPT_FILE)
			r = add_file(body, optarg, e);
		else if (opt == OPT_TEMPLATE)
			r = args_set_text(body, "template", optarg, e);
		else if (opt == OPT_PACKAGE)
			r = add_word(body, "packages", optarg, e);
		else
			r = want_apply(create, opt, optarg, e);
		if (r < 0)
			return r;
	}
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 0, 1, "FILE, or - for stdin", e);
	if (r == 0)
		r = move_options(create, body, e);
	if (r == 0)
		r = read_all(a->nrest ? a->rest[0] : NULL, CODE_MAX, &code, e);
	if (r < 0)
		return r;
	text = json_stringn(buf_str(&code), code.len);
	if (!text)
		return err_set(e, ERR_INVALID, -EINVAL, "the code is not valid UTF-8");
	json_object_set_new(body, "code", text);
	if (to && !json_object_get(body, "artifacts"))
		json_object_set_new(body, "artifacts", json_true());
	if (to && mkdir(to, 0777) < 0 && errno != EEXIST)
		return err_sys(e, ERR_REFUSED, -errno, "make '%.200s'", to);
	if (to)
		folder = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (to && folder < 0)
		return err_sys(e, ERR_REFUSED, -errno, "open '%.200s'", to);
	x.folder = folder;
	x.json = a->json;
	return send_code(a, &x, body, e);
}

const struct command cmd_run_code = {
	.name = "run",
	.text = "run code in a sandbox of its own",
	.help = help,
	.more_help = want_help,
	.letters = "e:",
	.options = options,
	.more = want_options,
	.run = run,
};
