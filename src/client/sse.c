/* Parses Server-Sent Events. */
#include "client/sse.h"
#include "base/base.h"

void sse_init(struct sse *s, int (*on)(void *arg, const struct sse *s), void *arg)
{
	*s = (struct sse){ .line = BUF_INIT(SSE_MAX), .data = BUF_INIT(SSE_MAX), .on = on, .arg = arg };
}

void sse_done(struct sse *s)
{
	buf_done(&s->line);
	buf_done(&s->data);
}

static int end_event(struct sse *s)
{
	int r = 0;

	/* Without data it is none. */
	if (s->data.len) {
		buf_cut(&s->data, s->data.len - 1);
		if (!s->event[0])
			snprintf(s->event, sizeof(s->event), "message");
		r = s->on(s->arg, s);
	}
	s->event[0] = '\0';
	buf_clear(&s->data);
	return r;
}

static int end_line(struct sse *s)
{
	char *value, *line = s->line.data;
	int r = 0;

	if (!s->line.len)
		return end_event(s);
	if (line[0] == ':')
		return 0;
	value = strchr(line, ':');
	if (value) {
		*value++ = '\0';
		value += *value == ' ';
	} else {
		value = line + s->line.len;
	}
	if (!strcmp(line, "data")) {
		r = buf_adds(&s->data, value);
		if (r == 0)
			r = buf_addc(&s->data, '\n');
	} else if (!strcmp(line, "event")) {
		snprintf(s->event, sizeof(s->event), "%s", value);
	} else if (!strcmp(line, "id")) {
		snprintf(s->id, sizeof(s->id), "%s", value);
	}
	return r;
}

int sse_feed(struct sse *s, const char *data, size_t len)
{
	int r = 0;

	for (size_t i = 0; i < len && r == 0; i++) {
		bool second = s->cr && data[i] == '\n';

		s->cr = data[i] == '\r';
		if (second)
			continue;
		if (data[i] != '\n' && data[i] != '\r') {
			r = buf_addc(&s->line, data[i]);
			continue;
		}
		r = end_line(s);
		buf_clear(&s->line);
	}
	return r;
}
