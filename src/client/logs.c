/* `cloche logs`. */
#include "client/client.h"
#include "base/base.h"
#include "base/str.h"
#include "client/show.h"
#include "client/table.h"
#include "client/text.h"

#include <unistd.h>

enum { OPT_STREAM = 256, OPT_LIST };

static const struct option options[] = {
	{ "follow", no_argument, NULL, 'f' },
	{ "stream", required_argument, NULL, OPT_STREAM },
	{ "list", no_argument, NULL, OPT_LIST },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche logs [options] SANDBOX [EXEC]\n"
	"\n"
	"Prints the stdout and stderr of an exec to stdout and stderr; without EXEC, of the newest exec whose output is\n"
	"kept. Output is kept while an exec runs; after its end for some minutes, if it ran in the background.\n"
	"\n"
	"  -f, --follow        continue until it has ended\n"
	"  --stream NAME       only stdout, stderr or tty\n"
	"  --list              list the execs of the sandbox, the newest first\n";

struct stream {
	const char *name;
	int fd;
	struct call *call;
	int error;
	bool begun, ended; /* the head of the answer was seen; the exec had ended then */
	bool more; /* this answer brought something */
	bool again; /* it is not the first one */
	uint64_t at, total; /* of its next byte; of all there were */
};

static void stream_begin(struct stream *s);

static int on_bytes(void *arg, const void *data, size_t len)
{
	struct stream *s = arg;

	/* What is slow here is slow for the daemon too: it does not read ahead without end. */
	if (!s->begun)
		stream_begin(s);
	s->more = true;
	s->error = fd_write_all(s->fd, data, len);
	s->at += len;
	return s->error;
}

static int get_execs(struct conn *c, const char *sandbox, json_t **ret, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	int r = url_add(&path, "/v1/sandboxes/%s/execs", sandbox);

	return r < 0 ? r : conn_get(c, buf_str(&path), ret, e);
}

/* What others have been shown while it ran is not kept behind its end. */
static bool is_kept(const json_t *x)
{
	return json_is_true(json_object_get(x, "background")) || strcmp(show_str(x, "state"), "ended") != 0;
}

static json_t *newest(const json_t *execs)
{
	json_t *best = NULL, *x;
	size_t i;

	json_array_foreach(execs, i, x)
	{
		int more = !best ? 1 : (int)is_kept(x) - (int)is_kept(best);

		if (more > 0 || (!more && strcmp(show_str(x, "started_at"), show_str(best, "started_at")) > 0))
			best = x;
	}
	return best;
}

static int show_list(const json_t *execs, struct err *e)
{
	static const char *const titles[] = { "EXEC", "STATE", "EXIT", "USER", "AGE", "TTY", "COMMAND" };
	AUTO(table_done) struct table t;
	const json_t *x;
	size_t i;

	table_init(&t, titles, ARRAY_LEN(titles), 0x14);
	json_array_foreach(execs, i, x)
	{
		AUTO(buf_done) struct buf cmd = BUF_INIT(64 * KIB);
		const json_t *word, *words = json_object_get(x, "cmd"), *code = json_object_get(x, "exit_code");
		char tmp[32];
		size_t n;

		table_add(&t, show_str(x, "id"));
		table_add(&t, show_str(x, "state"));
		if (json_is_integer(code))
			table_addf(&t, "%lld", (long long)json_integer_value(code));
		else
			table_add(&t, "");
		table_add(&t, show_str(x, "user"));
		table_add(&t, show_age(show_str(x, "started_at"), tmp, sizeof(tmp)));
		table_add(&t, json_is_true(json_object_get(x, "tty")) ? "yes" : "no");
		json_array_foreach(words, n, word)
			buf_addf(&cmd, "%s%s", n ? " " : "", json_is_string(word) ? json_string_value(word) : "?");
		table_add(&t, json_is_string(words) ? json_string_value(words) : buf_str(&cmd));
	}
	return table_print(&t, e);
}

static int open_stream(struct conn *c, struct stream *s, const char *sandbox, const char *exec, bool follow,
		       struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct call_spec spec = { .method = "GET", .accept = "*/*", .sink = on_bytes, .arg = s };
	int r = url_add(&path, "/v1/sandboxes/%s/execs/%s/output?stream=%s&follow=%u&offset=%u", sandbox, exec, s->name,
			(unsigned long long)follow, (unsigned long long)s->at);

	spec.path = buf_str(&path);
	return r < 0 ? r : call_start(c, &spec, &s->call, e);
}

static uint64_t header_u64(struct call *c, const char *name)
{
	const char *text = call_header(c, name);
	uint64_t v = 0;

	return text && parse_u64(text, &v, NULL) == 0 ? v : 0;
}

/* Where an answer begins: what was asked for and comes before that is gone. */
static void stream_begin(struct stream *s)
{
	uint64_t lost = header_u64(s->call, "X-Cloche-Lost");
	const char *state;
	char text[160];

	s->begun = true;
	s->at = header_u64(s->call, "X-Cloche-Offset");
	s->total = header_u64(s->call, "X-Cloche-Total");
	state = call_header(s->call, "X-Cloche-State");
	s->ended = state && !strcmp(state, "ended");
	if (!lost)
		return;
	s->more = true;
	show_gap(text, sizeof(text), s->name, lost, s->at);
	show_warn("%s", text);
}

/*
 * An answer ends where there is a gap; the next one begins behind it. 1: there is one. Whether a followed exec has
 * ended is only known by asking again: if it, or its sandbox, was removed meanwhile, that is the end as well, unless
 * some of its output is known to be missing.
 */
static int stream_next(struct conn *c, struct stream *s, const char *sandbox, const char *exec, bool follow,
		       struct err *e)
{
	struct err mine = { 0 };
	int r = call_wait(s->call, &mine);

	if (r == 0 && !s->begun)
		stream_begin(s);
	call_free(s->call);
	s->call = NULL;
	if (follow && s->again && s->at >= s->total && r == -ENOENT && mine.kind == ERR_NOT_FOUND)
		return 0;
	if (r < 0)
		*e = mine;
	if (s->error == -EPIPE) /* the reader has closed the pipe: no error */
		return 0;
	if (r < 0 || (s->at >= s->total && (!follow || s->ended)) || (!follow && !s->more))
		return r;
	s->begun = s->more = false;
	s->again = true;
	r = open_stream(c, s, sandbox, exec, follow, e);
	return r < 0 ? r : 1;
}

/* Both at once, so that a followed one does not wait for the other's end. */
static int copy_streams(struct conn *c, const char *sandbox, const char *exec, struct stream *s, size_t n, bool follow,
			struct err *e)
{
	size_t open = n;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = open_stream(c, &s[i], sandbox, exec, follow, e);
	while (r == 0 && open) {
		r = conn_turn(c, 1000, e);
		for (size_t i = 0; i < n && r == 0; i++) {
			if (!s[i].call || !call_ended(s[i].call))
				continue;
			r = stream_next(c, &s[i], sandbox, exec, follow, e);
			open -= r == 0;
			r = r < 0 ? r : 0;
		}
	}
	for (size_t i = 0; i < n; i++)
		call_free(s[i].call);
	return r;
}

static int find_exec(struct conn *c, const char *sandbox, const char *given, char *ret, size_t size, bool *ret_tty,
		     struct err *e)
{
	AUTO_JSON json_t *all = NULL;
	const json_t *x = NULL, *one;
	size_t i;
	int r = get_execs(c, sandbox, &all, e);

	if (r < 0)
		return r;
	if (!given)
		x = newest(json_object_get(all, "execs"));
	json_array_foreach(json_object_get(all, "execs"), i, one) if (given && !strcmp(show_str(one, "id"), given)) x =
		one;
	if (!x && !given)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "no command has run in '%.64s' yet", sandbox);
	if (x && !is_kept(x))
		show_warn("the output of exec %s is not kept: its caller has received it; use `exec -d` to keep output",
			  show_str(x, "id"));
	/* One that is not among the newest is known by its id all the same. */
	snprintf(ret, size, "%s", x ? show_str(x, "id") : given);
	*ret_tty = json_is_true(json_object_get(x, "tty"));
	return 0;
}

