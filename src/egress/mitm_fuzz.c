/*
 * A stranger's bytes into a stream with something injected, in pieces, and a server that answers: all the server gets is
 * whole requests for its own name, each with the value once, and nothing stays when it is over.
 */
#include "egress/mitm.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "egress/request.h"

#define NAME "a.test"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct loop loop;
static struct inject *inject;
static bool over;

static bool moved(void *arg, size_t out, size_t in)
{
	(void)arg, (void)out, (void)in;
	return true;
}

static void ended(void *arg, uint8_t verdict, const char *reason)
{
	(void)arg, (void)verdict;
	assert(reason && !strstr(reason, "s3cret"));
	over = true;
}

static int count(void *arg, const char *data, const struct head_field *f)
{
	unsigned *n = arg;

	if (head_field_is(data, f, "x-key")) {
		assert(f->value_len == 6 && !memcmp(data + f->value, "s3cret", 6));
		++*n;
	}
	return 0;
}

/* What came to the server. */
static void check(char *data, size_t len, bool upgraded)
{
	struct request q = { 0 };
	enum request_step step;
	const char *why = "";
	struct head h;
	size_t n;

	while (len) {
		step = request_step(&q, data, len, &h, &n, &why);
		if (step == REQUEST_MORE || step == REQUEST_LAST)
			return; /* cut off by its end */
		if (step == REQUEST_WAIT) {
			request_answer(&q, upgraded ? "HTTP/1.1 101 x" : "HTTP/1.1 200 x", 14);
			continue;
		}
		assert(step == REQUEST_HEAD || step == REQUEST_BODY);
		if (step == REQUEST_HEAD) {
			unsigned keys = 0;

			assert(!strcmp(h.host.name, NAME) && !h.absolute && !h.connect);
			head_each(data, &h, count, &keys);
			assert(keys == 1);
		}
		data += n;
		len -= n;
	}
}

static void start(void)
{
	const struct egress_inject i = { EGRESS_HEADER, false, 80, NAME, "X-Key", "s3cret", "K", 0, 0 };

	signal(SIGPIPE, SIG_IGN);
	if (loop_init(&loop) < 0 || inject_new(&i, 1, NULL, &inject, NULL) < 0)
		abort();
}

static size_t take(int fd, char *to, size_t have, size_t max)
{
	ssize_t n = recv(fd, to + have, max - have, MSG_DONTWAIT);

	return n > 0 ? have + (size_t)n : have;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct mitm_ops ops = { .moved = moved, .ended = ended };
	static char got[256 * 1024];
	int client[2], server[2];
	struct mitm *m = NULL;
	size_t first, len = 0;
	bool upgraded;

	if (!inject)
		start();
	if (size < 3 || size > 60000)
		return 0;
	upgraded = data[0] & 1;
	first = (size_t)(data[0] << 8 | data[1]) % (size - 1);
	data += 2;
	size -= 2;
	if (first > size)
		first = size;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, client) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, server) < 0)
		abort();
	over = false;
	if (mitm_new(&(struct mitm_opts){ .loop = &loop,
					  .client = client[0],
					  .name = NAME,
					  .port = 80,
					  .inject = inject,
					  .ops = &ops },
		     &m, NULL) < 0)
		abort();
	(void)send(client[1], data, first, MSG_NOSIGNAL);
	loop_turn(&loop, 0);
	if (!over)
		mitm_connected(m, server[0], NULL);
	else
		fd_close(server[0]);
	loop_turn(&loop, 0);
	len = take(server[1], got, len, sizeof(got));
	(void)send(server[1], upgraded ? "HTTP/1.1 101 x\r\n\r\n" : "HTTP/1.1 200 x\r\n\r\n", 18, MSG_NOSIGNAL);
	loop_turn(&loop, 0);
	(void)send(client[1], data + first, size - first, MSG_NOSIGNAL);
	shutdown(client[1], SHUT_WR);
	for (int i = 0; i < 20 && !over; i++) {
		loop_turn(&loop, 0);
		len = take(server[1], got, len, sizeof(got));
		if (i == 10)
			shutdown(server[1], SHUT_WR);
	}
	len = take(server[1], got, len, sizeof(got));
	check(got, len, upgraded);
	if (!over)
		mitm_free(m);
	loop_turn(&loop, 0);
	assert(!loop.timers);
	fd_close(client[1]);
	fd_close(server[1]);
	return 0;
}
