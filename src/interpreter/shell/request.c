/* Reads a request: a small, strict parser of JSON that keeps what the kernel needs and checks the rest. */
#include "interpreter/shell/request.h"

#include <ctype.h>

#include "base/utf8.h"

#include "base/base.h"

#define DEPTH_MAX 64
#define TEXT_MAX (64 * MIB)

struct reader {
	const char *at, *end;
	struct err *e;
};

static int bad(struct reader *j, const char *why)
{
	return err_set(j->e, ERR_INVALID, -EINVAL, "the request is not JSON: %s", why);
}

static void skip_space(struct reader *j)
{
	while (j->at < j->end && memchr(" \t\r\n", *j->at, 4))
		j->at++;
}

static bool take(struct reader *j, char c)
{
	skip_space(j);
	if (j->at == j->end || *j->at != c)
		return false;
	j->at++;
	return true;
}

static int hex4(struct reader *j, unsigned *ret)
{
	unsigned v = 0;

	if (j->end - j->at < 4)
		return bad(j, "an escape is cut off");
	for (int i = 0; i < 4; i++) {
		char c = *j->at++;
		if (!isxdigit((unsigned char)c))
			return bad(j, "an escape is not hexadecimal");
		v = v * 16 + (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
	}
	*ret = v;
	return 0;
}

static int add_char(struct buf *b, unsigned c)
{
	char u[4];
	size_t n;

	if (c < 0x80) {
		u[0] = (char)c;
		n = 1;
	} else if (c < 0x800) {
		u[0] = (char)(0xc0 | c >> 6);
		u[1] = (char)(0x80 | (c & 0x3f));
		n = 2;
	} else if (c < 0x10000) {
		u[0] = (char)(0xe0 | c >> 12);
		u[1] = (char)(0x80 | (c >> 6 & 0x3f));
		u[2] = (char)(0x80 | (c & 0x3f));
		n = 3;
	} else {
		u[0] = (char)(0xf0 | c >> 18);
		u[1] = (char)(0x80 | (c >> 12 & 0x3f));
		u[2] = (char)(0x80 | (c >> 6 & 0x3f));
		u[3] = (char)(0x80 | (c & 0x3f));
		n = 4;
	}
	return buf_add(b, u, n);
}

/* Reads one escape after its backslash. An unpaired surrogate becomes U+FFFD. */
static int read_escape(struct reader *j, struct buf *b)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *known;
	unsigned c, low;
	int r;

	if (j->at == j->end)
		return bad(j, "an escape is cut off");
	known = memchr(from, *j->at, sizeof(from) - 1);
	if (known) {
		j->at++;
		return buf_addc(b, to[known - from]);
	}
	if (*j->at++ != 'u')
		return bad(j, "an escape is unknown");
	r = hex4(j, &c);
	if (r < 0)
		return r;
	if (c >= 0xd800 && c < 0xdc00 && j->end - j->at >= 6 && j->at[0] == '\\' && j->at[1] == 'u') {
		const char *before = j->at;
		j->at += 2;
		r = hex4(j, &low);
		if (r < 0)
			return r;
		if (low >= 0xdc00 && low < 0xe000)
			return add_char(b, 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00));
		j->at = before;
	}
	return add_char(b, c >= 0xd800 && c < 0xe000 ? 0xfffd : c);
}

static int read_text(struct reader *j, char **ret, size_t *ret_len)
{
	AUTO(buf_done) struct buf b = BUF_INIT(TEXT_MAX);
	int r;

	if (!take(j, '"'))
		return bad(j, "a text is expected");
	for (;;) {
		const char *start = j->at;
		while (j->at < j->end && *j->at != '"' && *j->at != '\\' && (unsigned char)*j->at >= 0x20)
			j->at++;
		r = buf_add(&b, start, (size_t)(j->at - start));
		if (r < 0)
			return err_set(j->e, ERR_INVALID, r, "a text of the request is too long");
		if (j->at == j->end)
			return bad(j, "a text is not closed");
		if (*j->at == '"')
			break;
		if (*j->at++ != '\\')
			return bad(j, "a text has a control character");
		r = read_escape(j, &b);
		if (r < 0)
			return r;
	}
	j->at++;
	*ret_len = b.len;
	*ret = buf_take(&b);
	return *ret ? 0 : err_set(j->e, ERR_INTERNAL, -ENOMEM, "out of memory");
}