static int run(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	const char *only = NULL, *sandbox;
	bool follow = false, list = false, tty = false;
	struct stream s[2] = { { .name = "stdout", .fd = STDOUT_FILENO }, { .name = "stderr", .fd = STDERR_FILENO } };
	char exec[128];
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		follow = follow || opt == 'f';
		list = list || opt == OPT_LIST;
		if (opt == OPT_STREAM)
			only = optarg;
	}
	if (r < 0 || a->help)
		return r;
	if (only && strcmp(only, "stdout") && strcmp(only, "stderr") && strcmp(only, "tty"))
		return err_set(e, ERR_INVALID, -EINVAL, "--stream '%.20s': must be stdout, stderr or tty", only);
	r = args_connect(a, 1, list ? 1 : 2, "SANDBOX", &c, e);
	if (r < 0)
		return r;
	sandbox = a->rest[0];
	if (list || a->json) {
		AUTO_JSON json_t *all = NULL;

		r = get_execs(c, sandbox, &all, e);
		if (r < 0)
			return r;
		return a->json ? show_json(json_object_get(all, "execs"), SHOW_LINE, e) :
				 show_list(json_object_get(all, "execs"), e);
	}
	r = find_exec(c, sandbox, a->nrest > 1 ? a->rest[1] : NULL, exec, sizeof(exec), &tty, e);
	if (r < 0)
		return r;
	if (tty || only) {
		s[0].name = only ? only : "tty";
		return copy_streams(c, sandbox, exec, s, 1, follow, e);
	}
	return copy_streams(c, sandbox, exec, s, 2, follow, e);
}

const struct command cmd_logs = {
	.name = "logs",
	.text = "print the output of an exec",
	.help = help,
	.letters = "f",
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};
