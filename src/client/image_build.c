/* `cloche image build`: the Dockerfile and the context go to the daemon, and what it says of the steps is shown. */
#include "client/image.h"
#include "base/base.h"
#include "base/base64.h"
#include "client/show.h"
#include "client/text.h"
#include "client/tree.h"
#include "client/want.h"
#include "dockerfile/ignore.h"
#include "dockerfile/parse.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_MAX (500 * KIB)

enum { OPT_ARG = 256, OPT_TARGET, OPT_NETWORK, OPT_ALLOW, OPT_NO_CACHE, OPT_LABEL, OPT_SECRET };

static const struct option options[] = {
	{ "tag", required_argument, NULL, 't' },
	{ "file", required_argument, NULL, 'f' },
	{ "build-arg", required_argument, NULL, OPT_ARG },
	{ "target", required_argument, NULL, OPT_TARGET },
	{ "network", required_argument, NULL, OPT_NETWORK },
	{ "allow", required_argument, NULL, OPT_ALLOW },
	{ "no-cache", no_argument, NULL, OPT_NO_CACHE },
	{ "label", required_argument, NULL, OPT_LABEL },
	{ "secret", required_argument, NULL, OPT_SECRET },
	{ "quiet", no_argument, NULL, 'q' },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche image build [options] DIR\n"
	"       cloche image build [options] - <Dockerfile\n"
	"\n"
	"Builds an image from DIR/Dockerfile. The files of DIR are its context, except those that DIR/.dockerignore leaves\n"
	"out. Every step runs in a sandbox of its own, without network unless --network or --allow is given. "
	"Steps\n"
	"that an earlier build has done are not done again. Progress and output of the steps are on stderr; the "
	"image's name\n"
	"is printed at the end. With `-` there is no context.\n"
	"\n"
	"  -t, --tag NAME          name of the image, NAME or NAME:TAG (repeatable)   build:DIGITS\n"
	"  -f, --file FILE         the Dockerfile                                     DIR/Dockerfile\n"
	"  --build-arg NAME[=V]    value of an ARG; without V that of the environment (repeatable)\n"
	"  --target STAGE          build up to this stage\n"
	"  --network MODE          what RUN may reach: none; allow; open (docs/network.md)   none\n"
	"  --allow HOST[:PORT]     RUN may reach this host (repeatable)\n"
	"  --no-cache              do every step again\n"
	"  --label NAME=VALUE      a label of the image (repeatable)\n"
	"  --secret id=ID[,src=FILE|,env=NAME]\n"
	"                          for RUN --mount=type=secret (repeatable); it is in no layer. Without src and env: "
	"the\n"
	"                          variable ID\n"
	"  -q, --quiet             no progress, only the name\n";

struct building {
	json_t *head;
	const char *file; /* of --file */
	bool quiet, json, tty;
	/* The request's body. */
	struct buf first; /* its first line */
	size_t sent;
	struct tree_reader *tree; /* NULL: no context */
	struct ignore ignore;
	const struct tree_reader *failed;
	/* The answer. */
	struct buf line;
	bool open; /* the line of a step that has begun is the last one on the terminal */
	json_t *begun; /* the step that has begun, and was not written yet */
	json_t *end; /* the last word */
	bool text_open; /* output that did not end with a new line */
};

/* --- what is asked for --- */

static json_t *object_of(json_t *head, const char *key)
{
	json_t *o = json_object_get(head, key);

	if (!o) {
		o = json_object();
		json_object_set_new(head, key, o);
	}
	return o;
}

static int add_arg(json_t *head, const char *text, struct err *e)
{
	const char *value = getenv(text);

	if (strchr(text, '='))
		return show_set_pair(object_of(head, "args"), text, e);
	/* As elsewhere: a name alone passes the variable on, if there is one. */
	if (value && json_object_set_new(object_of(head, "args"), text, json_string(value)) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "--build-arg %.60s: its value is not UTF-8", text);
	return 0;
}

static int read_file(const char *path, int fd, uint64_t max, struct buf *to, struct err *e)
{
	AUTO_CLOSE int own = fd < 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char piece[16384];
	ssize_t n;

	to->max = (size_t)max;
	if (fd < 0 && own < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_INVALID, -errno, "%.150s", path);
	while ((n = read(fd < 0 ? own : fd, piece, sizeof(piece))) > 0)
		if (buf_add(to, piece, (size_t)n) < 0)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "%.150s is larger than %llu bytes", path,
				       (unsigned long long)max);
	return n < 0 ? err_sys(e, ERR_INVALID, -errno, "%.150s", path) : 0;
}