static int skip_value(struct reader *j, unsigned depth);

static int skip_members(struct reader *j, unsigned depth, char close)
{
	int r;

	if (take(j, close))
		return 0;
	do {
		if (close == '}') {
			AUTO_FREE char *name = NULL;
			size_t len;
			r = read_text(j, &name, &len);
			if (r < 0)
				return r;
			if (!take(j, ':'))
				return bad(j, "a colon is expected");
		}
		r = skip_value(j, depth + 1);
		if (r < 0)
			return r;
	} while (take(j, ','));
	return take(j, close) ? 0 : bad(j, "a bracket is not closed");
}

static int skip_number(struct reader *j)
{
	const char *start = j->at;

	if (j->at < j->end && *j->at == '-')
		j->at++;
	while (j->at < j->end && (isdigit((unsigned char)*j->at) || memchr(".eE+-", *j->at, 5)))
		j->at++;
	return j->at > start && isdigit((unsigned char)j->at[-1]) ? 0 : bad(j, "a value is expected");
}

static int skip_value(struct reader *j, unsigned depth)
{
	static const char *const words[] = { "null", "true", "false" };

	if (depth > DEPTH_MAX)
		return bad(j, "it is nested too deeply");
	skip_space(j);
	if (j->at < j->end && *j->at == '"') {
		AUTO_FREE char *text = NULL;
		size_t len;
		return read_text(j, &text, &len);
	}
	if (take(j, '{'))
		return skip_members(j, depth, '}');
	if (take(j, '['))
		return skip_members(j, depth, ']');
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		size_t n = strlen(words[i]);
		if ((size_t)(j->end - j->at) >= n && !memcmp(j->at, words[i], n)) {
			j->at += n;
			return 0;
		}
	}
	return skip_number(j);
}

/* Reads a text or null; NULL for anything else. */
static int read_optional(struct reader *j, char **ret, size_t *ret_len)
{
	skip_space(j);
	if (j->at < j->end && *j->at == '"') {
		free(TAKE_PTR(*ret));
		return read_text(j, ret, ret_len);
	}
	return skip_value(j, 1);
}

static int read_number(struct reader *j, const char *name, uint64_t *ret)
{
	uint64_t v = 0;
	const char *start;
	int r;

	skip_space(j);
	start = j->at;
	r = skip_value(j, 1);
	if (r < 0 || (j->at - start == 4 && !memcmp(start, "null", 4)))
		return r;
	for (const char *p = start; p < j->at; p++) {
		if (!isdigit((unsigned char)*p) || p - start > 17)
			return err_set(j->e, ERR_INVALID, -EINVAL, "%s must be a number from 0", name);
		v = v * 10 + (uint64_t)(*p - '0');
	}
	*ret = v;
	return 0;
}

static bool is_name(const char *name, size_t len)
{
	if (!len || strlen(name) != len || isdigit((unsigned char)name[0]))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!isalnum((unsigned char)name[i]) && name[i] != '_')
			return false;
	}
	return true;
}

