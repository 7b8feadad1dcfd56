/* Any messages and frames of a guest at any moment: the host's end refuses or continues, with bounded memory. */
#include "base/base.h"
#include "base/sys.h"
#include "vm/vmm/kept.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int ignore(void *arg, const struct mux *m)
{
	(void)arg;
	return m->type == MUX_START ? -EBADMSG : 0;
}

/* A host that has execs under way, one kept and one with a terminal, and a socket to a file worker. */
static void begin(int api)
{
	static const char *const argv[] = { "x" };
	struct frame_exec x = { .flags = FRAME_EXEC_KEEP, .cwd = "/", .argc = 1, .argv = argv };
	uint8_t out[FRAME_HEAD + 128];
	int in[2], pipe[2], sock[2];
	long n;

	if (sys_pipe2(in, O_CLOEXEC) < 0 || sys_pipe2(pipe, O_CLOEXEC | O_NONBLOCK) < 0 ||
	    sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) < 0)
		abort();
	n = frame_exec_encode(&x, out + FRAME_HEAD, 128);
	frame_head(out, FRAME_EXEC, 5, 1, (uint32_t)n);
	if (fd_send(api, out, FRAME_HEAD + (size_t)n, (int[]){ in[0], pipe[1], pipe[1], pipe[0], pipe[0] }, 5) < 0)
		abort();
	x.flags |= FRAME_EXEC_TTY;
	n = frame_exec_encode(&x, out + FRAME_HEAD, 128);
	frame_head(out, FRAME_EXEC, 0, 2, (uint32_t)n);
	if (fd_send(api, out, FRAME_HEAD + (size_t)n, NULL, 0) < 0)
		abort();
	frame_head(out, FRAME_FILES, 1, 3, 0);
	if (fd_send(api, out, FRAME_HEAD, &sock[1], 1) < 0)
		abort();
	fd_close_many((int[]){ in[0], in[1], pipe[0], pipe[1], sock[0], sock[1] }, 6);
}

static void say(int port, enum mux_type type, uint32_t channel, const void *payload, size_t len)
{
	uint8_t out[MUX_HEAD + 256];

	mux_head(out, type, 1, channel, (uint32_t)len);
	memcpy(out + MUX_HEAD, payload, len);
	send(port, out, MUX_HEAD + len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void say_frame(int port, enum frame_type type, size_t len)
{
	uint8_t out[FRAME_HEAD + 8] = { 0 };

	frame_head(out, type, 0, 0, (uint32_t)len);
	say(port, MUX_DATA, 0, out, FRAME_HEAD + len);
}

/* What a machine's bytes are when it is loaded from them. */
static void load(struct kept *k, const uint8_t *data, size_t size)
{
	const struct mux_resume who = { .flags = size & 1 ? MUX_RESUME_DROP : 0 };

	if (kept_load(k, data, size) == 0)
		kept_resume(k, &who);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int port[2], ctl[2], r = 0;
	struct kept *k;
	struct carry c;
	char drain[4096];

	if (!size || sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, port) < 0 ||
	    sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ctl) < 0 ||
	    carry_init(&c, CARRY_HOST, port[0], -1, 1) < 0 || kept_new(&c, &k) < 0 || kept_attach(k, ctl[0], 0) < 0)
		return 0;
	signal(SIGPIPE, SIG_IGN); /* as cloche-vmm does */
	c.other = ignore;
	c.keeps = true;
	if (data[0] & 1) {
		load(k, data + 1, size - 1);
	} else {
		say_frame(port[1], FRAME_READY, 8);
		say_frame(port[1], FRAME_UP, 0);
		r = carry_turn(&c, NULL, 0, 0);
		begin(ctl[1]);
		if (data[0] & 2)
			carry_quiesce(&c);
	}
	for (unsigned i = 0; r == 0 && i < 3; i++)
		r = carry_turn(&c, NULL, 0, 0);
	data++;
	size--;
	/* Type, channel, length, then so many bytes: heads are right, or nothing would ever be reached. */
	while (r == 0 && size >= 3) {
		size_t len = data[2] < size - 3 ? data[2] : size - 3;

		say(port[1], (enum mux_type)(data[0] % (MUX_TYPE_LAST + 1)), data[1] % 8, data + 3, len);
		r = carry_turn(&c, NULL, 0, 0);
		while (recv(port[1], drain, sizeof(drain), MSG_DONTWAIT) > 0 ||
		       recv(ctl[1], drain, sizeof(drain), MSG_DONTWAIT) > 0)
			;
		data += 3 + len;
		size -= 3 + len;
	}
	kept_free(k);
	carry_done(&c);
	fd_close_many((int[]){ port[0], port[1], ctl[1] }, 3);
	return 0;
}
