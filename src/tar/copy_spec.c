/* Reads what is to be copied. Our own daemon writes it, so a mistake in it is ours; the texts in it are strangers'. */
#include "tar/copy_spec.h"
#include "base/base.h"
#include "base/buf.h"

#include <poll.h>
#include <unistd.h>

static int read_all(int fd, struct buf *b, struct err *e)
{
	for (;;) {
		void *to = buf_room(b, 65536);
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (!to)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "what is to be copied takes more than 4 MiB to say");
		n = read(fd, to, 65536);
		if (n == 0)
			return 0;
		if (n > 0)
			buf_added(b, (size_t)n);
		else if (errno == EAGAIN)
			poll(&p, 1, -1);
		else if (errno != EINTR)
			return err_sys(e, ERR_LOST, -errno, "read what is to be copied");
	}
}

static int octal(const char *text, uint32_t *ret, struct err *e)
{
	char *end;
	unsigned long v = strtoul(text, &end, 8);

	if (!*text || *end || *text == '-' || *text == '+' || v > 07777)
		return err_set(e, ERR_INVALID, -EINVAL, "--chmod must be an octal number like 755, not '%.40s'", text);
	*ret = (uint32_t)v;
	return 0;
}

static int text(char **to, const char *value)
{
	free(*to);
	*to = strdup(value);
	return *to ? 0 : -ENOMEM;
}

static int set(struct copy_spec *s, const char *key, const char *value, struct err *e)
{
	if (!strcmp(key, "under"))
		return text(&s->under, value);
	if (!strcmp(key, "dest"))
		return text(&s->dest, value);
	if (!strcmp(key, "mkdir"))
		return text(&s->mkdir, value);
	if (!strcmp(key, "chown"))
		return text(&s->chown, value);
	if (!strcmp(key, "source"))
		return words_add(&s->sources, value);
	if (!strcmp(key, "here"))
		return words_add(&s->here, value);
	if (!strcmp(key, "content"))
		return words_add(&s->content, value);
	if (!strcmp(key, "exclude"))
		return ignore_add(&s->exclude, value, e);
	if (!strcmp(key, "chmod"))
		s->has_mode = true;
	if (!strcmp(key, "chmod"))
		return octal(value, &s->mode, e);
	if (!strcmp(key, "ignore"))
		s->ignore = true;
	else if (!strcmp(key, "folder"))
		s->folder = true;
	else if (!strcmp(key, "absent"))
		s->absent = true;
	else if (!strcmp(key, "parents"))
		s->parents = true;
	else if (!strcmp(key, "unpack"))
		s->unpack = true;
	else if (!strcmp(key, "symlink"))
		s->symlink = true;
	else if (!strcmp(key, "owner"))
		s->owner = true;
	else
		return err_set(e, ERR_INTERNAL, -EINVAL, "unknown key '%.40s'", key);
	return 0;
}

int copy_spec_read(int fd, struct copy_spec *ret, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(COPY_SPEC_MAX);
	const char *p, *end;
	int r = read_all(fd, &b, e);

	if (r < 0)
		return r;
	*ret = (struct copy_spec){ 0 };
	/* The buffer has a NUL behind its end. */
	for (p = buf_str(&b), end = p + b.len; r == 0 && p < end;) {
		const char *value = p + strlen(p) + 1;

		if (value >= end)
			return err_set(e, ERR_INTERNAL, -EINVAL, "a key without a value");
		r = set(ret, p, value, e);
		p = value + strlen(value) + 1;
	}
	if (r == 0 && !ret->under)
		r = text(&ret->under, "/");
	if (r == -ENOMEM)
		return err_set(e, ERR_EXHAUSTED, r, "out of memory");
	if (r == 0 && (ret->content.n != ret->here.n || (!ret->sources.n && !ret->here.n && !ret->mkdir)))
		return err_set(e, ERR_INTERNAL, -EINVAL, "nothing is to be copied");
	return r;
}
