/* Parses requests to an HTTP proxy. */
#include "egress/proxy_http.h"

#include <strings.h>

#include "base/base.h"

enum look proxy_http_look(const char *data, size_t len, struct head *ret, const char **ret_why)
{
	struct head h;
	enum look r = head_look(data, len, &h, ret_why);

	if (r != LOOK_YES)
		return r;
	if (!h.connect && !h.absolute) {
		*ret_why = "this is a proxy: send CONNECT host:port, or a request for an http:// address";
		return LOOK_BAD;
	}
	if (!h.host.port)
		h.host.port = 80;
	*ret = h;
	return LOOK_YES;
}

struct rewrite {
	struct buf *out;
	bool upgrade;
};

static int add_field(void *arg, const char *data, const struct head_field *f)
{
	static const char *const drop[] = { "connection", "keep-alive" };
	struct rewrite *w = arg;

	for (size_t i = 0; i < ARRAY_LEN(drop); i++)
		if (head_field_is(data, f, drop[i]))
			return 0;
	if (f->name_len >= 6 && !strncasecmp(data + f->line, "proxy-", 6))
		return 0;
	if (!w->upgrade && head_field_is(data, f, "upgrade"))
		return 0;
	return buf_add(w->out, data + f->line, f->line_len);
}

int proxy_http_rewrite(const char *data, const struct head *h, struct buf *out)
{
	struct rewrite w = { out, h->upgrade == HEAD_WEBSOCKET };
	size_t before = out->len, end = h->target + h->target_len;
	int r;

	r = buf_add(out, data, h->target);
	/* "http://host?query" has no path of its own. */
	if (!r && (h->path == end || data[h->path] != '/'))
		r = buf_addc(out, '/');
	if (!r)
		r = buf_add(out, data + h->path, end - h->path);
	if (!r)
		r = buf_adds(out, h->v10 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
	if (!r)
		r = head_each(data, h, add_field, &w);
	if (!r)
		r = buf_adds(out, w.upgrade ? "Connection: Upgrade\r\n\r\n" : "Connection: close\r\n\r\n");
	if (r < 0)
		buf_cut(out, before);
	return r;
}
