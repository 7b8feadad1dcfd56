/* Frames from a stranger: the bytes follow a proper handshake. */
#include "http/conn.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char upgrade[] = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
			      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
static struct ws *ws;
static unsigned gone_calls;

static void message(void *arg, bool text, const uint8_t *data, size_t len)
{
	(void)arg;
	assert(len <= 5000 && !gone_calls && ws);
	assert(!text || utf8_valid((const char *)data, len));
	if (len && data[0] == 'p')
		ws_pause(ws);
	if (len && data[0] == 'c') {
		ws_close(ws, 1000, "bye");
		ws = NULL;
	} else {
		ws_send(ws, text, &(struct http_piece){ data, len }, 1);
	}
}

static void gone(void *arg)
{
	(void)arg;
	gone_calls++;
	ws = NULL;
}

static void request(void *arg, struct http_req *q)
{
	static const struct ws_calls calls = { .message = message, .gone = gone, .max = 5000 };

	(void)arg;
	if (ws_accept(q, &calls, NULL, &ws) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct http_server *s;
	static uv_loop_t loop;
	static char back[1 << 16];
	int fds[2];

	if (!s) {
		uv_loop_init(&loop);
		if (http_server_new(&(struct http_opts){ .loop = &loop, .request = request }, &s, NULL) < 0)
			abort();
	}
	if (size > 60000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return 0;
	gone_calls = 0;
	ws = NULL;
	if (conn_new(s, fds[0], false, "unix", 0) < 0)
		abort();
	(void)send(fds[1], upgrade, sizeof(upgrade) - 1, MSG_NOSIGNAL);
	uv_run(&loop, UV_RUN_NOWAIT);
	if (!ws)
		abort();
	(void)send(fds[1], data, size, MSG_NOSIGNAL);
	uv_run(&loop, UV_RUN_NOWAIT);
	for (unsigned i = 0; i < 5 && ws; i++) {
		ws_resume(ws);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	while (recv(fds[1], back, sizeof(back), MSG_DONTWAIT) > 0)
		uv_run(&loop, UV_RUN_NOWAIT);
	fd_close(fds[1]);
	for (unsigned i = 0; i < 10 && http_server_conns(s); i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	assert(!http_server_conns(s) && gone_calls <= 1 && !ws);
	return 0;
}