/* id=ID[,src=FILE][,env=NAME] */
static int add_secret(json_t *head, const char *text, struct err *e)
{
	AUTO(buf_done) struct buf value = BUF_INIT(SECRET_MAX);
	AUTO_FREE char *copy = strdup(text), *coded = NULL;
	const char *id = NULL, *src = NULL, *env = NULL;
	char *save = NULL;
	int r = 0;

	for (char *p = copy ? strtok_r(copy, ",", &save) : NULL; p; p = strtok_r(NULL, ",", &save)) {
		char *eq = strchr(p, '=');

		if (!eq)
			return err_set(e, ERR_INVALID, -EINVAL, "--secret: '%.60s' must be KEY=VALUE", p);
		*eq++ = '\0';
		if (!strcmp(p, "id"))
			id = eq;
		else if (!strcmp(p, "src") || !strcmp(p, "source"))
			src = eq;
		else if (!strcmp(p, "env"))
			env = eq;
		else if (strcmp(p, "type") != 0)
			return err_set(e, ERR_INVALID, -EINVAL, "--secret has no key '%.40s' (id, src, env)", p);
	}
	if (!id || !*id)
		return err_set(e, ERR_INVALID, -EINVAL, "--secret needs id=ID");
	if (src) {
		r = read_file(src, -1, SECRET_MAX, &value, e);
	} else {
		const char *v = getenv(env ? env : id);

		if (!v)
			return err_set(e, ERR_INVALID, -EINVAL, "--secret %.60s: no src, and no variable %.60s", id,
				       env ? env : id);
		r = buf_adds(&value, v);
	}
	if (r < 0)
		return r;
	coded = malloc(BASE64_SIZE(value.len));
	if (!coded)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	base64_encode(buf_str(&value), value.len, coded);
	json_object_set_new(object_of(head, "secrets"), id, json_string(coded));
	return 0;
}

static int apply(struct building *b, int opt, const char *arg, struct err *e)
{
	json_t *list;

	switch (opt) {
	case 't':
		list = json_object_get(b->head, "tags");
		if (!list)
			json_object_set_new(b->head, "tags", list = json_array());
		return json_array_append_new(list, json_string(arg)) < 0 ?
			       err_set(e, ERR_INVALID, -EINVAL, "--tag: not UTF-8") :
			       0;
	case 'f':
		b->file = arg;
		return 0;
	case 'q':
		b->quiet = true;
		return 0;
	case OPT_ARG:
		return add_arg(b->head, arg, e);
	case OPT_TARGET:
		return args_set_text(b->head, "target", arg, e);
	case OPT_NETWORK:
		return args_set_text(object_of(b->head, "network"), "mode", arg, e);
	case OPT_ALLOW:
		return want_allow(object_of(b->head, "network"), arg, e);
	case OPT_NO_CACHE:
		json_object_set_new(b->head, "no_cache", json_true());
		return 0;
	case OPT_LABEL:
		return show_set_pair(object_of(b->head, "labels"), arg, e);
	default:
		return add_secret(b->head, arg, e);
	}
}

/* --- the context --- */

static enum tree_pick pick(void *arg, const char *name, bool folder)
{
	const struct building *b = arg;

	/* The daemon reads it as well, so that other clients need not. */
	if (!strcmp(name, ".dockerignore") || !ignore_has(&b->ignore, name))
		return TREE_TAKE;
	return folder && !ignore_prunes(&b->ignore, name) ? TREE_LOOK : TREE_SKIP;
}

