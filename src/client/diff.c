/* `cloche diff`. */
#include "client/client.h"
#include "base/base.h"
#include "client/ref.h"
#include "client/show.h"
#include "client/text.h"

enum { OPT_TEXT = 256, OPT_EXIT_CODE };

static const struct option options[] = {
	{ "text", no_argument, NULL, OPT_TEXT },
	{ "exit-code", no_argument, NULL, OPT_EXIT_CODE },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche diff [options] [FROM] TO\n"
	"\n"
	"Shows which files differ: A added, M changed, D removed, with their sizes. TO is a sandbox "
	"or a checkpoint (its\n"
	"id, or SANDBOX:NAME). FROM is one of these, or `image`, the default: then all changes of TO are listed.\n"
	"\n"
	"  --text              also print a unified diff of files that are text\n"
	"  --exit-code         exits with 1 when there are differences\n";

/* Which of both a word names, as the API writes it: "sandbox:ID", "checkpoint:ID", "image". */
static int find(struct conn *c, const char *word, bool is_from, struct buf *ret, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *v = NULL;
	AUTO_FREE char *id = NULL;
	struct err mine = { 0 };
	int r;

	if (is_from && !strcmp(word, "image"))
		return buf_adds(ret, "image");
	if (strchr(word, ':')) {
		r = ref_id(c, word, &id, e);
		return r < 0 ? r : buf_addf(ret, "checkpoint:%s", id);
	}
	r = url_add(&path, "/v1/sandboxes/%s", word);
	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "'%.100s'", word);
	r = conn_get(c, buf_str(&path), &v, &mine);
	if (r == 0)
		return buf_addf(ret, "sandbox:%s", show_str(v, "id"));
	if (r == -ENOENT && mine.kind == ERR_NOT_FOUND) {
		buf_cut(&path, 0);
		r = ref_url(&path, word, "", "");
		if (r == 0)
			r = conn_get(c, buf_str(&path), &v, e);
		if (r == 0)
			return buf_addf(ret, "checkpoint:%s", show_str(v, "id"));
		err_set(e, ERR_NOT_FOUND, -ENOENT, "neither a sandbox nor a checkpoint '%.64s'", word);
		err_remedy(e, "`cloche ls` lists sandboxes, `cloche checkpoint ls` checkpoints; a checkpoint's name is "
			      "written SANDBOX:NAME");
		return -ENOENT;
	}
	*e = mine;
	return r;
}

/* Every line escaped, and kept a line. */
static void print_text(const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");
		AUTO(buf_done) struct buf b = BUF_INIT(8 * MIB);
		const char *at = text, *end = text + n;

		while (at < end) { /* tabs are text */
			size_t m = strcspn(at, "\t");

			if (m > (size_t)(end - at))
				m = (size_t)(end - at);
			text_escape(&b, at, m);
			at += m;
			if (at < end) {
				buf_addc(&b, '\t');
				at++;
			}
		}
		puts(buf_str(&b));
		text = end + (*end == '\n');
	}
}

/* "(4K, was 3K, mode 0755, was 0644)": what of a file is new, and what it was. */
static void add_sizes(struct buf *b, const json_t *one, char change)
{
	const char *mode = show_str(one, "mode"), *old_mode = show_str(one, "old_mode");
	char size[32], old[32];

	text_size(show_u64(one, "size"), size, sizeof(size));
	text_size(show_u64(one, "old_size"), old, sizeof(old));
	if (change == 'M')
		buf_addf(b, "  (%s, was %s", size, old);
	else
		buf_addf(b, "  (%s", change == 'A' ? size : old);
	if (change == 'M' && *mode && *old_mode && strcmp(mode, old_mode))
		buf_addf(b, ", mode %.8s, was %.8s", mode, old_mode);
	buf_adds(b, ")");
}

static void print_entry(const json_t *one)
{
	const char *change = show_str(one, "change"), *type = show_str(one, "type"), *path = show_str(one, "path");
	char letter = *change == 'a' ? 'A' : *change == 'r' ? 'D' : 'M';
	AUTO(buf_done) struct buf raw = BUF_INIT(64 * KIB), b = BUF_INIT(256 * KIB);

	buf_addf(&raw, "%s%s", path, !strcmp(type, "dir") ? "/" : "");
	if (!strcmp(type, "file"))
		add_sizes(&raw, one, letter);
	text_escape(&b, buf_str(&raw), raw.len);
	printf("%c %s\n", letter, buf_str(&b));
	print_text(show_str(one, "text"));
}

static int print(const json_t *v, struct err *e)
{
	const json_t *one;
	size_t i;

	(void)e;
	json_array_foreach(json_object_get(v, "entries"), i, one) print_entry(one);
	if (json_is_true(json_object_get(v, "truncated")))
		show_warn("more differences: %llu added, %llu changed, %llu removed in total",
			  (unsigned long long)show_u64(v, "added"), (unsigned long long)show_u64(v, "changed"),
			  (unsigned long long)show_u64(v, "removed"));
	return 0;
}

static int ask(struct conn *c, const struct args *a, bool text, json_t **ret, struct err *e)
{
	AUTO(buf_done) struct buf from = BUF_INIT(1 * KIB), to = BUF_INIT(1 * KIB), path = BUF_INIT(8 * KIB);
	const char *id;
	int r = find(c, a->rest[a->nrest - 1], false, &to, e);

	if (r == 0 && a->nrest == 2)
		r = find(c, a->rest[0], true, &from, e);
	if (r < 0)
		return r;
	id = strchr(buf_str(&to), ':') + 1;
	r = url_add(&path, buf_str(&to)[0] == 's' ? "/v1/sandboxes/%s/diff" : "/v1/checkpoints/%s/diff", id);
	if (r == 0)
		r = url_add(&path, "?from=%s", from.len ? buf_str(&from) : "image");
	if (r == 0 && text)
		r = buf_adds(&path, "&text=1");
	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "the path");
	return conn_get(c, buf_str(&path), ret, e);
}

static int run(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	bool text = false, code = false;
	AUTO_JSON json_t *v = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		text = text || opt == OPT_TEXT;
		code = code || opt == OPT_EXIT_CODE;
	}
	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 1, 2, "TO", &c, e);
	if (r == 0)
		r = ask(c, a, text, &v, e);
	if (r == 0)
		r = a->json ? show_json(v, SHOW_LINE, e) : print(v, e);
	if (r < 0 || !code)
		return r;
	return show_u64(v, "added") || show_u64(v, "changed") || show_u64(v, "removed") ? 1 : 0;
}

const struct command cmd_diff = {
	.name = "diff",
	.text = "list changed files",
	.help = help,
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox checkpoint",
	.run = run,
};
