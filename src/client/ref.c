/* Finds the checkpoint that an argument names. */
#include "client/ref.h"
#include "base/base.h"
#include "client/show.h"

int ref_url(struct buf *b, const char *word, const char *sub, const char *query)
{
	const char *colon = strchr(word, ':');
	AUTO_FREE char *sandbox = NULL;
	int r = url_add(b, "/v1/checkpoints/%s", colon ? colon + 1 : word);

	if (r == 0)
		r = buf_adds(b, sub);
	if (r == 0 && (colon || *query))
		r = buf_addf(b, "?%s", query);
	if (r < 0 || !colon)
		return r;
	sandbox = strndup(word, (size_t)(colon - word));
	if (!sandbox)
		return -ENOMEM;
	return url_add(b, *query ? "&sandbox=%s" : "sandbox=%s", sandbox);
}

int ref_id(struct conn *c, const char *word, char **ret, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *v = NULL;
	AUTO_FREE char *id = NULL;
	int r;

	if (!strchr(word, ':')) {
		id = strdup(word);
	} else {
		r = ref_url(&path, word, "", "");
		if (r < 0)
			return err_sys(e, ERR_INVALID, r, "'%.100s'", word);
		r = conn_get(c, buf_str(&path), &v, e);
		if (r < 0)
			return r;
		id = strdup(show_str(v, "id"));
	}
	if (!id)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	*ret = TAKE_PTR(id);
	return 0;
}

int ref_resolve(struct conn *c, json_t *body, const char *key, struct err *e)
{
	const char *word = show_str(body, key);
	AUTO_FREE char *id = NULL;
	int r;

	if (!*word)
		return 0;
	r = ref_id(c, word, &id, e);
	return r < 0 ? r : json_object_set_new(body, key, json_string(id));
}