static int read_env(struct reader *j, struct request *q)
{
	int r;

	skip_space(j);
	if (j->end - j->at >= 4 && !memcmp(j->at, "null", 4))
		return skip_value(j, 1);
	if (!take(j, '{'))
		return err_set(j->e, ERR_INVALID, -EINVAL, "env must be an object");
	if (take(j, '}'))
		return 0;
	do {
		struct request_var *v = &q->env[q->env_count];
		size_t len;
		if (q->env_count == REQUEST_ENV_MAX)
			return err_set(j->e, ERR_INVALID, -EINVAL, "env has more than %d variables", REQUEST_ENV_MAX);
		r = read_text(j, &v->name, &len);
		if (r < 0)
			return r;
		q->env_count++;
		if (!is_name(v->name, len))
			return err_set(j->e, ERR_INVALID, -EINVAL, "env: '%.100s' is not the name of a variable",
				       v->name);
		if (!take(j, ':'))
			return bad(j, "a colon is expected");
		skip_space(j);
		if (j->at < j->end && *j->at == '"')
			r = read_text(j, &v->value, &len);
		else if (j->end - j->at >= 4 && !memcmp(j->at, "null", 4))
			r = skip_value(j, 2);
		else
			r = err_set(j->e, ERR_INVALID, -EINVAL, "env: the value of %.100s must be a string or null",
				    v->name);
		if (r < 0)
			return r;
		if (v->value && strlen(v->value) != len)
			return err_set(j->e, ERR_INVALID, -EINVAL, "env: the value of %.100s has a NUL", v->name);
	} while (take(j, ','));
	return take(j, '}') ? 0 : bad(j, "a bracket is not closed");
}

static int read_member(struct reader *j, struct request *q, const char *name)
{
	size_t len;
	const char *start;
	int r;

	if (!strcmp(name, "type"))
		return read_optional(j, &q->type, &len);
	if (!strcmp(name, "code"))
		return read_optional(j, &q->code, &q->code_len);
	if (!strcmp(name, "cwd"))
		return read_optional(j, &q->cwd, &len);
	if (!strcmp(name, "env"))
		return read_env(j, q);
	if (!strcmp(name, "output_max"))
		return read_number(j, name, &q->output_max);
	if (!strcmp(name, "result_max"))
		return read_number(j, name, &q->result_max);
	if (!strcmp(name, "last"))
		return read_number(j, name, &q->last);
	if (!strcmp(name, "cursor"))
		return read_number(j, name, &q->cursor);
	skip_space(j);
	start = j->at;
	r = skip_value(j, 1);
	if (r < 0)
		return r;
	if (!strcmp(name, "id")) {
		free(q->id);
		q->id = strndup(start, (size_t)(j->at - start));
		if (!q->id)
			return err_set(j->e, ERR_INTERNAL, -ENOMEM, "out of memory");
	}
	if (!strcmp(name, "restrict"))
		q->restricted = j->at - start != 4 || memcmp(start, "null", 4);
	return 0;
}

int request_read(struct request *q, const char *data, size_t len, struct err *e)
{
	struct reader j = { .at = data, .end = data + len, .e = e };
	int r;

	*q = (struct request){
		.output_max = UINT64_MAX, .result_max = UINT64_MAX, .last = UINT64_MAX, .cursor = UINT64_MAX
	};
	if (!utf8_valid(data, len))
		return bad(&j, "it is not UTF-8");
	if (!take(&j, '{'))
		return err_set(e, ERR_INVALID, -EINVAL, "the request is not a JSON object");
	if (!take(&j, '}')) {
		do {
			AUTO_FREE char *name = NULL;
			size_t n;
			r = read_text(&j, &name, &n);
			if (r < 0)
				return r;
			if (!take(&j, ':'))
				return bad(&j, "a colon is expected");
			r = read_member(&j, q, name);
			if (r < 0)
				return r;
		} while (take(&j, ','));
		if (!take(&j, '}'))
			return bad(&j, "a bracket is not closed");
	}
	skip_space(&j);
	return j.at == j.end ? 0 : bad(&j, "something follows the object");
}

void request_done(struct request *q)
{
	for (size_t i = 0; i < q->env_count; i++) {
		free(q->env[i].name);
		free(q->env[i].value);
	}
	free(q->type);
	free(q->id);
	free(q->code);
	free(q->cwd);
	*q = (struct request){ 0 };
}

bool request_is_json(const char *data, size_t len)
{
	struct err e = { 0 };
	struct reader j = { .at = data, .end = data + len, .e = &e };

	if (!len || !utf8_valid(data, len) || skip_value(&j, 1) < 0)
		return false;
	skip_space(&j);
	return j.at == j.end;
}
