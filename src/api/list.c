/* Pages of lists: parameters, order, and the answer. */
#include "api/list.h"
#include "base/base.h"
#include "base/near.h"
#include "base/str.h"

#define LIST_DEFAULT 100
#define LIST_MAX 1000

/* A filter that is not known would give a list of everything. */
static int check_names(const struct call *c, const struct list *l, struct err *e)
{
	static const char *const metadata = "metadata.";
	const char *known[LIST_FILTERS_MAX + 3] = { "limit", "cursor", "tenant" }, *key, *value, *near;
	size_t n = 3;

	for (size_t i = 0; i < LIST_FILTERS_MAX && l->filters[i]; i++)
		known[n++] = l->filters[i];
	for (size_t i = 0; i < http_query_count(c->q); i++) {
		bool found = false;

		http_query_at(c->q, i, &key, &value);
		for (size_t k = 0; k < n && !found; k++)
			found = !strcmp(known[k], key);
		if (found || !strncmp(key, metadata, strlen(metadata)))
			continue;
		near = near_word(key, known, n);
		err_set(e, WHY_UNKNOWN_FIELD, -EINVAL, "'%.60s': unknown parameter", key);
		if (near)
			err_remedy(e, "did you mean '%s'?", near);
		return -EINVAL;
	}
	return 0;
}

static int read_meta(struct call *c, struct list *l, struct err *e)
{
	for (size_t i = 0; i < http_query_count(c->q); i++) {
		const char *key, *value;

		http_query_at(c->q, i, &key, &value);
		if (strncmp(key, "metadata.", 9))
			continue;
		if (l->nmeta == LIST_META_MAX)
			return err_set(e, ERR_INVALID, -E2BIG, "at most %u metadata filters", LIST_META_MAX);
		l->meta[l->nmeta].key = key + 9;
		l->meta[l->nmeta++].value = value;
	}
	return 0;
}

int list_read(struct call *c, const struct tenant *of, struct list *l, struct err *e)
{
	const char *tenant = http_query(c->q, "tenant"), *limit = http_query(c->q, "limit"),
		   *cursor = http_query(c->q, "cursor");
	const bool admin = c->who.scope == SCOPE_ADMIN;
	uint64_t n = LIST_DEFAULT;
	int r;

	r = check_names(c, l, e);
	if (r < 0)
		return r;
	if (limit && (parse_u64(limit, &n, NULL) < 0 || n < 1 || n > LIST_MAX))
		return err_set(e, ERR_INVALID, -EINVAL, "limit must be 1 to %d", LIST_MAX);
	l->limit = (size_t)n;
	r = read_meta(c, l, e);
	if (r < 0)
		return r;
	if (!(tenant && !strcmp(tenant, "*") && admin)) {
		l->tenant = of && admin ? of : api_tenant(c->api, c->q, &c->who, e);
		if (!l->tenant)
			return -ENOENT;
	}
	return cursor ? api_cursor(cursor, &l->after_ns, &l->after, e) : 0;
}

void list_done(struct list *l)
{
	free(l->item);
	*l = (struct list){ 0 };
}

static bool has_meta(const struct kv *k, const char *key, const char *value)
{
	size_t n = strlen(key);

	for (uint32_t i = 0; i < k->n; i++)
		if (!strncmp(k->item[i], key, n) && k->item[i][n] == '=' && !strcmp(k->item[i] + n + 1, value))
			return true;
	return false;
}

bool list_meta_fits(const struct list *l, const struct kv *k)
{
	for (unsigned i = 0; i < l->nmeta; i++)
		if (!has_meta(k, l->meta[i].key, l->meta[i].value))
			return false;
	return true;
}

void list_add(struct list *l, uint64_t created_ns, const char *id, const void *what)
{
	if (l->after && (created_ns > l->after_ns || (created_ns == l->after_ns && strcmp(id, l->after) >= 0)))
		return;
	if (l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct list_item *more = reallocarray(l->item, room, sizeof(*more));

		if (!more) {
			l->failed = true;
			return;
		}
		l->item = more;
		l->room = room;
	}
	l->item[l->n++] = (struct list_item){ .what = what, .id = id, .created_ns = created_ns };
}

static int older(const void *a, const void *b)
{
	const struct list_item *x = a, *y = b;

	if (x->created_ns != y->created_ns)
		return x->created_ns < y->created_ns ? -1 : 1;
	return strcmp(x->id, y->id);
}

static int newer(const void *a, const void *b)
{
	return older(b, a);
}

void list_oldest_first(struct list *l)
{
	if (l->n)
		qsort(l->item, l->n, sizeof(*l->item), older);
}

void list_answer(struct call *c, struct list *l, const char *key, void (*put)(struct json *j, const void *what))
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	struct json j = JSON_INIT(&out);
	const struct list_item *last;
	struct err e = { 0 };
	char cursor[96];
	size_t i;

	if (l->failed) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for the list");
		call_fail(c, &e);
		return;
	}
	if (l->n)
		qsort(l->item, l->n, sizeof(*l->item), newer);
	jout_object(&j, NULL);
	jout_array(&j, key);
	for (i = 0; i < l->n && i < l->limit; i++)
		put(&j, l->item[i].what);
	jout_end(&j);
	if (i < l->n) {
		last = &l->item[i - 1];
		snprintf(cursor, sizeof(cursor), "%llu-%s", (unsigned long long)last->created_ns, last->id);
	}
	jout_str(&j, "next", i < l->n ? cursor : NULL);
	jout_end(&j);
	call_list(c, &j);
}
