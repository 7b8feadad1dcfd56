/* Any bytes as a Dockerfile: never a crash. */
#include "dockerfile/parse.h"
#include "base/base.h"
#include "dockerfile/check.h"
#include "dockerfile/ignore.h"
#include "dockerfile/pattern.h"
#include "dockerfile/expand.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *get(void *data, const char *name, size_t len)
{
	(void)data;
	return len && name[0] == 'a' ? "value/of.a" : NULL;
}

/* Parses and checks a file, and expands every argument; its triggers are parsed as a later build would do. */
static void whole(const char *text, size_t len)
{
	AUTO(dockerfile_free) struct dockerfile *d = NULL;
	struct stages s = { 0 };
	struct err e;

	if (dockerfile_parse(text, len, &d, &e) < 0)
		return;
	for (size_t i = 0; i < d->n; i++) {
		const struct instruction *in = &d->at[i];
		const struct expand x = { .get = get, .escape = d->escape };

		assert(in->line >= 1 && in->last_line >= in->line);
		assert(i == 0 || in->line > d->at[i - 1].last_line);
		for (size_t j = 0; j < in->args.n; j++) {
			AUTO(buf_done) struct buf b = BUF_INIT(EXPAND_MAX);
			AUTO(words_done) struct words w = { 0 };

			expand_word(&x, in->args.at[j], &b, &e);
			expand_words(&x, in->args.at[j], &w, &e);
		}
	}
	if (stages_check(d, &s, &e) == 0)
		assert(s.n > 0 && s.at[s.n - 1].end <= d->n);
	stages_done(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_FREE char *text = malloc(size + 1);
	AUTO(ignore_done) struct ignore ig = { 0 };

	if (!text || !size || size > 4096)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	whole(text, size);
	if (ignore_parse(text, size, &ig, NULL) == 0) {
		ignore_has(&ig, "src/main.c");
		ignore_prunes(&ig, "src");
	}
	return 0;
}
