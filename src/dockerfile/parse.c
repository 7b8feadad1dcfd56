/*
 * From lines to instructions. Lines that end with the escape character continue; comments and empty lines inside an
 * instruction are left out; directives ("# escape=`") are the first lines, before any other comment.
 */
#include "dockerfile/parse.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/near.h"
#include "dockerfile/arguments.h"
#include "dockerfile/heredoc.h"

static const char *const names[] = {
#define X(name) #name,
	INSTRUCTIONS(X)
#undef X
};

enum directive { SYNTAX, ESCAPE, CHECK, DIRECTIVES };

struct reader {
	const char *p, *end;
	unsigned line; /* number of the last line that was read */
	bool directives; /* the next line may still be a directive */
	bool seen[DIRECTIVES];
	struct dockerfile *d;
	size_t room; /* capacity of d->at */
	struct err *e;
};

const char *instruction_name(enum instruction_kind kind)
{
	return names[kind];
}

static void instruction_done(struct instruction *in)
{
	free(in->text);
	free(in->rest);
	words_done(&in->flags);
	words_done(&in->args);
	for (size_t i = 0; i < in->heredocs; i++) {
		free(in->heredoc[i].name);
		free(in->heredoc[i].content);
	}
}

void dockerfile_free(struct dockerfile *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->n; i++)
		instruction_done(&d->at[i]);
	free(d->at);
	free(d);
}

static int out_of_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, -ENOMEM, "not enough memory");
}

/* Reads the next line with its line end. False at the end of the file. */
static bool next_line(struct reader *rd, const char **ret, size_t *ret_len)
{
	const char *nl;

	if (rd->p == rd->end)
		return false;
	nl = memchr(rd->p, '\n', (size_t)(rd->end - rd->p));
	*ret = rd->p;
	*ret_len = (size_t)((nl ? nl + 1 : rd->end) - rd->p);
	rd->p += *ret_len;
	rd->line++;
	return true;
}

static void trim_end(const char *line, size_t *len)
{
	while (*len && (line[*len - 1] == '\n' || line[*len - 1] == '\r'))
		--*len;
}

static void trim_front(const char **line, size_t *len)
{
	while (*len && words_space(**line)) {
		++*line;
		--*len;
	}
}

/* Parses "# name = value". Sets the escape character; a directive that occurs twice is an error. */
static int directive(struct reader *rd, const char *line, size_t len)
{
	static const char *const known[] = { "syntax", "escape", "check" };
	const char *name;
	size_t n = 0, which;

	if (!rd->directives)
		return 0;
	rd->directives = false;
	if (!len || *line != '#')
		return 0;
	line++, len--;
	trim_front(&line, &len);
	name = line;
	while (len && ((*line >= 'a' && *line <= 'z') || (*line >= 'A' && *line <= 'Z') ||
		       (n && *line >= '0' && *line <= '9')))
		line++, len--, n++;
	trim_front(&line, &len);
	if (!n || !len || *line != '=')
		return 0;
	line++, len--;
	trim_front(&line, &len);
	while (len && words_space(line[len - 1]))
		len--;
	for (which = 0; which < DIRECTIVES; which++)
		if (strlen(known[which]) == n && strncasecmp(known[which], name, n) == 0)
			break;
	if (which == DIRECTIVES || !len)
		return 0;
	rd->directives = true;
	if (rd->seen[which])
		return err_set(rd->e, ERR_INVALID, -EINVAL, "directive '%s' was given before", known[which]);
	rd->seen[which] = true;
	if (which != ESCAPE)
		return 0;
	if (len != 1 || (*line != '\\' && *line != '`'))
		return err_set(rd->e, ERR_INVALID, -EINVAL, "the escape character must be \\ or `, not '%.*s'",
			       (int)len, line);
	rd->d->escape = *line;
	return 0;
}

