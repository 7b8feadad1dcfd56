/* Expands the words of a Dockerfile. One pass over the text; the words in ${} are expanded by the same functions. */
#include "dockerfile/expand.h"
#include "base/base.h"
#include "dockerfile/pattern.h"

#define DEPTH_MAX 32 /* of nested ${} */
#define MATCH_MAX (64ULL << 20) /* steps of one ${name/pattern/word} */
#define WORK_VARIABLE 1024U /* to find the value of one among many */

struct lexer {
	const struct expand *x;
	const char *p;
	unsigned depth;
	uint64_t *work;
	struct err *e;
};

/* The result: the whole text, and, if requested, its words. */
struct output {
	struct buf *text;
	struct words *words; /* NULL: not requested */
	struct buf word;
	bool in_word;
};

static int bad(struct lexer *l, const char *what)
{
	return err_set(l->e, ERR_INVALID, -EINVAL, "%s", what);
}

static int full(struct lexer *l, int r)
{
	return err_set(l->e, r == -E2BIG ? ERR_TOO_LARGE : ERR_INTERNAL, r, "an expanded text is longer than 1 MiB");
}

/* Little text can ask for much work: ${a//p/w} and ${x:+$a} cost as much as $a is long, and leave nothing. */
static int spend(struct lexer *l, uint64_t steps)
{
	if (steps > *l->work)
		return err_set(l->e, ERR_TOO_LARGE, -E2BIG, "the variables take too long to expand");
	*l->work -= steps;
	return 0;
}

static int word_end(struct output *o)
{
	int r = 0;

	if (o->word.len)
		r = words_addn(o->words, buf_str(&o->word), o->word.len);
	buf_clear(&o->word);
	o->in_word = false;
	return r;
}

/* Appends an unquoted byte: a space ends the word. */
static int out_open(struct output *o, char c)
{
	int r = buf_addc(o->text, c);

	if (r < 0 || !o->words)
		return r;
	if (words_space(c))
		return o->in_word ? word_end(o) : 0;
	o->in_word = true;
	return buf_addc(&o->word, c);
}

static int out_quoted(struct output *o, const char *data, size_t len)
{
	int r = buf_add(o->text, data, len);

	if (r < 0 || !o->words)
		return r;
	o->in_word = true;
	return buf_add(&o->word, data, len);
}

static int lex(struct lexer *l, char stop, bool keep_escapes, struct output *o);

static bool name_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (c & 0x80);
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Length of a name, a number, or one of the shell's special parameters; 0 when there is none. */
static size_t name_len(const char *p)
{
	size_t n = 0;

	if (digit(*p)) {
		while (digit(p[n]))
			n++;
		return n;
	}
	if (*p && strchr("@*#?-$!", *p))
		return 1;
	while (p[n] && name_byte(p[n]))
		n++;
	return n;
}

/* Reads the word after an operator, up to @stop, which is consumed. */
static int operand(struct lexer *l, char stop, bool keep_escapes, struct buf *ret)
{
	struct output o = { .text = ret };
	int r;

	if (++l->depth > DEPTH_MAX)
		return bad(l, "${} is nested more than 32 deep");
	r = lex(l, stop, keep_escapes, &o);
	l->depth--;
	return r < 0 ? r : spend(l, 8 * ret->len);
}

static int pattern_bad(struct lexer *l, int r, const char *pattern)
{
	if (r == -ENOMEM)
		return err_set(l->e, ERR_INTERNAL, r, "not enough memory");
	return err_set(l->e, ERR_INVALID, r, "invalid pattern '%s' in ${}: a backslash may only be before * ? \\ / }",
		       pattern);
}

/* ${name#pattern} and the like. */
static int trim(struct lexer *l, char op, const char *value, const char *pattern, struct buf *ret)
{
	size_t a = 0, b = 0;
	bool longest = *pattern == op;
	int r;

	if (longest)
		pattern++;
	r = spend(l, 2 * (uint64_t)(strlen(value) + 1) * (strlen(pattern) + 1));
	if (r < 0)
		return r;
	r = op == '#' ? shell_prefix(pattern, value, &a, &b) : shell_suffix(pattern, value, &a, &b);
	if (r < 0)
		return pattern_bad(l, r, pattern);
	if (r == 0)
		return buf_adds(ret, value);
	if (op == '#')
		return buf_adds(ret, value + (longest ? b : a));
	return buf_add(ret, value, longest ? b : a);
}

