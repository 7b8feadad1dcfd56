/* The growing buffer: growth up to the limit, and appending. */
#include "base/buf.h"
#include "base/base.h"

void buf_done(struct buf *b)
{
	free(b->data);
	b->data = NULL;
	b->len = b->cap = 0;
}

void buf_clear(struct buf *b)
{
	buf_cut(b, 0);
}

/* Room for @len more bytes and the NUL. */
static int grow(struct buf *b, size_t len)
{
	size_t need, cap;
	char *p;

	if (b->len > b->max || len > b->max - b->len)
		return -E2BIG;
	need = b->len + len + 1;
	if (need == 0)
		return -E2BIG; /* a maximum of SIZE_MAX leaves no place for the NUL */
	if (need <= b->cap)
		return 0;
	/* Half as much again keeps appends cheap; never past what the maximum can use. */
	cap = b->cap + b->cap / 2 + 64;
	if (b->max < SIZE_MAX && cap > b->max + 1)
		cap = b->max + 1;
	if (cap < need)
		cap = need;
	p = realloc(b->data, cap);
	if (!p)
		return -ENOMEM;
	b->data = p;
	b->cap = cap;
	p[b->len] = '\0';
	return 0;
}

int buf_add(struct buf *b, const void *data, size_t len)
{
	int r = grow(b, len);

	if (r < 0)
		return r;
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
	return 0;
}

int buf_adds(struct buf *b, const char *text)
{
	return buf_add(b, text, strlen(text));
}

int buf_addc(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}

int buf_addv(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n, r;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		return -errno;
	r = grow(b, (size_t)n);
	if (r < 0)
		return r;
	vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	b->len += (size_t)n;
	return 0;
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = buf_addv(b, fmt, ap);
	va_end(ap);
	return r;
}

void *buf_room(struct buf *b, size_t len)
{
	return grow(b, len) < 0 ? NULL : b->data + b->len;
}

void buf_added(struct buf *b, size_t len)
{
	assert(b->data && len < b->cap - b->len);
	b->len += len;
	b->data[b->len] = '\0';
}

void buf_drop(struct buf *b, size_t len)
{
	assert(len <= b->len);
	if (!len)
		return;
	b->len -= len;
	memmove(b->data, b->data + len, b->len + 1);
}

void buf_cut(struct buf *b, size_t len)
{
	assert(len <= b->len);
	b->len = len;
	if (b->data)
		b->data[len] = '\0';
}

const char *buf_str(const struct buf *b)
{
	return b->data ? b->data : "";
}

char *buf_take(struct buf *b)
{
	char *p;

	if (!b->data)
		return calloc(1, 1);
	p = TAKE_PTR(b->data);
	b->len = b->cap = 0;
	return p;
}
