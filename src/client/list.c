#include "client/list.h"
#include "base/base.h"
#include "client/show.h"

#define LIST_MAX 100000

int list_sandboxes(struct conn *c, const char *query, json_t **ret, struct err *e)
{
	AUTO_JSON json_t *all = json_array();
	AUTO_FREE char *cursor = NULL;

	for (;;) {
		AUTO(buf_done) struct buf path = BUF_INIT(64 * KIB);
		AUTO_JSON json_t *page = NULL;
		const char *next;
		size_t before = json_array_size(all);
		int r = url_add(&path, "/v1/sandboxes?limit=1000");

		if (r == 0)
			r = buf_adds(&path, query);
		if (r == 0 && cursor)
			r = url_add(&path, "&cursor=%s", cursor);
		if (r < 0)
			return err_sys(e, ERR_INVALID, r, "the query");
		r = conn_get(c, buf_str(&path), &page, e);
		if (r < 0)
			return r;
		if (json_array_extend(all, json_object_get(page, "sandboxes")) < 0)
			return err_set(e, ERR_INTERNAL, -EPROTO, "the daemon's answer has no list of sandboxes");
		next = json_string_value(json_object_get(page, "next"));
		/* A page without anything new would go on for ever. */
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
