/* Follows the requests on a plain HTTP connection. */
#include "egress/request.h"

#include "base/base.h"

/*
 * Bodies are followed by hand, not by llhttp: what matters is only how many of the next bytes are content, so that they
 * can pass without being read, and a connection that idles must not keep a parser.
 */
#define FRAME_MAX 4096U /* a chunk's head with its extensions, a trailer */
#define TRAILERS_MAX 64U

enum {
	AT_HEAD,
	AT_LENGTH,
	AT_CHUNK, /* its head */
	AT_CONTENT,
	AT_CONTENT_END, /* the CRLF behind */
	AT_TRAILER,
	AT_UPGRADE, /* what will the server say? */
	AT_TUNNEL,
	AT_LAST,
};

static enum request_step bad(const char **ret_why, const char *why)
{
	*ret_why = why;
	return REQUEST_BAD;
}

/* The request is over. */
static void next(struct request *q)
{
	q->state = q->close ? AT_LAST : AT_HEAD;
	q->left = 0;
	q->line = 0;
	q->lines = 0;
}

static int calm_field(void *arg, const char *data, const struct head_field *f)
{
	char *own = arg;

	if (head_field_is(data, f, "upgrade"))
		own[f->line] = 'X';
	return 0;
}

static enum request_step at_head(struct request *q, char *data, size_t len, struct head *ret_head, size_t *ret_n,
				 const char **ret_why)
{
	struct head h;

	switch (head_look(data, len, &h, ret_why)) {
	case LOOK_MORE:
		return REQUEST_MORE;
	case LOOK_NOT:
		return bad(ret_why, "unexpected data after an HTTP request");
	case LOOK_BAD:
		return REQUEST_BAD;
	case LOOK_YES:
		break;
	}
	if (h.connect)
		return bad(ret_why, "CONNECT is only for proxies");
	if (h.upgrade == HEAD_WEBSOCKET && q->some)
		return bad(ret_why, "an Upgrade must be the first request of its connection");
	if (h.upgrade == HEAD_H2C) {
		(void)head_each(data, &h, calm_field, data);
		h.upgrade = HEAD_NO_UPGRADE;
	}
	q->some = true;
	q->close = !h.keep;
	q->line = 0;
	q->left = h.length;
	if (h.upgrade)
		q->state = AT_UPGRADE;
	else if (h.body == HEAD_LENGTH)
		q->state = AT_LENGTH;
	else if (h.body == HEAD_CHUNKED)
		q->state = AT_CHUNK;
	else
		next(q);
	*ret_head = h;
	*ret_n = h.len;
	return REQUEST_HEAD;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The lines between chunks are parsed byte by byte: ->line is their length so far, its upper bits what they contained. */
#define LINE_CR (1U << 30)
#define LINE_EXT (1U << 29)
#define LINE_LEN(line) ((line) & (LINE_EXT - 1))

static const char *chunk_byte(struct request *q, char c)
{
	int v;

	if (q->line & LINE_CR) {
		if (c != '\n')
			return "the line of a chunk does not end with CR and LF";
		q->line = 0;
		q->state = q->left ? AT_CONTENT : AT_TRAILER;
		return NULL;
	}
	if (c == '\r') {
		if (!LINE_LEN(q->line))
			return "a chunk without a size";
		q->line |= LINE_CR;
		return NULL;
	}
	if (++q->line & LINE_EXT) {
		if (LINE_LEN(q->line) > FRAME_MAX || ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f)
			return "the extension of a chunk is invalid";
		return NULL;
	}
	if (c == ';' && LINE_LEN(q->line) > 1) {
		q->line |= LINE_EXT;
		return NULL;
	}
	v = hex(c);
	if (v < 0 || LINE_LEN(q->line) > 15)
		return "the size of a chunk is not a number";
	q->left = q->left << 4 | (uint64_t)v;
	return NULL;
}

static const char *content_end_byte(struct request *q, char c)
{
	if (c != (q->line ? '\n' : '\r'))
		return "a chunk is longer than its size";
	if (!q->line++)
		return NULL;
	q->line = 0;
	q->state = AT_CHUNK;
	return NULL;
}

static const char *trailer_byte(struct request *q, char c)
{
	if (q->line & LINE_CR) {
		if (c != '\n')
			return "the line of a trailer does not end with CR and LF";
		if (!LINE_LEN(q->line)) {
			next(q);
			return NULL;
		}
		q->line = 0;
		return ++q->lines > TRAILERS_MAX ? "too many trailers" : NULL;
	}
	if (c == '\r') {
		q->line |= LINE_CR;
		return NULL;
	}
	if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7f || LINE_LEN(q->line) >= FRAME_MAX ||
	    (!q->line && (c == ' ' || c == '\t')))
		return "a trailer is invalid";
	q->line++;
	return NULL;
}

/* Bytes of framing and of content, until the body's end or the next that cannot pass yet. */
static enum request_step at_body(struct request *q, const char *data, size_t len, size_t *ret_n, const char **ret_why)
{
	const char *why = NULL;
	uint64_t plain;
	size_t n = 0;

	while (n < len && q->state != AT_HEAD && q->state != AT_LAST && !why) {
		plain = request_plain(q);
		if (plain) {
			if (plain > len - n)
				plain = len - n;
			request_passed(q, plain);
			n += (size_t)plain;
		} else if (q->state == AT_CHUNK) {
			why = chunk_byte(q, data[n++]);
		} else if (q->state == AT_CONTENT_END) {
			why = content_end_byte(q, data[n++]);
		} else {
			why = trailer_byte(q, data[n++]);
		}
	}
	*ret_n = n;
	return why ? bad(ret_why, why) : REQUEST_BODY;
}

enum request_step request_step(struct request *q, char *data, size_t len, struct head *ret_head, size_t *ret_n,
			       const char **ret_why)
{
	if (!len)
		return REQUEST_MORE;
	if (q->state == AT_HEAD)
		return at_head(q, data, len, ret_head, ret_n, ret_why);
	if (q->state == AT_UPGRADE)
		return REQUEST_WAIT;
	if (q->state == AT_LAST)
		return REQUEST_LAST;
	return at_body(q, data, len, ret_n, ret_why);
}

uint64_t request_plain(const struct request *q)
{
	if (q->state == AT_TUNNEL)
		return UINT64_MAX;
	return q->state == AT_LENGTH || q->state == AT_CONTENT ? q->left : 0;
}

void request_passed(struct request *q, uint64_t n)
{
	if (q->state == AT_TUNNEL)
		return;
	assert(n <= request_plain(q));
	q->left -= n;
	if (q->left)
		return;
	if (q->state == AT_LENGTH)
		next(q);
	else if (q->state == AT_CONTENT)
		q->state = AT_CONTENT_END;
}

bool request_between(const struct request *q)
{
	return q->state == AT_HEAD || q->state == AT_LAST || q->state == AT_TUNNEL;
}

bool request_waits(const struct request *q)
{
	return q->state == AT_UPGRADE;
}

enum look request_answer(struct request *q, const char *data, size_t len)
{
	static const char yes[] = "HTTP/1.1 101";

	if (len < sizeof(yes) && !memcmp(data, yes, len < sizeof(yes) - 1 ? len : sizeof(yes) - 1))
		return LOOK_MORE;
	if (len >= sizeof(yes) && !memcmp(data, yes, sizeof(yes) - 1) && (data[12] == ' ' || data[12] == '\r')) {
		q->state = AT_TUNNEL;
		return LOOK_YES;
	}
	next(q);
	return LOOK_NOT;
}