/* Removes an escape character at the end of the line. False: the instruction continues. */
static bool line_ends(char escape, const char *line, size_t *len)
{
	size_t n = *len;

	while (n && (line[n - 1] == ' ' || line[n - 1] == '\t'))
		n--;
	if (!n || line[n - 1] != escape || (n > 1 && line[n - 2] == escape))
		return true;
	*len = n - 1;
	return false;
}

/* Appends the lines that continue @line, the first one. */
static int continued(struct reader *rd, struct buf *line)
{
	const char *p;
	size_t len;
	bool ends = false;

	while (!ends && next_line(rd, &p, &len)) {
		const char *look = p;
		size_t rest;

		trim_end(p, &len);
		rest = len;
		trim_front(&look, &rest);
		if (!rest || *look == '#')
			continue;
		ends = line_ends(rd->d->escape, p, &len);
		if (buf_add(line, p, len) < 0)
			return out_of_memory(rd->e);
	}
	return 0;
}

/* Reads the lines up to the name of a here-document. */
static int heredoc_read(struct reader *rd, struct heredoc *h)
{
	AUTO(buf_done) struct buf b = BUF_INIT(DOCKERFILE_MAX);
	unsigned start = rd->line;
	const char *p, *look;
	size_t len, n;

	while (next_line(rd, &p, &len)) {
		n = len;
		look = p;
		trim_end(p, &n);
		while (h->chomp && n && *look == '\t')
			look++, n--;
		if (n == strlen(h->name) && memcmp(look, h->name, n) == 0) {
			h->content = buf_take(&b);
			return h->content ? 0 : out_of_memory(rd->e);
		}
		if (buf_add(&b, p, len) < 0)
			return out_of_memory(rd->e);
	}
	rd->line = start;
	return err_set(rd->e, ERR_INVALID, -EINVAL, "here-document '%.60s' has no end: a line with only this word",
		       h->name);
}

static int unknown(const char *word, size_t n, struct err *e)
{
	char upper[32];
	const char *near = NULL;

	if (n < sizeof(upper)) {
		for (size_t i = 0; i < n; i++)
			upper[i] = (char)(word[i] >= 'a' && word[i] <= 'z' ? word[i] - 32 : word[i]);
		upper[n] = '\0';
		near = near_word(upper, names, ARRAY_LEN(names));
	}
	err_set(e, ERR_INVALID, -EINVAL, "unknown instruction '%.*s'", (int)(n < 40 ? n : 40), word);
	if (near)
		err_remedy(e, "did you mean %s?", near);
	return -EINVAL;
}

static int instruction_read(struct instruction *in, const char *line, char escape, struct err *e)
{
	size_t n, len = strlen(line), kind;

	trim_front(&line, &len);
	while (len && words_space(line[len - 1]))
		len--;
	in->text = strndup(line, len);
	if (!in->text)
		return out_of_memory(e);
	for (n = 0; n < len && !words_space(line[n]);)
		n++;
	for (kind = 0; kind < ARRAY_LEN(names); kind++)
		if (strlen(names[kind]) == n && strncasecmp(names[kind], line, n) == 0)
			break;
	if (kind == ARRAY_LEN(names))
		return unknown(line, n, e);
	in->kind = (enum instruction_kind)kind;
	return arguments_read(in, in->text + n, escape, e);
}

/* Whether this instruction may have here-documents. For ONBUILD: its trigger. */
static bool takes_heredocs(const struct instruction *in)
{
	const char *name = NULL;
	size_t n;

	if (in->kind == DOCKER_ONBUILD) {
		name = in->rest;
		for (n = 0; name[n] && !words_space(name[n]);)
			n++;
		return (n == 3 && (strncasecmp(name, "RUN", n) == 0 || strncasecmp(name, "ADD", n) == 0)) ||
		       (n == 4 && strncasecmp(name, "COPY", n) == 0);
	}
	return !in->json && (in->kind == DOCKER_RUN || in->kind == DOCKER_ADD || in->kind == DOCKER_COPY);
}

