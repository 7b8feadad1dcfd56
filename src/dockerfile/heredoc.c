/* Finds "<<NAME" among the words of an instruction, as a shell would. */
#include "dockerfile/heredoc.h"
#include "base/base.h"
#include "dockerfile/expand.h"

static size_t quotes(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\'' || *text == '"';
	return n;
}

int heredoc_word(const char *word, struct heredoc *ret, struct err *e)
{
	struct expand x = { .escape = '\\', .keep_unset = true };
	AUTO(words_done) struct words bare = { 0 }, raw = { 0 };
	struct heredoc h = { 0 };
	int r;

	*ret = h;
	while (*word >= '0' && *word <= '9')
		word++;
	if (word[0] != '<' || word[1] != '<')
		return 0;
	word += 2;
	if (*word == '-') {
		h.chomp = true;
		word++;
	}
	while (words_space(*word))
		word++;
	if (!*word || strchr(word, '<'))
		return 0;
	r = expand_words(&x, word, &bare, e);
	x.keep_quotes = true;
	if (r == 0 && bare.n == 1)
		r = expand_words(&x, word, &raw, e);
	if (r < 0)
		return r;
	if (bare.n != 1 || raw.n != 1)
		return 0; /* several words: "<<" has another meaning here */
	h.expand = quotes(bare.at[0]) == quotes(raw.at[0]);
	h.name = TAKE_PTR(bare.at[0]);
	*ret = h;
	return 0;
}

int heredoc_find(struct instruction *in, const char *line, struct err *e)
{
	const struct expand x = { .escape = '\\', .keep_quotes = true, .keep_escapes = true, .keep_unset = true };
	AUTO(words_done) struct words words = { 0 };
	int r;

	/*
	 * Words that do not end are an error of the shell that runs them, or none at all: RUN echo "<<" is no
	 * here-document.
	 */
	r = expand_words(&x, line, &words, NULL);
	if (r == -ENOMEM)
		return err_set(e, ERR_INTERNAL, r, "not enough memory");
	if (r < 0)
		return 0;
	for (size_t i = 0; i < words.n; i++) {
		struct heredoc h;

		r = heredoc_word(words.at[i], &h, e);
		if (r < 0)
			return r;
		if (!h.name)
			continue;
		if (in->heredocs == HEREDOCS_MAX) {
			free(h.name);
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %d here-documents", HEREDOCS_MAX);
		}
		in->heredoc[in->heredocs++] = h;
	}
	return 0;
}

void heredoc_chomp(char *content)
{
	char *to = content;
	bool start = true;

	for (const char *p = content; *p; p++) {
		if (start && *p == '\t')
			continue;
		start = *p == '\n';
		*to++ = *p;
	}
	*to = '\0';
}
