/* Reads YAML by libyaml's events. JSON is YAML, too. */
#include "devices/tree.h"
#include "base/base.h"

#include <yaml.h>

struct block {
	struct block *next;
	_Alignas(16) char data[];
};

struct reader {
	yaml_parser_t yaml;
	struct tree_doc *doc;
	struct err *e;
};

static void *take(struct tree_doc *d, size_t size)
{
	struct block *b = calloc(1, sizeof(*b) + size);

	if (!b)
		return NULL;
	b->next = d->blocks;
	d->blocks = b;
	return b->data;
}

void tree_done(struct tree_doc *d)
{
	for (struct block *b = d->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	*d = (struct tree_doc){ 0 };
}

static struct tree *new_node(struct reader *x, enum tree_kind kind, const yaml_event_t *ev)
{
	struct tree *t = x->doc->nodes++ < TREE_NODES ? take(x->doc, sizeof(*t)) : NULL;

	if (!t) {
		err_set(x->e, ERR_TOO_LARGE, -E2BIG, "more than %d values", TREE_NODES);
		return NULL;
	}
	t->kind = kind;
	t->line = (unsigned)ev->start_mark.line + 1;
	return t;
}

static int copy_text(struct reader *x, const yaml_event_t *ev, const char **ret)
{
	const size_t n = ev->data.scalar.length;
	char *text = memchr(ev->data.scalar.value, 0, n) ? NULL : take(x->doc, n + 1);

	if (!text)
		return err_set(x->e, ERR_INVALID, -EINVAL, "line %zu: a text with a NUL, or no memory",
			       ev->start_mark.line + 1);
	memcpy(text, ev->data.scalar.value, n);
	*ret = text;
	return 0;
}

static int parse_event(struct reader *x, yaml_event_t *ev)
{
	if (!yaml_parser_parse(&x->yaml, ev))
		return err_set(x->e, ERR_INVALID, -EINVAL, "line %zu: %s", x->yaml.problem_mark.line + 1,
			       x->yaml.problem ? x->yaml.problem : "no memory");
	return 0;
}

static int refuse_tag(struct reader *x, const yaml_event_t *ev, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (!anchor && !tag)
		return 0;
	return err_set(x->e, ERR_INVALID, -EINVAL, "line %zu: anchors, aliases and tags are not read",
		       ev->start_mark.line + 1);
}

static int read_value(struct reader *x, const yaml_event_t *ev, unsigned depth, struct tree **ret);

static int read_children(struct reader *x, struct tree *t, yaml_event_type_t end, unsigned depth)
{
	struct tree **at = &t->child;

	for (;;) {
		const char *key = NULL;
		yaml_event_t ev;
		int r = parse_event(x, &ev);

		if (r < 0)
			return r;
		if (ev.type == end) {
			yaml_event_delete(&ev);
			return 0;
		}
		if (t->kind == TREE_MAP) {
			if (ev.type != YAML_SCALAR_EVENT)
				r = err_set(x->e, ERR_INVALID, -EINVAL, "line %zu: a key must be a text",
					    ev.start_mark.line + 1);
			else
				r = refuse_tag(x, &ev, ev.data.scalar.anchor, ev.data.scalar.tag);
			if (r == 0)
				r = copy_text(x, &ev, &key);
			if (r == 0 && tree_get(t, key))
				r = err_set(x->e, ERR_INVALID, -EINVAL, "line %zu: '%.60s' is there twice",
					    ev.start_mark.line + 1, key);
			yaml_event_delete(&ev);
			if (r == 0)
				r = parse_event(x, &ev);
			if (r < 0)
				return r;
		}
		r = read_value(x, &ev, depth, at);
		yaml_event_delete(&ev);
		if (r < 0)
			return r;
		(*at)->key = key;
		at = &(*at)->next;
	}
}

static int read_value(struct reader *x, const yaml_event_t *ev, unsigned depth, struct tree **ret)
{
	int r;

	if (depth == TREE_DEPTH)
		return err_set(x->e, ERR_TOO_LARGE, -E2BIG, "line %zu: deeper than %d levels", ev->start_mark.line + 1,
			       TREE_DEPTH);
	if (ev->type == YAML_SCALAR_EVENT) {
		r = refuse_tag(x, ev, ev->data.scalar.anchor, ev->data.scalar.tag);
		*ret = r < 0 ? NULL : new_node(x, TREE_TEXT, ev);
		if (!*ret)
			return r < 0 ? r : -E2BIG;
		(*ret)->plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
		return copy_text(x, ev, &(*ret)->text);
	}
	if (ev->type == YAML_SEQUENCE_START_EVENT) {
		r = refuse_tag(x, ev, ev->data.sequence_start.anchor, ev->data.sequence_start.tag);
		*ret = r < 0 ? NULL : new_node(x, TREE_LIST, ev);
		return *ret ? read_children(x, *ret, YAML_SEQUENCE_END_EVENT, depth + 1) : r < 0 ? r : -E2BIG;
	}
	if (ev->type == YAML_MAPPING_START_EVENT) {
		r = refuse_tag(x, ev, ev->data.mapping_start.anchor, ev->data.mapping_start.tag);
		*ret = r < 0 ? NULL : new_node(x, TREE_MAP, ev);
		return *ret ? read_children(x, *ret, YAML_MAPPING_END_EVENT, depth + 1) : r < 0 ? r : -E2BIG;
	}
	return refuse_tag(x, ev, (const yaml_char_t *)"", NULL); /* an alias */
}

static int read_document(struct reader *x)
{
	const yaml_event_type_t before[] = { YAML_STREAM_START_EVENT, YAML_DOCUMENT_START_EVENT },
				after[] = { YAML_DOCUMENT_END_EVENT, YAML_STREAM_END_EVENT };
	yaml_event_t ev;
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(before); i++) {
		r = parse_event(x, &ev);
		if (r == 0 && ev.type != before[i])
			r = err_set(x->e, ERR_INVALID, -EINVAL, "it is empty");
		yaml_event_delete(&ev);
	}
	if (r == 0)
		r = parse_event(x, &ev);
	if (r == 0) {
		r = read_value(x, &ev, 0, &x->doc->root);
		yaml_event_delete(&ev);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(after); i++) {
		r = parse_event(x, &ev);
		if (r == 0 && ev.type != after[i])
			r = err_set(x->e, ERR_INVALID, -EINVAL, "line %zu: more than one document",
				    ev.start_mark.line + 1);
		yaml_event_delete(&ev);
	}
	return r;
}

