/*
 * The forms of arguments: one text to the end of the line, words, a JSON array of strings, name=value pairs. Quotes and
 * escape characters stay in the words; they are removed when variables are expanded.
 */
#include "dockerfile/arguments.h"
#include <jansson.h>
#include "base/base.h"
#include "base/buf.h"

static int failed(int r, struct err *e)
{
	if (r == -E2BIG)
		return err_set(e, ERR_TOO_LARGE, r, "more than %d arguments", WORDS_MAX);
	return r < 0 ? err_set(e, ERR_INTERNAL, r, "not enough memory") : 0;
}

/*
 * Reads one word, up to a space outside of quotes. With @plain, quotes and escape characters are removed, as in flags.
 * Returns the text after it.
 */
static const char *word_read(const char *p, char escape, bool plain, struct buf *word, bool *quoted, int *r)
{
	char quote = '\0';

	*quoted = false;
	for (; *p && *r == 0; p++) {
		if (!quote && words_space(*p))
			break;
		if (!quote && (*p == '\'' || *p == '"')) {
			quote = *p;
			*quoted = true;
			if (!plain)
				*r = buf_addc(word, *p);
			continue;
		}
		if (quote && *p == quote) {
			quote = '\0';
			if (!plain)
				*r = buf_addc(word, *p);
			continue;
		}
		if (*p == escape && (plain || quote != '\'')) {
			if (!p[1])
				continue; /* the escape character is the last one */
			if (!plain)
				*r = buf_addc(word, *p);
			p++;
		}
		if (*r == 0)
			*r = buf_addc(word, *p);
	}
	return p;
}

static int flags_read(struct instruction *in, const char **text, char escape, struct err *e)
{
	const char *p = *text;
	bool quoted;
	int r = 0;

	for (;;) {
		AUTO(buf_done) struct buf word = BUF_INIT(DOCKERFILE_MAX);

		while (words_space(*p))
			p++;
		*text = p;
		if (p[0] != '-' || p[1] != '-')
			return 0;
		p = word_read(p, escape, true, &word, &quoted, &r);
		if (r == 0 && strcmp(buf_str(&word), "--") != 0)
			r = words_addn(&in->flags, buf_str(&word), word.len);
		if (r < 0)
			return failed(r, e);
		*text = p;
		if (word.len == 2)
			return 0;
	}
}

/* The words of ENV, LABEL and ARG: quotes keep spaces. */
static int quoted_words(const char *p, char escape, struct words *ret, struct err *e)
{
	bool quoted;
	int r = 0;

	for (;;) {
		AUTO(buf_done) struct buf word = BUF_INIT(DOCKERFILE_MAX);

		while (words_space(*p))
			p++;
		if (!*p)
			return 0;
		p = word_read(p, escape, false, &word, &quoted, &r);
		if (r == 0 && (quoted || word.len))
			r = words_addn(ret, buf_str(&word), word.len);
		if (r < 0)
			return failed(r, e);
	}
}

static int plain_words(const char *p, struct words *ret, struct err *e)
{
	int r = 0;

	while (*p && r == 0) {
		size_t n = 0;

		while (p[n] && !words_space(p[n]))
			n++;
		if (n)
			r = words_addn(ret, p, n);
		for (p += n; words_space(*p);)
			p++;
	}
	return failed(r, e);
}

/* 1 when @p is a JSON array of strings, which is then in @ret; 0 when it is no JSON array; an error for other arrays. */
static int json_words(const char *p, struct words *ret, struct err *e)
{
	json_t *array, *item;
	json_error_t why;
	size_t i;
	int r = 0;

	if (*p != '[')
		return 0;
	array = json_loads(p, 0, &why);
	if (!array && json_error_code(&why) == json_error_null_character)
		return err_set(e, ERR_INVALID, -EINVAL, "an argument contains a NUL character");
	if (!array)
		return 0;
	json_array_foreach(array, i, item)
	{
		if (!json_is_string(item)) {
			json_decref(array);
			return err_set(e, ERR_INVALID, -EINVAL, "a JSON array of arguments may contain only strings");
		}
		if (r == 0)
			r = words_add(ret, json_string_value(item));
	}
	json_decref(array);
	return r < 0 ? failed(r, e) : 1;
}