/* ${name/pattern/word}: the leftmost match, the longest there. */
static int replace(struct lexer *l, bool all, const char *value, const char *pattern, const char *with, struct buf *ret)
{
	size_t n = strlen(value);
	int r;

	if ((uint64_t)n * n * (strlen(pattern) + 1) > MATCH_MAX)
		return err_set(l->e, ERR_TOO_LARGE, -E2BIG, "${name/pattern/word}: the value is too long (%zu bytes)",
			       n);
	for (size_t i = 0; i <= n;) {
		size_t first, last;

		r = spend(l, (uint64_t)(n - i + 1) * (strlen(pattern) + 1));
		if (r < 0)
			return r;
		r = shell_prefix(pattern, value + i, &first, &last);
		if (r < 0)
			return pattern_bad(l, r, pattern);
		if (r > 0) {
			r = buf_adds(ret, with);
			if (r < 0)
				return full(l, r);
			if (!all)
				return buf_adds(ret, value + i + last);
			i += last;
			if (last)
				continue;
		}
		if (i < n && (r = buf_addc(ret, value[i])) < 0)
			return full(l, r);
		i++;
	}
	return 0;
}

/* Applies @op to the value and its operand. */
static int operate(struct lexer *l, char op, bool colon, const char *name, const char *value, const char *word,
		   struct buf *ret)
{
	bool set = value && (*value || !colon);

	switch (op) {
	case '-':
		return buf_adds(ret, set ? value : word);
	case '+':
		return buf_adds(ret, set ? word : "");
	case '?':
		if (set)
			return buf_adds(ret, value);
		if (*word)
			return err_set(l->e, ERR_INVALID, -EINVAL, "%s: %s", name, word);
		return err_set(l->e, ERR_INVALID, -EINVAL, "variable %s must be set%s", name,
			       value ? " and must not be empty" : "");
	case '#':
	case '%':
		return trim(l, op, value ? value : "", word, ret);
	default:
		return bad(l, "unsupported operator in ${}");
	}
}

/* Reads after "${name" the operator and its operands. */
static int operators(struct lexer *l, const char *name, const char *value, const char *start, struct buf *ret)
{
	AUTO(buf_done) struct buf word = BUF_INIT(EXPAND_MAX), with = BUF_INIT(EXPAND_MAX);
	bool colon = *l->p == ':', all = false;
	char op;
	int r;

	if (colon)
		l->p++;
	op = *l->p;
	if (!op)
		return bad(l, "a '}' is missing");
	if (!strchr("+-?#%/", op) || (colon && strchr("#%/", op)))
		return err_set(l->e, ERR_INVALID, -EINVAL, "unsupported operator '%s%c' in ${%s…}", colon ? ":" : "",
			       op, name);
	l->p++;
	if (op == '/' && *l->p == '/') {
		all = true;
		l->p++;
	}
	r = operand(l, op == '/' ? '/' : '}', strchr("#%/", op) != NULL, &word);
	if (r == 0 && op == '/')
		r = operand(l, '}', true, &with);
	if (r < 0)
		return r;
	if (l->x->keep_unset && !value)
		return buf_add(ret, start, (size_t)(l->p - start));
	if (op == '/')
		return replace(l, all, value ? value : "", buf_str(&word), buf_str(&with), ret);
	return operate(l, op, colon, name, value, buf_str(&word), ret);
}

/* Called at a '$'. Appends the value to @ret. */
static int dollar(struct lexer *l, struct buf *ret)
{
	const char *start = l->p++, *name, *value;
	char name_text[256];
	size_t n;

	if (*l->p == '{') {
		l->p++;
		if (!*l->p)
			return bad(l, "a '}' is missing");
		if (strchr("{}:", *l->p))
			return bad(l, "${} needs the name of a variable");
	}
	name = l->p;
	n = name_len(name);
	if (n >= sizeof(name_text))
		return bad(l, "the name of a variable is longer than 255 bytes");
	l->p += n;
	if (n == 0 && start[1] != '{')
		return buf_addc(ret, '$');
	if (n == 0)
		return bad(l, "${} needs the name of a variable");
	memcpy(name_text, name, n);
	name_text[n] = '\0';
	value = l->x->get ? l->x->get(l->x->data, name, n) : NULL;
	if (spend(l, WORK_VARIABLE + (value ? 8 * strlen(value) : 0)) < 0)
		return -E2BIG;
	if (start[1] == '{' && *l->p != '}')
		return operators(l, name_text, value, start, ret);
	if (start[1] == '{')
		l->p++;
	if (!value && l->x->keep_unset)
		return buf_add(ret, start, (size_t)(l->p - start));
	return buf_adds(ret, value ? value : "");
}

