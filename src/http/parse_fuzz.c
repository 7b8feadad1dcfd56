/* Bytes from a stranger, in two pieces, through a real connection: head, body, pipelining, end. */
#include "http/conn.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "base/utf8.h"
#include "http/router.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void gone(void *arg)
{
	(*(unsigned *)arg)++;
}

static void whole(void *arg, const char *data, size_t len)
{
	http_send(arg, 200, "text/plain", data, len);
}

static void piece(void *arg, const char *p, size_t len)
{
	http_write(arg, p, len);
}

static void end(void *arg)
{
	http_end(arg);
}

static void request(void *arg, struct http_req *q)
{
	const char *name, *value;

	http_set_gone(q, gone, arg);
	for (size_t i = 0; i < http_segments(q); i++) {
		assert(*http_segment(q, i) && !strchr(http_segment(q, i), '/'));
		assert(strcmp(http_segment(q, i), "..") != 0);
	}
	for (size_t i = 0; i < http_query_count(q); i++) {
		http_query_at(q, i, &name, &value);
		assert(utf8_valid(name, strlen(name)) && utf8_valid(value, strlen(value)));
	}
	assert(!http_header(q, "content-length") || !http_header(q, "transfer-encoding"));
	switch (http_method(q)) {
	case HTTP_M_POST:
		http_read_body(q, 1000, whole, q);
		break;
	case HTTP_M_PUT:
		http_begin(q, 200, "text/plain", -1);
		http_stream_body(q, piece, end, q);
		break;
	case HTTP_M_DELETE:
		http_cut(q);
		break;
	case HTTP_M_GET:
	case HTTP_M_HEAD:
	case HTTP_M_PATCH:
	case HTTP_M_OTHER:
		http_send(q, 200, "text/plain", http_path(q), strlen(http_path(q)));
		break;
	}
}

/* Whatever went in, what comes out starts as an answer. */
static void drain(int fd)
{
	static char back[1 << 16];
	ssize_t n = recv(fd, back, sizeof(back) - 1, MSG_DONTWAIT);

	assert(n <= 0 || (n > 12 && !memcmp(back, "HTTP/1.1 ", 9)));
	while (n > 0)
		n = recv(fd, back, sizeof(back), MSG_DONTWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct http_server *s;
	static uv_loop_t loop;
	static unsigned told;
	size_t first;
	int fds[2];

	if (!s) {
		uv_loop_init(&loop);
		if (http_server_new(&(struct http_opts){ .loop = &loop, .request = request, .arg = &told }, &s, NULL) <
		    0)
			abort();
	}
	if (!size || size > 60000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return 0;
	if (conn_new(s, fds[0], false, "unix", 0) < 0)
		abort();
	first = (size_t)data[0] % size;
	(void)send(fds[1], data + 1, first, MSG_NOSIGNAL);
	uv_run(&loop, UV_RUN_NOWAIT);
	if (size > first + 1)
		(void)send(fds[1], data + 1 + first, size - 1 - first, MSG_NOSIGNAL);
	shutdown(fds[1], SHUT_WR);
	uv_run(&loop, UV_RUN_NOWAIT);
	uv_run(&loop, UV_RUN_NOWAIT);
	drain(fds[1]);
	fd_close(fds[1]);
	for (unsigned i = 0; i < 10 && http_server_conns(s); i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	assert(!http_server_conns(s));
	return 0;
}
