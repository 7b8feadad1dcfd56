/* Lists of texts. */
#include "dockerfile/words.h"
#include "base/base.h"

void words_done(struct words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->at[i]);
	free(w->at);
	*w = (struct words){ 0 };
}

int words_addn(struct words *w, const char *text, size_t len)
{
	char **more, *copy;

	if (w->n == WORDS_MAX)
		return -E2BIG;
	/* Grows by doubling: at each power of two. */
	if ((w->n & (w->n - 1)) == 0) {
		more = realloc(w->at, (w->n ? 2 * w->n : 1) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		w->at = more;
	}
	copy = strndup(text, len);
	if (!copy)
		return -ENOMEM;
	w->at[w->n++] = copy;
	return 0;
}

int words_add(struct words *w, const char *text)
{
	return words_addn(w, text, strlen(text));
}

int words_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}
