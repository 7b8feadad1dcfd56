#include "client/input.h"
#include "base/base.h"

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