static int single_quoted(struct lexer *l, struct output *o)
{
	const char *end = strchr(l->p + 1, '\''), *start = l->p;
	bool keep = l->x->keep_quotes;

	if (!end)
		return bad(l, "a single quote is not closed");
	l->p = end + 1;
	return out_quoted(o, start + !keep, (size_t)(end - start) - !keep + keep);
}

static int double_quoted(struct lexer *l, bool keep_escapes, struct output *o)
{
	AUTO(buf_done) struct buf b = BUF_INIT(EXPAND_MAX);
	const char esc = l->x->escape;
	int r = 0;

	if (l->x->keep_quotes)
		r = buf_addc(&b, '"');
	for (l->p++; r == 0 && *l->p != '"';) {
		if (!*l->p)
			return bad(l, "a double quote is not closed");
		if (*l->p == '$') {
			r = dollar(l, &b);
			continue;
		}
		if (*l->p == esc) {
			char next = l->p[1];

			if (!next) {
				l->p++; /* an escape character at the end quotes nothing */
				continue;
			}
			if (next == '"' || next == '$' || next == esc) {
				if (keep_escapes)
					r = buf_addc(&b, esc);
				l->p++;
			} else if (keep_escapes) {
				r = buf_addc(&b, esc);
			}
		}
		if (r == 0)
			r = buf_addc(&b, *l->p++);
	}
	if (r < 0)
		return r;
	l->p++;
	if (l->x->keep_quotes)
		r = buf_addc(&b, '"');
	return r < 0 ? r : out_quoted(o, buf_str(&b), b.len);
}

/* "<<" and the spaces after it belong to the word of a here-document. */
static int maybe_heredoc(struct lexer *l, struct output *o)
{
	const char *start = l->p++;

	if (*l->p == '<')
		for (l->p++; *l->p == ' ' || *l->p == '\t' || *l->p == '\r';)
			l->p++;
	return out_quoted(o, start, (size_t)(l->p - start));
}

static int escaped(struct lexer *l, bool keep_escapes, struct output *o)
{
	int r = 0;

	if (keep_escapes)
		r = out_quoted(o, l->p, 1);
	l->p++;
	if (r < 0 || !*l->p)
		return r;
	return out_quoted(o, l->p++, 1);
}

static int lex_dollar(struct lexer *l, struct output *o)
{
	AUTO(buf_done) struct buf b = BUF_INIT(EXPAND_MAX);
	int r = dollar(l, &b);

	for (size_t i = 0; r == 0 && i < b.len; i++)
		r = out_open(o, b.data[i]);
	return r;
}

/* Reads up to @stop, which is consumed, or to the end of the text when it is NUL. */
static int lex(struct lexer *l, char stop, bool keep_escapes, struct output *o)
{
	int r = 0;

	while (r == 0 && *l->p) {
		char c = *l->p;

		if (stop && c == stop) {
			l->p++;
			return 0;
		}
		if (c == '$')
			r = lex_dollar(l, o);
		else if (c == '\'' && !l->x->plain_quotes)
			r = single_quoted(l, o);
		else if (c == '"' && !l->x->plain_quotes)
			r = double_quoted(l, keep_escapes, o);
		else if (c == '<')
			r = maybe_heredoc(l, o);
		else if (c == l->x->escape)
			r = escaped(l, keep_escapes, o);
		else
			r = out_open(o, *l->p++);
	}
	if (r < 0)
		return r;
	return stop ? bad(l, stop == '/' ? "a '/' is missing in ${}" : "a '}' is missing") : 0;
}

static int expand(const struct expand *x, const char *text, struct output *o, struct err *e)
{
	struct err mine = { 0 };
	uint64_t own = EXPAND_WORK;
	struct lexer l = { .x = x, .p = text, .work = x->work ? x->work : &own, .e = &mine };
	int r = lex(&l, '\0', x->keep_escapes, o);

	if (r == 0 && o->words)
		r = word_end(o);
	if (r < 0 && !mine.msg[0])
		full(&l, r);
	if (r < 0 && e)
		*e = mine;
	return r < 0 ? err_wrap(e, r, "'%.100s'", text) : 0;
}

int expand_word(const struct expand *x, const char *text, struct buf *ret, struct err *e)
{
	struct output o = { .text = ret };

	return expand(x, text, &o, e);
}

int expand_words(const struct expand *x, const char *text, struct words *ret, struct err *e)
{
	AUTO(buf_done) struct buf all = BUF_INIT(EXPAND_MAX);
	struct output o = { .text = &all, .words = ret, .word = BUF_INIT(EXPAND_MAX) };
	int r = expand(x, text, &o, e);

	buf_done(&o.word);
	return r;
}
