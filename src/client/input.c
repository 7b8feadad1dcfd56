/* Reads a file or stdin as the input of a command. */
#include "client/input.h"
#include "base/base.h"
#include "base/base64.h"

#include <unistd.h>

int input_read(int fd, const char *name, struct buf *b, struct err *e)
{
	for (;;) {
		size_t want = b->max - b->len < 64 * KIB ? 1 : 64 * KIB;
		char *room = buf_room(b, want);
		ssize_t n = room ? read(fd, room, want) : -1;

		if (!room)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "%.150s is longer than %lluM", name,
				       (unsigned long long)(b->max / MIB));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, ERR_INVALID, -errno, "%.150s", name);
		if (n == 0)
			return 0;
		buf_added(b, (size_t)n);
	}
}

int input_set(json_t *body, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(STDIN_MAX);
	AUTO_FREE char *text = NULL;
	int r = input_read(STDIN_FILENO, "stdin", &b, e);

	if (r == -E2BIG)
		err_remedy(e, "leave out --json or --background, or copy it with `cloche cp`");
	if (r < 0)
		return r;
	text = malloc(BASE64_SIZE(b.len));
	if (!text)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	base64_encode(buf_str(&b), b.len, text);
	json_object_set_new(body, "stdin_base64", json_string(text));
	return 0;
}