static int read_ignore(struct building *b, const char *dir, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(1 * MIB);
	AUTO_FREE char *path = NULL;
	int r;

	if (asprintf(&path, "%s/.dockerignore", dir) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	if (access(path, F_OK) < 0)
		return 0;
	r = read_file(path, -1, 1 * MIB, &text, e);
	return r < 0 ? r : ignore_parse(buf_str(&text), text.len, &b->ignore, e);
}

static int open_context(struct building *b, const char *dir, struct err *e)
{
	uint64_t bytes = 0;
	struct stat st;
	int r;

	if (stat(dir, &st) < 0)
		return err_sys(e, ERR_NOT_FOUND, -errno, "%.150s", dir);
	if (!S_ISDIR(st.st_mode)) {
		err_set(e, ERR_INVALID, -ENOTDIR, "'%.150s' is not a folder", dir);
		err_remedy(e, "name the folder of the context, and the Dockerfile with --file");
		return -ENOTDIR;
	}
	r = read_ignore(b, dir, e);
	if (r == 0)
		r = tree_read_open(dir, "", &b->tree, e);
	if (r < 0)
		return r;
	tree_read_exactly(b->tree, pick, b);
	r = tree_measure(dir, pick, b, &bytes, e);
	if (r == 0)
		json_object_set_new(b->head, "context_bytes", json_integer((json_int_t)bytes));
	return r;
}

static int read_dockerfile(struct building *b, const char *dir, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(DOCKERFILE_MAX);
	AUTO_FREE char *path = NULL;
	bool in = b->file ? !strcmp(b->file, "-") : !strcmp(dir, "-");
	json_t *v;
	int r;

	if (!in && asprintf(&path, "%s%s", b->file ? b->file : dir, b->file ? "" : "/Dockerfile") < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	r = read_file(in ? "stdin" : path, in ? STDIN_FILENO : -1, DOCKERFILE_MAX, &text, e);
	if (r < 0)
		return r;
	v = json_stringn(buf_str(&text), text.len);
	if (!v)
		return err_set(e, ERR_INVALID, -EINVAL, "the Dockerfile is not UTF-8");
	json_object_set_new(b->head, "dockerfile", v);
	return 0;
}

/* The request's body: the line, then the tar. */
static ssize_t source(void *arg, char *to, size_t len)
{
	struct building *b = arg;
	size_t n = b->first.len - b->sent < len ? b->first.len - b->sent : len;

	if (n) {
		memcpy(to, b->first.data + b->sent, n);
		b->sent += n;
		return (ssize_t)n;
	}
	return b->tree ? tree_read(b->tree, to, len) : 0;
}

/* --- the answer --- */

static void newline(struct building *b)
{
	if (b->open || b->text_open)
		fputc('\n', stderr);
	b->open = b->text_open = false;
}

static void put_step(struct building *b, const json_t *o, const char *text)
{
	const char *stage = show_str(o, "stage"), *state = show_str(o, "state");

	fprintf(stderr, "[%llu/%llu%s%s] %s", (unsigned long long)show_u64(o, "step"),
		(unsigned long long)show_u64(o, "total"), *stage ? " " : "", stage, text);
	if (!strcmp(state, "cached"))
		fputs("  CACHED", stderr);
	else if (strcmp(state, "begun") != 0 && show_u64(o, "ms") >= 10)
		fprintf(stderr, "  %.2fs", (double)show_u64(o, "ms") / 1000);
	b->open = true;
}

/* On a terminal the line of a step is written again at its end. Elsewhere it is written once, or when it says something. */
static void show_step(struct building *b, const json_t *o)
{
	AUTO(buf_done) struct buf text = BUF_INIT(16 * KIB);

	text_escape(&text, show_str(o, "text"), strnlen(show_str(o, "text"), 100));
	if (!strcmp(show_str(o, "state"), "begun")) {
		json_decref(b->begun);
		b->begun = json_incref((json_t *)(uintptr_t)o);
		if (b->tty)
			put_step(b, o, buf_str(&text));
	} else {
		if (b->open && b->tty)
			fputs("\r\033[K", stderr);
		else if (b->text_open)
			newline(b);
		put_step(b, o, b->begun || b->tty ? buf_str(&text) : "done");
		newline(b);
		json_decref(b->begun);
		b->begun = NULL;
	}
	fflush(stderr);
}

/* What programs print may be anything: escapes stay visible, lines stay lines. */
static void output_text(struct buf *to, const char *p)
{
	int r = 0;

	while (r == 0 && *p) {
		size_t n = strcspn(p, "\n\t");

		r = text_escape(to, p, n);
		if (r == 0 && p[n])
			r = buf_addc(to, p[n]);
		p += n + (p[n] != '\0');
	}
}

static void show_output(struct building *b, const json_t *o)
{
	AUTO(buf_done) struct buf text = BUF_INIT(4 * MIB);
	const char *raw = show_str(o, "text");
	size_t n = strlen(raw);

	if (b->begun && !b->tty) {
		AUTO(buf_done) struct buf step = BUF_INIT(16 * KIB);

		text_escape(&step, show_str(b->begun, "text"), strnlen(show_str(b->begun, "text"), 100));
		put_step(b, b->begun, buf_str(&step));
		json_decref(b->begun);
		b->begun = NULL;
	}
	if (b->open)
		newline(b);
	output_text(&text, raw);
	fd_write_all(STDERR_FILENO, buf_str(&text), text.len);
	b->text_open = n && raw[n - 1] != '\n';
}

static void show_event(struct building *b, json_t *o)
{
	const char *type = show_str(o, "type");

	if (!strcmp(type, "done") || !strcmp(type, "error")) {
		json_decref(b->end);
		b->end = json_incref(o);
	} else if (b->json) {
		AUTO(buf_done) struct buf text = BUF_INIT(4 * MIB);

		if (show_dump(o, SHOW_LINE, &text) == 0)
			fprintf(stderr, "%s\n", buf_str(&text));
	} else if (b->quiet) {
		;
	} else if (!strcmp(type, "step")) {
		show_step(b, o);
	} else if (!strcmp(type, "output")) {
		show_output(b, o);
	} else if (!strcmp(type, "pull")) {
		newline(b);
		fprintf(stderr, "pulling %s\n", show_str(o, "image"));
	} else if (!strcmp(type, "warning")) {
		newline(b);
		show_warn("%s", show_str(o, "text"));
	}
}

static int sink(void *arg, const void *data, size_t len)
{
	struct building *b = arg;
	const char *nl;

	if (buf_add(&b->line, data, len) < 0)
		return -E2BIG;
	while (b->line.len && (nl = memchr(b->line.data, '\n', b->line.len))) {
		size_t n = (size_t)(nl - b->line.data);
		AUTO_JSON json_t *o = json_loadb(b->line.data, n, 0, NULL);

		if (o)
			show_event(b, o);
		buf_drop(&b->line, n + 1);
	}
	return 0;
}

static int last_word(struct building *b, struct err *e)
{
	AUTO_FREE char *text = NULL;
	const json_t *image = json_object_get(b->end, "image");

	if (!b->quiet)
		newline(b);
	if (!b->end)
		return err_set(e, ERR_LOST, -EIO, "the daemon ended the build without a word");
	if (!image) {
		text = json_dumps(b->end, JSON_COMPACT);
		return conn_answer_error(text ? text : "", text ? strlen(text) : 0, 422, e);
	}
	if (b->json)
		return show_json(image, SHOW_LINE, e);
	show_line(show_str(image, "name"));
	return 0;
}

static int run_build(struct building *b, struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	AUTO(call_free) struct call *call = NULL;
	const struct call_spec s = { .method = "POST",
				     .path = "/v1/images/build",
				     .accept = "application/x-ndjson",
				     .header = "Content-Type: application/octet-stream",
				     .source = source,
				     .size = -1,
				     .sink = sink,
				     .arg = b };
	const char *dir = a->rest[0];
	int r = read_dockerfile(b, dir, e);

	if (r == 0 && strcmp(dir, "-") != 0)
		r = open_context(b, dir, e);
	if (r == 0 && !b->tree)
		json_object_set_new(b->head, "context", json_false());
	if (r == 0 && (show_dump(b->head, SHOW_LINE, &b->first) < 0 || buf_addc(&b->first, '\n') < 0))
		r = err_set(e, ERR_TOO_LARGE, -E2BIG, "the request is larger than 4 MiB");
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = call_start(c, &s, &call, e);
	if (r == 0)
		r = call_wait(call, e);
	if (r < 0 && b->tree && tree_read_error(b->tree))
		*e = *tree_read_error(b->tree);
	return r < 0 ? r : last_word(b, e);
}

static int run(struct args *a, struct err *e)
{
	struct building b = { .first = BUF_INIT(4 * MIB), .line = BUF_INIT(64 * MIB), .tty = isatty(STDERR_FILENO) };
	int opt, r;

	b.head = json_object();
	while ((r = args_next(a, &opt, e)) > 0) {
		r = apply(&b, opt, optarg, e);
		if (r < 0)
			break;
	}
	b.json = a->json;
	if (r == 0 && !a->help)
		r = args_count(a, 1, 1, "DIR", e);
	if (r == 0 && !a->help)
		r = run_build(&b, a, e);
	json_decref(b.head);
	json_decref(b.end);
	json_decref(b.begun);
	tree_read_free(b.tree);
	ignore_done(&b.ignore);
	buf_done(&b.first);
	buf_done(&b.line);
	return r;
}

const struct command image_build = {
	.name = "image build",
	.text = "build an image from a Dockerfile",
	.help = help,
	.letters = "t:f:q",
	.options = options,
	.complete = COMPLETE_FILES,
	.run = run,
};
