/* Any messages of a guest at any moment: the host's end refuses or goes on, with bounded memory. */
#include "vm/carry.h"
#include "base/base.h"
#include "base/sys.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int ignore(void *arg, const struct mux *m)
{
	(void)arg;
	return m->type == MUX_START ? -EBADMSG : 0;
}

/* A host that has an exec under way: stdin, stdout, and a socket to a file worker. */
static void begin(int api)
{
	uint8_t head[FRAME_HEAD];
	int in[2], out[2], sock[2];

	if (sys_pipe2(in, O_CLOEXEC) < 0 || sys_pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0 ||
	    sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) < 0)
		abort();
	frame_head(head, FRAME_EXEC, 3, 1, 0);
	if (fd_send(api, head, sizeof(head), (int[]){ in[0], out[1], sock[1] }, 3) < 0)
		abort();
	fd_close_many((int[]){ in[0], in[1], out[0], out[1], sock[0], sock[1] }, 6);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t out[MUX_HEAD + 256];
	int port[2], ctl[2], r = 0;
	struct carry c;
	char drain[4096];

	if (sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, port) < 0 ||
	    sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ctl) < 0 ||
	    carry_init(&c, CARRY_HOST, port[0], ctl[0], 1) < 0)
		abort();
	signal(SIGPIPE, SIG_IGN); /* as cloche-vmm does */
	c.other = ignore;
	begin(ctl[1]);
	r = carry_turn(&c, NULL, 0, 0);
	/* Type, channel, length, then so many bytes: heads are right, or nothing would ever be reached. */
	while (r == 0 && size >= 3) {
		size_t len = data[2] < size - 3 ? data[2] : size - 3;

		mux_head(out, (enum mux_type)(data[0] % (MUX_FAILED + 1)), 1, data[1] % 8, (uint32_t)len);
		memcpy(out + MUX_HEAD, data + 3, len);
		send(port[1], out, MUX_HEAD + len, MSG_DONTWAIT | MSG_NOSIGNAL);
		r = carry_turn(&c, NULL, 0, 0);
		while (recv(port[1], drain, sizeof(drain), MSG_DONTWAIT) > 0 || recv(ctl[1], drain, sizeof(drain), MSG_DONTWAIT) > 0)
			;
		data += 3 + len;
		size -= 3 + len;
	}
	carry_done(&c);
	fd_close_many((int[]){ port[0], port[1], ctl[0], ctl[1] }, 4);
	return 0;
}
