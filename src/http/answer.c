/* Parses the answer to a request of ours. */
#include "http/answer.h"

#include <strings.h>

#include "base/base.h"
#include "http/conn.h"

static int on_head(llhttp_t *l)
{
	(void)l;
	return HPE_PAUSED;
}

/* The content of chunks is moved together at the front of the buffer it came in. */
static int on_body(llhttp_t *l, const char *p, size_t n)
{
	struct answer *a = l->data;

	memmove(a->to, p, n);
	a->to += n;
	return 0;
}

static int on_end(llhttp_t *l)
{
	struct answer *a = l->data;

	a->state = ANSWER_END;
	return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
	.on_headers_complete = on_head,
	.on_body = on_body,
	.on_message_complete = on_end,
};

void answer_init(struct answer *a)
{
	*a = (struct answer){ .length = -1 };
}

void answer_done(struct answer *a)
{
	free(TAKE_PTR(a->head));
}

const char *answer_header(const struct answer *a, const char *name)
{
	for (unsigned i = 0; i < a->n; i++)
		if (!strcasecmp(a->header[i].name, name))
			return a->header[i].value;
	return NULL;
}

static int bad(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EBADMSG;
}

/* One line of the head behind the first, ended by a NUL in place of its CR. */
static int read_header(struct answer *a, char *line, const char **ret_why)
{
	char *p = line, *end = line + strlen(line);

	while (parse_is_token((unsigned char)*p))
		p++;
	if (p == line || *p != ':')
		return bad(ret_why, "a header's name contains an invalid character");
	*p++ = '\0';
	while (*p == ' ' || *p == '\t')
		p++;
	while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	for (char *tab = p; (tab = strchr(tab, '\t'));)
		*tab = ' ';
	if (a->n == ANSWER_HEADERS_MAX)
		return bad(ret_why, "it has too many headers");
	a->header[a->n].name = line;
	a->header[a->n++].value = p;
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

/* Where its body ends must be said once and plainly, or not at all. */
static int read_framing(struct answer *a, const char **ret_why)
{
	unsigned lengths = 0, codings = 0;

	for (unsigned i = 0; i < a->n; i++) {
		if (!strcasecmp(a->header[i].name, "content-length")) {
			lengths++;
			if (read_length(a->header[i].value, &a->length) < 0)
				return bad(ret_why, "its Content-Length is not a number");
		} else if (!strcasecmp(a->header[i].name, "transfer-encoding")) {
			codings++;
			if (strcasecmp(a->header[i].value, "chunked") != 0)
				return bad(ret_why, "its Transfer-Encoding is not chunked");
		}
	}
	if (lengths + codings > 1)
		return bad(ret_why, "its body's length is given twice");
	a->chunked = codings;
	a->left = a->length > 0 ? (uint64_t)a->length : 0;
	return 0;
}

/* "HTTP/1.1 200 Words": llhttp has read it already. */
static const char *read_reason(char *line)
{
	char *at = strchr(line, ' ');

	line[strcspn(line, "\r\n")] = '\0';
	while (at && *at == ' ')
		at++;
	at = at ? strchr(at, ' ') : NULL;
	return at ? at + 1 : "";
}

/* The head is there, whole. Sets ->state. */
static int whole_head(struct answer *a, const char **ret_why)
{
	llhttp_t *l = &a->parser;
	char *line, *next;
	int r = 0;

	llhttp_init(l, HTTP_RESPONSE, &settings);
	l->data = a;
	if (llhttp_execute(l, a->head, a->len) != HPE_PAUSED || l->http_major != 1 || l->http_minor > 1)
		return bad(ret_why, "it is not HTTP/1.1");
	llhttp_resume(l);
	a->status = l->status_code;
	if (a->status < 100 || a->status > 599)
		return bad(ret_why, "its status is invalid");
	a->n = 0;
	a->length = -1;
	line = strchr(a->head, '\n') + 1;
	a->reason = read_reason(a->head);
	for (; r == 0 && *line != '\r'; line = next) {
		next = strchr(line, '\r');
		*next = '\0';
		next += 2;
		r = read_header(a, line, ret_why);
	}
	if (r == 0)
		r = read_framing(a, ret_why);
	if (r < 0)
		return r;
	if (a->status == 101)
		return a->may_upgrade && !a->chunked && a->length <= 0 ?
			       (a->state = ANSWER_UPGRADED, 0) :
			       bad(ret_why, "it switches protocols without an Upgrade request");
	if (a->status < 200) {
		a->len = 0;
		return ++a->early > ANSWER_EARLY_MAX ? bad(ret_why, "it contains no final answer") : 0;
	}
	if (a->no_body || a->status == 204 || a->status == 304 || !a->length)
		a->state = ANSWER_END;
	else
		a->state = ANSWER_BODY;
	return 0;
}

/* How many of @n bytes are the head's; *ret_whole when that is all of it. -EBADMSG for what no head may hold. */
static ssize_t scan(const struct answer *a, const char *p, size_t n, bool *ret_whole)
{
	/* The last two bytes before, and whether the line they are of has anything in it. */
	char last = a->len ? a->head[a->len - 1] : '\n';
	bool empty = !a->len || (last == '\n') || (a->len >= 2 && last == '\r' && a->head[a->len - 2] == '\n');

	for (size_t i = 0; i < n; i++) {
		unsigned char ch = (unsigned char)p[i];

		if ((ch == '\n') != (last == '\r') || (ch < 0x20 && ch != '\r' && ch != '\n' && ch != '\t') ||
		    ch == 0x7f)
			return -EBADMSG;
		if (ch == '\n' && empty && a->len + i > 1) {
			*ret_whole = true;
			return (ssize_t)i + 1;
		}
		if (last == '\n' && (ch == ' ' || ch == '\t' || (!a->len && !i && ch == '\r')))
			return -EBADMSG; /* folded, or an empty line before it */
		empty = ch == '\n' || (empty && ch == '\r');
		last = (char)ch;
	}
	*ret_whole = false;
	return (ssize_t)n;
}

static ssize_t feed_head(struct answer *a, const char *p, size_t n, const char **ret_why)
{
	bool whole = false;
	ssize_t used = scan(a, p, n, &whole);
	size_t cap;
	char *more;
	int r = 0;

	if (used < 0)
		return bad(ret_why, "its head contains an invalid character");
	if (a->len + (size_t)used > ANSWER_HEAD_MAX)
		return bad(ret_why, "its head is too large");
	for (cap = a->cap ? a->cap : 1024; cap < a->len + (size_t)used + 1; cap *= 2)
		;
	if (cap != a->cap) {
		more = realloc(a->head, cap);
		if (!more)
			return -ENOMEM;
		a->head = more;
		a->cap = cap;
	}
	memcpy(a->head + a->len, p, (size_t)used);
	a->len += (size_t)used;
	a->head[a->len] = '\0';
	if (whole)
		r = whole_head(a, ret_why);
	return r < 0 ? r : used;
}

ssize_t answer_feed(struct answer *a, char *p, size_t n, size_t *ret_len, const char **ret_why)
{
	enum llhttp_errno r;

	*ret_len = 0;
	if (a->state == ANSWER_HEAD)
		return feed_head(a, p, n, ret_why);
	if (a->state != ANSWER_BODY)
		return 0;
	if (a->chunked) {
		a->to = p;
		r = llhttp_execute(&a->parser, p, n);
		*ret_len = (size_t)(a->to - p);
		if (r == HPE_PAUSED && a->state == ANSWER_END)
			return (ssize_t)(llhttp_get_error_pos(&a->parser) - p);
		return r == HPE_OK ? (ssize_t)n : bad(ret_why, "its chunks are invalid");
	}
	if (a->length >= 0) {
		if (n > a->left)
			n = (size_t)a->left;
		a->left -= n;
		if (!a->left)
			a->state = ANSWER_END;
	}
	*ret_len = n;
	return (ssize_t)n;
}

int answer_eof(struct answer *a)
{
	if (a->state == ANSWER_BODY && !a->chunked && a->length < 0)
		a->state = ANSWER_END;
	return a->state == ANSWER_END ? 0 : -EPIPE;
}
