#include "client/thing.h"
#include "base/base.h"
#include "client/ref.h"
#include "client/show.h"

static int sandbox_url(struct buf *b, const char *word)
{
	return url_add(b, "/v1/sandboxes/%s", word);
}

static int checkpoint_url(struct buf *b, const char *word)
{
	return ref_url(b, word, "", "");
}

static int template_url(struct buf *b, const char *word)
{
	return url_add(b, "/v1/templates/%s", word);
}

static int pool_url(struct buf *b, const char *word)
{
	return url_add(b, "/v1/pools/%s", word);
}

static int secret_url(struct buf *b, const char *word)
{
	return url_add(b, "/v1/secrets/%s", word);
}

const struct thing thing_sandbox = { "SANDBOX", sandbox_url };
const struct thing thing_checkpoint = { "CHECKPOINT", checkpoint_url };
const struct thing thing_template = { "TEMPLATE", template_url };
const struct thing thing_pool = { "POOL", pool_url };
const struct thing thing_secret = { "SECRET", secret_url };

const struct option thing_rm_options[] = {
	{ "force", no_argument, NULL, 'f' },
	{ NULL, 0, NULL, 0 },
};

int thing_inspect(struct args *a, const struct thing *t, struct err *e)
{
	AUTO_JSON json_t *all = json_array();
	AUTO(conn_close) struct conn *c = NULL;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, -1, t->word, e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	for (int i = 0; i < a->nrest && r == 0; i++) {
		AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
		json_t *one = NULL;

		r = t->url(&path, a->rest[i]);
		if (r == 0)
			r = conn_get(c, buf_str(&path), &one, e);
		if (r == 0)
			json_array_append_new(all, one);
	}
	if (r < 0)
		return r;
	return show_json(a->nrest == 1 ? json_array_get(all, 0) : all, a->json ? SHOW_LINE : SHOW_PRETTY, e);
}

void removal_one(struct removal *m, const char *word)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct err mine = { 0 };
	int r = m->thing->url(&path, word);

	if (r == 0)
		r = conn_json(m->conn, "DELETE", buf_str(&path), NULL, NULL, &mine);
	else
		err_sys(&mine, ERR_INVALID, r, "'%.100s'", word);
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

int thing_rm(struct args *a, const struct thing *t, struct err *e)
{
	AUTO_JSON json_t *removed = json_array();
	AUTO(conn_close) struct conn *c = NULL;
	struct removal m = { .thing = t, .removed = removed };
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0)
		m.force = true;
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, -1, t->word, e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r < 0)
		return r;
	m.conn = c;
	for (int i = 0; i < a->nrest; i++)
		removal_one(&m, a->rest[i]);
	return removal_end(a, &m, e);
}
