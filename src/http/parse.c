/* Checks heads and chunks before llhttp parses them. */
#include "http/conn.h"

#include <strings.h>

#include "base/base.h"

#define METHOD_MAX 32U /* bytes of a method's name */

/*
 * A head is collected whole before llhttp sees it. So its spans never come in parts, and what llhttp forgives for old
 * clients' sake (line ends, folding, spaces, signs) can be refused in one place, before and after it.
 */

static int on_url(llhttp_t *l, const char *p, size_t n)
{
	struct http_req *q = l->data;

	if (!q->url)
		q->url = p;
	q->url_len = (size_t)(p + n - q->url);
	return 0;
}

static int on_field(llhttp_t *l, const char *p, size_t n)
{
	struct http_req *q = l->data;

	(void)n;
	if (q->started) /* a trailer: ignored */
		return 0;
	if (q->n_headers == HTTP_HEADERS_MAX)
		return HPE_USER;
	q->headers[q->n_headers++] = (struct header){ .name = p };
	return 0;
}

static int on_value(llhttp_t *l, const char *p, size_t n)
{
	struct http_req *q = l->data;

	(void)n;
	if (q->started || !q->n_headers)
		return 0;
	if (!q->headers[q->n_headers - 1].value)
		q->headers[q->n_headers - 1].value = p;
	return 0;
}

static int on_head(llhttp_t *l)
{
	(void)l;
	return HPE_PAUSED;
}

/* Checks the framing between the content of chunks, since llhttp accepts some line ends without CR. */
static bool frame_plain(struct http_req *q, const char *end)
{
	for (; q->frame < end; q->frame++) {
		unsigned char ch = (unsigned char)*q->frame;

		if ((ch == '\n') != q->cr || (ch < 0x20 && ch != '\r' && ch != '\n' && ch != '\t') || ch == 0x7f)
			return false;
		q->cr = ch == '\r';
	}
	return true;
}

/* The content of chunks is moved together at the front of the buffer it came in. */
static int on_body(llhttp_t *l, const char *p, size_t n)
{
	struct http_req *q = l->data;

	if (!frame_plain(q, p))
		return HPE_USER;
	q->frame = p + n;
	memmove(q->conn->in_to, p, n);
	q->conn->in_to += n;
	q->chunk_extra = 0;
	return 0;
}

static int on_end(llhttp_t *l)
{
	struct http_req *q = l->data;

	q->body_done = true;
	return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
	.on_url = on_url,
	.on_header_field = on_field,
	.on_header_value = on_value,
	.on_headers_complete = on_head,
	.on_body = on_body,
	.on_message_complete = on_end,
};