static int add(struct reader *rd, const char *line, unsigned first)
{
	struct instruction *in;
	int r;

	if (rd->d->n == DOCKERFILE_INSTRUCTIONS_MAX)
		return err_set(rd->e, ERR_TOO_LARGE, -E2BIG, "more than %d instructions", DOCKERFILE_INSTRUCTIONS_MAX);
	if (rd->d->n == rd->room) {
		size_t room = rd->room ? 2 * rd->room : 16;
		struct instruction *more = realloc(rd->d->at, room * sizeof(*more));

		if (!more)
			return out_of_memory(rd->e);
		rd->d->at = more;
		rd->room = room;
	}
	in = &rd->d->at[rd->d->n];
	memset(in, 0, sizeof(*in));
	rd->d->n++; /* so that an error below frees it */
	in->line = first;
	in->last_line = rd->line;
	r = instruction_read(in, line, rd->d->escape, rd->e);
	if (r < 0)
		return r;
	if (!takes_heredocs(in) || !strstr(line, "<<"))
		return 0;
	r = heredoc_find(in, line, rd->e);
	for (size_t i = 0; r == 0 && i < in->heredocs; i++)
		r = heredoc_read(rd, &in->heredoc[i]);
	in->last_line = rd->line;
	return r;
}

static int read_all(struct reader *rd)
{
	const char *p;
	size_t len;
	int r;

	while (next_line(rd, &p, &len)) {
		AUTO(buf_done) struct buf line = BUF_INIT(DOCKERFILE_MAX);
		unsigned first = rd->line;
		bool ends;

		trim_end(p, &len);
		trim_front(&p, &len);
		r = directive(rd, p, len);
		if (r < 0)
			return err_wrap(rd->e, r, "line %u", rd->line);
		if (!len || *p == '#')
			continue;
		ends = line_ends(rd->d->escape, p, &len);
		if (buf_add(&line, p, len) < 0)
			return out_of_memory(rd->e);
		r = ends ? 0 : continued(rd, &line);
		if (r == 0)
			r = add(rd, buf_str(&line), first);
		if (r < 0)
			return err_wrap(rd->e, r, "line %u", first);
	}
	return 0;
}

static int parse(const char *text, size_t len, char escape, unsigned line, struct dockerfile **ret, struct err *e)
{
	struct reader rd = { .p = text, .end = text + len, .line = line, .directives = line == 0, .e = e };
	AUTO(dockerfile_free) struct dockerfile *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return out_of_memory(e);
	d->escape = escape;
	rd.d = d;
	r = read_all(&rd);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(d);
	return 0;
}

int dockerfile_parse(const char *text, size_t len, struct dockerfile **ret, struct err *e)
{
	AUTO(dockerfile_free) struct dockerfile *d = NULL;
	const char *nul;
	int r;

	if (len > DOCKERFILE_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "the Dockerfile is %zu bytes; the limit is 1 MiB", len);
	nul = memchr(text, '\0', len);
	if (nul) {
		unsigned line = 1;

		for (const char *p = text; p < nul; p++)
			line += *p == '\n';
		return err_set(e, ERR_INVALID, -EINVAL, "line %u: a NUL byte; is this a Dockerfile?", line);
	}
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		text += 3, len -= 3;
	r = parse(text, len, '\\', 0, &d, e);
	if (r < 0)
		return r;
	if (!d->n)
		return err_set(e, ERR_INVALID, -EINVAL, "the Dockerfile has no instructions");
	*ret = TAKE_PTR(d);
	return 0;
}

int dockerfile_parse_trigger(const char *text, char escape, unsigned line, struct dockerfile **ret, struct err *e)
{
	AUTO(dockerfile_free) struct dockerfile *d = NULL;
	int r = parse(text, strlen(text), escape, line ? line - 1 : 0, &d, e);

	if (r < 0)
		return r;
	if (d->n != 1)
		return err_set(e, ERR_INVALID, -EINVAL, "line %u: ONBUILD needs one instruction", line);
	d->at[0].line = d->at[0].last_line = line;
	*ret = TAKE_PTR(d);
	return 0;
}