int tree_parse(const char *text, size_t len, struct tree_doc *ret, struct err *e)
{
	struct tree_doc doc = { 0 };
	struct reader x = { .doc = &doc, .e = e };
	int r;

	if (len > TREE_BYTES)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "larger than %u bytes", TREE_BYTES);
	if (!yaml_parser_initialize(&x.yaml))
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	yaml_parser_set_input_string(&x.yaml, (const unsigned char *)text, len);
	r = read_document(&x);
	yaml_parser_delete(&x.yaml);
	if (r < 0) {
		tree_done(&doc);
		return r;
	}
	*ret = doc;
	return 0;
}

const struct tree *tree_get(const struct tree *map, const char *key)
{
	for (const struct tree *t = map && map->kind == TREE_MAP ? map->child : NULL; t; t = t->next)
		if (t->key && !strcmp(t->key, key))
			return t;
	return NULL;
}

/* 12, -3, 0x1f, 0o17, and 017, which is octal as well. */
static bool parse_int(const char *s, int64_t *ret)
{
	const bool minus = *s == '-';
	const char *digits = s + (*s == '-' || *s == '+');
	int base = 10;
	char *end;

	if (digits[0] == '0' && digits[1]) {
		base = digits[1] == 'x' ? 16 : 8;
		digits += digits[1] == 'x' || digits[1] == 'o' ? 2 : 1;
	}
	if (!((*digits >= '0' && *digits <= '9') || (base == 16 && strspn(digits, "abcdefABCDEF"))))
		return false;
	errno = 0;
	*ret = strtoll(digits, &end, base);
	if (*end || errno)
		return false;
	*ret = minus ? -*ret : *ret;
	return true;
}

/* Whether YAML has another type for this plain text. */
static bool is_other(const char *s)
{
	static const char *const words[] = { "",      "~",     "null",	"Null", "NULL", "true", "True", "TRUE",
					     "false", "False", "FALSE", "yes",	"no",	"on",	"off" };
	char *end;

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcmp(s, words[i]))
			return true;
	if (!strchr("+-.0123456789", *s))
		return false;
	(void)strtod(s, &end);
	return !*end || parse_int(s, &(int64_t){ 0 });
}

int tree_string(const struct tree *t, const char **ret, struct err *e)
{
	if (t->kind != TREE_TEXT || (t->plain && is_other(t->text)))
		return err_set(e, ERR_INVALID, -EINVAL, "line %u: '%.60s' must be a string", t->line,
			       t->key ? t->key : "entry");
	*ret = t->text;
	return 0;
}

int tree_int(const struct tree *t, int64_t min, int64_t max, int64_t *ret, struct err *e)
{
	int64_t v;

	if (t->kind != TREE_TEXT || !t->plain || !parse_int(t->text, &v))
		return err_set(e, ERR_INVALID, -EINVAL, "line %u: '%.60s' must be a whole number", t->line,
			       t->key ? t->key : "entry");
	if (v < min || v > max)
		return err_set(e, ERR_INVALID, -ERANGE, "line %u: '%.60s' must be between %lld and %lld", t->line,
			       t->key ? t->key : "entry", (long long)min, (long long)max);
	*ret = v;
	return 0;
}