bool parse_is_token(unsigned char ch)
{
	if ((ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z'))
		return true;
	return ch && strchr("!#$%&'*+-.^_`|~", ch);
}

static int refuse(const char **ret_why, int status, const char *why)
{
	*ret_why = why;
	return status;
}

/*
 * Ends names and values with NULs, without the spaces around them. Only now: llhttp still needed what is overwritten.
 */
static int cut_headers(struct http_req *q, const char **ret_why)
{
	char *end = q->head + q->head_len;

	for (unsigned i = 0; i < q->n_headers; i++) {
		struct header *h = &q->headers[i];
		char *name = q->head + (h->name - q->head), *p = name, *value, *stop;

		while (p < end && parse_is_token((unsigned char)*p))
			p++;
		if (p == name || p == end || *p != ':')
			return refuse(ret_why, 400, "a header's name contains an invalid character");
		*p++ = '\0';
		while (*p == ' ' || *p == '\t')
			p++;
		value = p;
		stop = memchr(value, '\r', (size_t)(end - value));
		if (!stop)
			return refuse(ret_why, 400, "a header has no end");
		while (stop > value && (stop[-1] == ' ' || stop[-1] == '\t'))
			stop--;
		*stop = '\0';
		for (p = value; p < stop; p++)
			if (*p == '\t')
				*p = ' ';
		h->value = value;
	}
	return 0;
}

static int read_length(const char *text, int64_t *ret)
{
	int64_t v = 0;

	if (!*text || strlen(text) > 15)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		v = v * 10 + (*text - '0');
	}
	*ret = v;
	return 0;
}

/* Headers that decide where the body ends, and which caller sends the request, must be unambiguous and given once. */
static int check_headers(struct http_req *q, const char **ret_why)
{
	unsigned hosts = 0, lengths = 0, codings = 0, tokens = 0;

	q->body_len = 0;
	for (unsigned i = 0; i < q->n_headers; i++) {
		const char *name = q->headers[i].name, *value = q->headers[i].value;

		if (!strcasecmp(name, "host")) {
			hosts++;
		} else if (!strcasecmp(name, "authorization")) {
			tokens++;
		} else if (!strcasecmp(name, "content-length")) {
			lengths++;
			if (read_length(value, &q->body_len) < 0)
				return refuse(ret_why, 400, "Content-Length is not a number");
		} else if (!strcasecmp(name, "transfer-encoding")) {
			codings++;
			if (strcasecmp(value, "chunked") != 0)
				return refuse(ret_why, 400, "Transfer-Encoding must be chunked");
		} else if (!strcasecmp(name, "expect")) {
			if (strcasecmp(value, "100-continue") != 0)
				return refuse(ret_why, 417, "Expect may only be 100-continue");
			q->expect = !q->v10;
		}
	}
	if (hosts > 1 || (!hosts && !q->v10))
		return refuse(ret_why, 400, "there must be exactly one Host header");
	/* A proxy in front of this server might use another one of them than this server. */
	if (tokens > 1)
		return refuse(ret_why, 400, "there may be only one Authorization header");
	if (lengths > 1 || codings > 1 || (lengths && codings) || (codings && q->v10))
		return refuse(ret_why, 400, "the body's length is given twice");
	if (codings)
		q->body_len = -1;
	return 0;
}

static enum http_method method_of(uint8_t raw)
{
	switch (raw) {
	case HTTP_GET:
		return HTTP_M_GET;
	case HTTP_HEAD:
		return HTTP_M_HEAD;
	case HTTP_POST:
		return HTTP_M_POST;
	case HTTP_PUT:
		return HTTP_M_PUT;
	case HTTP_PATCH:
		return HTTP_M_PATCH;
	case HTTP_DELETE:
		return HTTP_M_DELETE;
	default:
		return HTTP_M_OTHER;
	}
}

/* Method, target and version must be separated by exactly one space. */
static bool line_plain(const struct http_req *q)
{
	const char *p = q->head, *end = memchr(p, '\r', q->head_len);
	unsigned spaces = 0;

	for (; p < end; p++) {
		if (*p == '\t' || (*p == ' ' && (++spaces > 2 || p[1] == ' ' || p[1] == '\r')))
			return false;
	}
	return spaces == 2;
}

/* The length of a request line's method that llhttp does not know, 0 when it cannot be one. */
static size_t method_len(const struct http_req *q)
{
	size_t n = 0;

	while (n < q->head_len && ((q->head[n] >= 'A' && q->head[n] <= 'Z') || (n && q->head[n] == '-')))
		n++;
	return n <= METHOD_MAX && n < q->head_len && q->head[n] == ' ' ? n : 0;
}

/* llhttp refuses methods that it does not know. It reads another one in their place, so that the router can answer 405. */
static enum llhttp_errno parse_whole(struct http_req *q, llhttp_t *l)
{
	static const char stand_in[] = "POST";
	enum llhttp_errno r;
	size_t n;

	llhttp_init(l, HTTP_REQUEST, &settings);
	l->data = q;
	r = llhttp_execute(l, q->head, q->head_len);
	n = r == HPE_INVALID_METHOD ? method_len(q) : 0;
	if (!n) {
		q->method = method_of(l->method);
		q->method_name = llhttp_method_name((llhttp_method_t)l->method);
		return r;
	}
	llhttp_init(l, HTTP_REQUEST, &settings);
	l->data = q;
	r = llhttp_execute(l, stand_in, sizeof(stand_in) - 1);
	if (r == HPE_OK)
		r = llhttp_execute(l, q->head + n, q->head_len - n);
	q->head[n] = '\0';
	q->method = HTTP_M_OTHER;
	q->method_name = q->head;
	return r;
}

static int whole_head(struct http_req *q, const char **ret_why)
{
	llhttp_t *l = &q->conn->parser;
	enum llhttp_errno r;
	int status;

	if (!line_plain(q))
		return refuse(ret_why, 400, "the request line is invalid");
	r = parse_whole(q, l);
	if (r == HPE_INVALID_VERSION)
		return refuse(ret_why, 505, "this server supports only HTTP/1.1");
	if (r != HPE_PAUSED || !q->url)
		return refuse(ret_why, 400, "not an HTTP request");
	llhttp_resume(l);
	if (l->http_major != 1 || l->http_minor > 1)
		return refuse(ret_why, 505, "this server supports only HTTP/1.1");
	q->v10 = !l->http_minor;
	q->keep = llhttp_should_keep_alive(l);
	q->upgrade = l->upgrade && q->method == HTTP_M_GET;
	status = cut_headers(q, ret_why);
	if (!status)
		status = check_headers(q, ret_why);
	if (!status)
		status = req_target(q, ret_why);
	if (status)
		return status;
	q->body_left = q->body_len > 0 ? (uint64_t)q->body_len : 0;
	q->body_done = !q->body_len;
	return 1;
}

/* Makes room for @len bytes: a head, and behind it a copy of its path. */
static int grow(struct http_req *q, size_t len)
{
	size_t cap = q->head_cap;
	char *p;

	while (cap < len)
		cap *= 2;
	if (cap > HTTP_HEAD_MAX + HTTP_PATH_MAX + 2)
		cap = HTTP_HEAD_MAX + HTTP_PATH_MAX + 2;
	if (cap == q->head_cap)
		return 0;
	p = q->head == q->small ? malloc(cap) : realloc(q->head, cap);
	if (!p)
		return -ENOMEM;
	if (q->head == q->small)
		memcpy(p, q->small, q->head_len);
	q->head = p;
	q->head_cap = cap;
	return 0;
}

/* One byte of a head. Returns 0, 1 when it was the last, or the status to refuse with. */
static int scan(struct http_req *q, unsigned char ch, const char **ret_why)
{
	if (q->cr) {
		if (ch != '\n')
			return refuse(ret_why, 400, "a line must end with CR and LF");
		q->cr = false;
		if (!q->line_len)
			return 1;
		q->line_len = 0;
		if (++q->lines > HTTP_HEADERS_MAX + 1)
			return refuse(ret_why, 431, "too many headers");
	} else if (ch == '\r') {
		q->cr = true;
	} else if ((ch < 0x20 && ch != '\t') || ch == 0x7f) {
		return refuse(ret_why, 400, "the head contains a control byte");
	} else if (!q->line_len++ && (ch == ' ' || ch == '\t')) {
		return refuse(ret_why, 400, "the head contains a folded header");
	}
	return 0;
}

size_t parse_head(struct http_req *q, const char *p, size_t n, int *ret_status, const char **ret_why)
{
	size_t i = 0, len;
	int r = 0;

	while (i < n && !r)
		r = scan(q, (unsigned char)p[i++], ret_why);
	*ret_status = r;
	if (r > 1)
		return i;
	len = q->head_len + i;
	if (len > HTTP_HEAD_MAX || grow(q, len + (len < HTTP_PATH_MAX ? len : HTTP_PATH_MAX) + 2) < 0) {
		*ret_status = refuse(ret_why, 431, "the head is too large");
		return i;
	}
	memcpy(q->head + q->head_len, p, i);
	q->head_len += i;
	if (r == 1 && !q->lines) {
		/* An empty line before the request: some clients end a body with one. */
		q->head_len = 0;
		*ret_status = ++q->blank > 4 ? refuse(ret_why, 400, "empty lines in place of a request") : 0;
	} else if (r == 1) {
		*ret_status = whole_head(q, ret_why);
	}
	return i;
}

ssize_t parse_chunks(struct http_req *q, char *p, size_t n, size_t *ret_len)
{
	llhttp_t *l = &q->conn->parser;
	enum llhttp_errno r;
	size_t used = n;

	q->conn->in_to = p;
	q->frame = p;
	r = llhttp_execute(l, p, n);
	if (r == HPE_PAUSED && q->body_done)
		used = (size_t)(llhttp_get_error_pos(l) - p);
	else if (r != HPE_OK)
		return -EBADMSG;
	if (!frame_plain(q, p + used))
		return -EBADMSG;
	*ret_len = (size_t)(q->conn->in_to - p);
	if (!*ret_len)
		q->chunk_extra += used;
	if (q->chunk_extra > CHUNK_EXTRA_MAX)
		return -EBADMSG;
	return (ssize_t)used;
}