/* ENV and LABEL: "name=value name=value" or "name value". */
static int pairs(struct instruction *in, const char *p, char escape, struct err *e)
{
	AUTO(words_done) struct words all = { 0 };
	const char *name = instruction_name(in->kind);
	int r = quoted_words(p, escape, &all, e);

	if (r < 0 || !all.n)
		return r;
	if (!strchr(all.at[0], '=')) {
		size_t n = 0;

		while (p[n] && !words_space(p[n]))
			n++;
		in->bare = true;
		r = words_addn(&in->args, p, n);
		for (p += n; words_space(*p);)
			p++;
		if (!*p)
			return err_set(e, ERR_INVALID, -EINVAL, "%s needs a name and a value: %s NAME=VALUE", name,
				       name);
		return failed(r < 0 ? r : words_add(&in->args, p), e);
	}
	for (size_t i = 0; i < all.n; i++) {
		const char *eq = strchr(all.at[i], '=');

		if (!eq)
			return err_set(e, ERR_INVALID, -EINVAL, "%s: '%.80s' must be NAME=VALUE", name, all.at[i]);
		if (eq == all.at[i])
			return err_set(e, ERR_INVALID, -EINVAL, "%s: '%.80s' has no name", name, all.at[i]);
		r = words_addn(&in->args, all.at[i], (size_t)(eq - all.at[i]));
		if (r == 0)
			r = words_add(&in->args, eq + 1);
		if (r < 0)
			return failed(r, e);
	}
	return 0;
}

/* A JSON array, or one text. */
static int command(struct instruction *in, const char *p, struct err *e)
{
	int r = json_words(p, &in->args, e);

	in->json = r > 0;
	if (r != 0 || !*p)
		return r < 0 ? r : 0;
	return failed(words_add(&in->args, p), e);
}

static int healthcheck(struct instruction *in, const char *p, struct err *e)
{
	size_t n = 0;
	int r;

	while (p[n] && !words_space(p[n]))
		n++;
	if (!n)
		return 0;
	r = words_addn(&in->args, p, n);
	for (p += n; words_space(*p);)
		p++;
	return r < 0 ? failed(r, e) : command(in, p, e);
}

int arguments_read(struct instruction *in, const char *text, char escape, struct err *e)
{
	const char *p = text;
	int r = flags_read(in, &p, escape, e);

	if (r < 0)
		return r;
	while (words_space(*p))
		p++;
	in->rest = strdup(p);
	if (!in->rest)
		return failed(-ENOMEM, e);
	switch (in->kind) {
	case DOCKER_RUN:
	case DOCKER_CMD:
	case DOCKER_ENTRYPOINT:
	case DOCKER_SHELL:
		return command(in, p, e);
	case DOCKER_ADD:
	case DOCKER_COPY:
	case DOCKER_VOLUME:
		r = json_words(p, &in->args, e);
		in->json = r > 0;
		return r ? (r < 0 ? r : 0) : plain_words(p, &in->args, e);
	case DOCKER_ARG:
		return quoted_words(p, escape, &in->args, e);
	case DOCKER_ENV:
	case DOCKER_LABEL:
		return pairs(in, p, escape, e);
	case DOCKER_EXPOSE:
	case DOCKER_FROM:
		return plain_words(p, &in->args, e);
	case DOCKER_HEALTHCHECK:
		return healthcheck(in, p, e);
	case DOCKER_MAINTAINER:
	case DOCKER_STOPSIGNAL:
	case DOCKER_USER:
	case DOCKER_WORKDIR:
	case DOCKER_ONBUILD:
		return *p ? failed(words_add(&in->args, p), e) : 0;
	}
	return 0;
}
