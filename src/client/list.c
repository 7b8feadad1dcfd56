/* Reads lists page by page. */
#include "client/list.h"
#include "base/base.h"
#include "client/show.h"

#define LIST_MAX 100000

int list_all(struct conn *c, const char *path, const char *key, const char *query, json_t **ret, struct err *e)
{
	AUTO_JSON json_t *all = json_array();
	AUTO_FREE char *cursor = NULL;

	for (;;) {
		AUTO(buf_done) struct buf url = BUF_INIT(64 * KIB);
		AUTO_JSON json_t *page = NULL;
		const char *next;
		size_t before = json_array_size(all);
		int r = buf_addf(&url, "%s?limit=1000", path);

		if (r == 0)
			r = buf_adds(&url, query);
		if (r == 0 && cursor)
			r = url_add(&url, "&cursor=%s", cursor);
		if (r < 0)
			return err_sys(e, ERR_INVALID, r, "the query");
		r = conn_get(c, buf_str(&url), &page, e);
		if (r < 0)
			return r;
		if (json_array_extend(all, json_object_get(page, key)) < 0)
			return err_set(e, ERR_INTERNAL, -EPROTO, "the daemon's answer has no list of %s", key);
		next = json_string_value(json_object_get(page, "next"));
		/* A page without new entries would make this loop endless. */
		if (!next || json_array_size(all) == before || json_array_size(all) > LIST_MAX)
			break;
		free(cursor);
		cursor = strdup(next);
		if (!cursor)
			return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	}
	*ret = TAKE_PTR(all);
	return 0;
}

int list_sandboxes(struct conn *c, const char *query, json_t **ret, struct err *e)
{
	return list_all(c, "/v1/sandboxes", "sandboxes", query, ret, e);
}

int list_checkpoints(struct conn *c, const char *query, json_t **ret, struct err *e)
{
	return list_all(c, "/v1/checkpoints", "checkpoints", query, ret, e);
}
