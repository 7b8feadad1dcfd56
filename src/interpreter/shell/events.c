/* Writes events as frames: four bytes of length, little-endian, then JSON. */
#include "interpreter/shell/events.h"

#include "base/base.h"

#define FRAME_MAX (48 * MIB)

void events_open(struct json *j, const char *type, const char *id)
{
	j->buf->max = FRAME_MAX;
	/* the length, filled in at the end; if memory is short, later calls fail as well */
	buf_add(j->buf, "\0\0\0\0", 4);
	jout_object(j, NULL);
	jout_str(j, "type", type);
	jout_raw(j, "id", id, strlen(id));
}

int events_send(struct events *ev, struct json *j)
{
	size_t len;
	int r;

	jout_end(j);
	r = jout_done(j);
	if (r < 0)
		return r;
	len = j->buf->len - 4;
	for (int i = 0; i < 4; i++)
		j->buf->data[i] = (char)(len >> (8 * i));
	return fd_write_all(ev->fd, j->buf->data, j->buf->len);
}

int events_begun(struct events *ev)
{
	AUTO(buf_done) struct buf b = { 0 };
	struct json j = JSON_INIT(&b);

	if (ev->keep)
		return 0;
	events_open(&j, "begun", ev->id);
	return events_send(ev, &j);
}

int events_text(struct events *ev, const char *kind, const char *text, size_t len)
{
	AUTO(buf_done) struct buf b = { 0 };
	struct json j = JSON_INIT(&b);
	size_t room = ev->limit > ev->sent ? (size_t)(ev->limit - ev->sent) : 0;

	if (ev->keep) {
		(void)!buf_add(ev->keep, text, len); /* output that does not fit is not part of the answer */
		return 0;
	}
	if (len > room) {
		ev->dropped += len - room;
		len = room;
	}
	if (!len)
		return 0;
	ev->sent += len;
	events_open(&j, kind, ev->id);
	jout_strn(&j, "text", text, len);
	return events_send(ev, &j);
}

int events_refuse(struct events *ev, const char *id, const char *message)
{
	AUTO(buf_done) struct buf b = { 0 };
	struct json j = JSON_INIT(&b);

	events_open(&j, "refused", id);
	jout_str(&j, "message", message);
	return events_send(ev, &j);
}
