/* Changes as the warden writes them. Names and bytes are a sandbox's; frames are checked like any stranger's. */
#include "tar/tar.h"
#include "base/base.h"

#include <poll.h>
#include <unistd.h>

static int garbled(struct err *e)
{
	return err_set(e, ERR_LOST, -EREMOTEIO, "the list of changes is incomplete or invalid");
}

static int fill(struct changes *c, struct err *e)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	ssize_t n;

	memmove(c->buf, c->buf + c->used, c->have - c->used);
	c->have -= c->used;
	c->used = 0;
	for (;;) {
		n = read(c->fd, c->buf + c->have, sizeof(c->buf) - c->have);
		if (n > 0) {
			c->have += (size_t)n;
			return 0;
		}
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return garbled(e);
		poll(&p, 1, -1);
	}
}

/* The next frame without taking it. */
static int peek(struct changes *c, struct err *e)
{
	long n;

	if (c->peeked)
		return 0;
	while ((n = change_decode(c->buf + c->used, c->have - c->used, &c->next)) == 0) {
		int r = fill(c, e);

		if (r < 0)
			return r;
	}
	if (n < 0)
		return garbled(e);
	c->peeked = true;
	return 0;
}

static void take(struct changes *c)
{
	c->used += CHANGE_HEAD + c->next.len;
	c->peeked = false;
}

int changes_entry(struct changes *c, struct change_entry *ret, struct err *e)
{
	for (;;) {
		int r = peek(c, e);

		if (r < 0)
			return r;
		if (c->next.type == CHANGE_ENTRY) {
			if (change_entry_decode(&c->next, ret) < 0)
				return garbled(e);
			take(c);
			return 1;
		}
		if (c->next.type == CHANGE_END) {
			if (change_end_decode(&c->next, &c->end) < 0)
				return garbled(e);
			if (c->end.errnum)
				return err_set(e,
					       c->end.kind < ERR_KIND_COUNT ? (enum err_kind)c->end.kind : ERR_INTERNAL,
					       -EIO, "%s", c->end.msg);
			return 0;
		}
		take(c); /* content that the caller did not read */
	}
}

ssize_t changes_data(struct changes *c, uint64_t size, uint64_t *at, uint8_t *buf, size_t room, struct err *e)
{
	size_t want = size - *at < room ? (size_t)(size - *at) : room;
	const uint8_t *data;
	uint64_t offset;
	size_t len;
	int r;

	if (!want)
		return 0;
	r = peek(c, e);
	if (r < 0)
		return r;
	if (c->next.type == CHANGE_DATA) {
		if (change_data_decode(&c->next, &offset, &data, &len) < 0 || offset < *at || len > room ||
		    offset > size || len > size - offset)
			return garbled(e);
		if (offset == *at) {
			memcpy(buf, data, len);
			take(c);
			*at += len;
			return (ssize_t)len;
		}
		if (want > offset - *at)
			want = (size_t)(offset - *at);
	}
	memset(buf, 0, want);
	*at += want;
	return (ssize_t)want;
}
