/* An agent that sends any bytes, in any pieces, with descriptors or without: the link says what it is, and ends. */
#include "proto/link.h"
#include "base/base.h"

#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct link l;
	int pair[2], fds[8] = { 0 }, r = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	link_init(&l, pair[0]);
	/* A byte says how much follows at once, and with how many descriptors. */
	while (size > 1 && r >= 0) {
		size_t n = 1 + (data[0] & 31U), nfds = data[0] >> 5;

		n = n < size - 1 ? n : size - 1;
		if (fd_send(pair[1], data + 1, n, fds, nfds) < 0)
			abort();
		data += n + 1;
		size -= n + 1;
		for (;;) {
			struct frame f;
			struct frame_failed failed;
			struct err e;
			int fd = -1;

			r = link_next(&l, 0, &f, &fd);
			if (r != 1)
				break;
			if (f.nfds == 0 && fd >= 0)
				abort();
			fd_close(fd);
			link_error(&f, "fuzz", &e, &failed);
		}
	}
	link_done(&l);
	close(pair[0]);
	close(pair[1]);
	return 0;
}
