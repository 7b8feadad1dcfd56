/* Listing, showing and removing things by name or id. */
#include "client/thing.h"
#include "base/base.h"
#include "client/show.h"
#include "client/text.h"

const struct thing thing_sandbox = { .word = "SANDBOX", .path = "/v1/sandboxes", .key = "sandboxes" };

int thing_url(const struct thing *t, const char *word, struct buf *to)
{
	int r;

	if (t->url)
		return t->url(to, word);
	r = buf_adds(to, t->path);
	return r < 0 ? r : url_add(to, "/%s", word);
}

static int one_url(const struct thing *t, const char *word, struct buf *to, struct err *e)
{
	int r = thing_url(t, word, to);

	return r < 0 ? err_sys(e, ERR_INVALID, r, "'%.100s'", word) : 0;
}

void cell_text(struct table *t, const json_t *one, const char *field)
{
	table_add(t, show_str(one, field));
}

void cell_number(struct table *t, const json_t *one, const char *field)
{
	table_addf(t, "%llu", (unsigned long long)show_u64(one, field));
}

void cell_age(struct table *t, const json_t *one, const char *field)
{
	char tmp[32];

	table_add(t, show_age(show_str(one, field), tmp, sizeof(tmp)));
}

void cell_size(struct table *t, const json_t *one, const char *field)
{
	char tmp[32];

	table_add(t, text_size(show_u64(one, field), tmp, sizeof(tmp)));
}

int thing_print(const struct args *a, const struct thing *t, const json_t *list, struct err *e)
{
	const char *titles[TABLE_COLUMNS];
	AUTO(table_done) struct table table = { 0 };
	const json_t *one;
	size_t n = 0, i;

	if (a->json)
		return show_json(list, SHOW_LINE, e);
	for (const struct column *c = t->columns; c->title; c++)
		titles[n++] = c->title;
	table_init(&table, titles, n, t->right);
	json_array_foreach(list, i, one) for (const struct column *c = t->columns; c->title; c++)
		c->cell(&table, one, c->field);
	return table_print(&table, e);
}

int thing_ls(struct args *a, struct err *e)
{
	const struct thing *t = a->command->thing;
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *v = NULL;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 0, 0, "options", &c, e);
	if (r == 0)
		r = conn_get(c, t->path, &v, e);
	return r < 0 ? r : thing_print(a, t, json_object_get(v, t->key), e);
}

const struct option thing_rm_options[] = {
	{ "force", no_argument, NULL, 'f' },
	{ NULL, 0, NULL, 0 },
};

int thing_inspect(struct args *a, struct err *e)
{
	const struct thing *t = a->command->thing;
	AUTO_JSON json_t *all = json_array();
	AUTO(conn_close) struct conn *c = NULL;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 1, -1, t->word, &c, e);
	for (int i = 0; i < a->nrest && r == 0; i++) {
		AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
		json_t *one = NULL;

		r = one_url(t, a->rest[i], &path, e);
		if (r == 0)
			r = conn_get(c, buf_str(&path), &one, e);
		if (r == 0)
			json_array_append_new(all, one);
	}
	if (r < 0)
		return r;
	return show_json(a->nrest == 1 ? json_array_get(all, 0) : all, a->json ? SHOW_LINE : SHOW_PRETTY, e);
}

int thing_put(const struct args *a, struct conn *c, const struct thing *t, const json_t *body, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *v = NULL;
	int r = one_url(t, a->rest[0], &path, e);

	if (r == 0)
		r = conn_json(c, "PUT", buf_str(&path), body, &v, e);
	return r == 0 && a->json ? show_json(v, SHOW_LINE, e) : r;
}

void removal_one(struct removal *m, const char *word)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct err mine = { 0 };
	int r = one_url(m->thing, word, &path, &mine);

	if (r == 0)
		r = conn_json(m->conn, "DELETE", buf_str(&path), NULL, NULL, &mine);
	if (r == 0)
		json_array_append_new(m->removed, json_string(word));
	if (r == 0 || m->bad || (m->force && mine.kind == ERR_NOT_FOUND && r == -ENOENT))
		return;
	m->bad = r;
	m->why = mine;
}

int removal_end(struct args *a, struct removal *m, struct err *e)
{
	const json_t *v;
	size_t i;

	if (a->json)
		show_json(m->removed, SHOW_LINE, e);
	else
		json_array_foreach(m->removed, i, v) show_line(json_string_value(v));
	*e = m->why;
	/* The list is the answer, and there is only one of them. */
	a->json = a->json && !m->bad;
	return m->bad;
}

int thing_rm(struct args *a, struct err *e)
{
	const struct thing *t = a->command->thing;
	AUTO_JSON json_t *removed = json_array();
	AUTO(conn_close) struct conn *c = NULL;
	struct removal m = { .thing = t, .removed = removed };
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0)
		m.force = true;
	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 1, -1, t->word, &c, e);
	if (r < 0)
		return r;
	m.conn = c;
	for (int i = 0; i < a->nrest; i++)
		removal_one(&m, a->rest[i]);
	return removal_end(a, &m, e);
}
