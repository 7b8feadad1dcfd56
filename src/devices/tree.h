/*
 * A YAML or JSON document as a tree. Refused: aliases (a few lines of them can stand for gigabytes), tags, more than one
 * document, a key twice, and what is past the limits below.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

#define TREE_BYTES (1U << 20) /* of a document */
#define TREE_DEPTH 16
#define TREE_NODES 32768

enum tree_kind { TREE_TEXT, TREE_LIST, TREE_MAP };

struct tree {
	enum tree_kind kind;
	bool plain; /* a TEXT without quotes: it may be a number, true, false or null */
	unsigned line; /* the first is 1 */
	const char *key; /* in a MAP */
	const char *text; /* without NUL inside */
	struct tree *child, *next; /* of LIST and MAP, in the document's order */
};

/* Everything of one document is freed with @ret. */
struct tree_doc {
	struct tree *root;
	void *blocks;
	unsigned nodes;
};

int tree_parse(const char *text, size_t len, struct tree_doc *ret, struct err *e);
void tree_done(struct tree_doc *d);
static inline void tree_donep(struct tree_doc *d)
{
	tree_done(d);
}

/* NULL when @map, which may be NULL, has none of that name. */
const struct tree *tree_get(const struct tree *map, const char *key);
/* The text of a string; -EINVAL for a plain 12, true or null. */
int tree_string(const struct tree *t, const char **ret, struct err *e);
int tree_int(const struct tree *t, int64_t min, int64_t max, int64_t *ret, struct err *e);
