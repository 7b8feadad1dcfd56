/* Sends Server-Sent Events. */
#include "http/conn.h"

#include "base/base.h"

void sse_begin(struct http_req *q)
{
	if (q->res != RES_NONE)
		return;
	http_set(q, "Cache-Control", "no-store");
	http_set(q, "X-Accel-Buffering", "no"); /* proxies must not collect events */
	q->sse = true;
	http_begin(q, 200, "text/event-stream", -1);
}

void sse_comment(struct http_req *q)
{
	/* While bytes wait, the client is not quiet but slow. */
	if (!q->conn->queued)
		http_write(q, ":\n\n", 3);
}

static bool one_line(const char *text, size_t len)
{
	return !memchr(text, '\n', len) && !memchr(text, '\r', len);
}

void sse_event(struct http_req *q, const char *id, const char *event, const char *json, size_t len)
{
	char head[512];
	struct http_piece p[3];
	size_t n = 0;

	/* A line end would let data pass for fields of its own. */
	if ((id && !one_line(id, strlen(id))) || (event && !one_line(event, strlen(event))) || !one_line(json, len))
		return;
	if (id)
		n += (size_t)snprintf(head, sizeof(head), "id: %.200s\n", id);
	if (event)
		n += (size_t)snprintf(head + n, sizeof(head) - n, "event: %.200s\n", event);
	n += (size_t)snprintf(head + n, sizeof(head) - n, "data: ");
	p[0] = (struct http_piece){ head, n };
	p[1] = (struct http_piece){ json, len };
	p[2] = (struct http_piece){ "\n\n", 2 };
	res_write(q, p, 3);
}
