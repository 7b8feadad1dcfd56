/* The link, against a socket at the other end that says what egress says. */
#include "service/link/egress_link.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct {
	char path[64];
	int listener, place, peer;
	uv_loop_t loop;
	struct egress_link *link;
	unsigned have, downs, messages;
	bool all;
	uint8_t last;
	uint64_t sandbox;
} k;

static void have(void *arg, uint64_t sandbox)
{
	(void)arg;
	if (sandbox)
		k.have++;
	else
		k.all = true;
}

static void down(void *arg)
{
	(void)arg;
	k.downs++;
	k.all = false;
}

static void message(void *arg, const struct egress_msg *m)
{
	(void)arg;
	k.messages++;
	k.last = m->type;
	k.sandbox = m->sandbox;
}

static bool listen_anew(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", k.path);
	k.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return bind(k.listener, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(k.listener, 8) == 0;
}

static bool begin(void)
{
	static const struct egress_link_user u = { .have = have, .down = down, .message = message };
	struct err e;

	memset(&k, 0, sizeof(k));
	snprintf(k.path, sizeof(k.path), "/tmp/cloche-elink-%d", (int)getpid());
	if (!listen_anew() || uv_loop_init(&k.loop) < 0)
		return false;
	k.place = open(k.path, O_PATH | O_CLOEXEC);
	return k.place >= 0 && egress_link_new(&k.loop, k.place, &u, &k.link, &e) == 0;
}

static void say(enum egress_type type, uint64_t sandbox)
{
	uint8_t out[64];
	long n = egress_plain_encode(type, 0, sandbox, 0, out, sizeof(out));

	(void)!send(k.peer, out, (size_t)n, 0);
}

/* It connects by itself: now, or in a moment. */
static void await(void)
{
	k.peer = -1;
	for (int i = 0; i < 10000 && k.peer < 0; i++) {
		uv_run(&k.loop, UV_RUN_NOWAIT);
		k.peer = accept4(k.listener, NULL, NULL, SOCK_CLOEXEC);
		if (k.peer < 0)
			usleep(1000);
	}
}

static void meet(void)
{
	await();
	say(EGRESS_HELLO, 0);
	say(EGRESS_HAVE, 5);
	say(EGRESS_HAVE, 0);
}

/* Turns until @is, for ten seconds at most. */
#define UNTIL(is)                                                                                                      \
	for (int i_ = 0; i_ < 10000 && !(is); i_++) {                                                                  \
		uv_run(&k.loop, UV_RUN_NOWAIT);                                                                        \
		if (!(is))                                                                                             \
			usleep(1000);                                                                                  \
	}                                                                                                              \
	CHECK(is)

static void over(void)
{
	egress_link_free(k.link);
	uv_run(&k.loop, UV_RUN_DEFAULT);
	CHECK_EQ(uv_loop_close(&k.loop), 0);
	close(k.listener);
	close(k.peer);
	close(k.place);
	unlink(k.path);
}

TEST(it_tells_what_egress_has_and_carries_messages_with_descriptors)
{
	uint8_t out[64], in[64];
	int pipes[2], got[4];
	size_t n = 0;
	ssize_t len;
	long made;

	CHECK(begin());
	meet();
	UNTIL(k.all);
	CHECK_EQ(k.have, 1);
	CHECK(egress_link_up(k.link));
	say(EGRESS_GONE, 9);
	UNTIL(k.messages == 1);
	CHECK_EQ(k.last, EGRESS_GONE);
	CHECK_EQ(k.sandbox, 9);
	CHECK_EQ(pipe2(pipes, O_CLOEXEC), 0);
	made = egress_plain_encode(EGRESS_KEEP, 3, 0, 0, out, sizeof(out));
	egress_link_send(k.link, out, (size_t)made, pipes, 2);
	CHECK_EQ(pipes[0], -1); /* they are the link's, and sent already */
	len = fd_recv(k.peer, in, sizeof(in), got, 4, &n);
	CHECK_EQ(len, made);
	CHECK_EQ(n, 2);
	fd_close_many(got, n);
	over();
}

TEST(it_comes_back_when_egress_does)
{
	CHECK(begin());
	meet();
	UNTIL(k.all);
	close(k.peer);
	UNTIL(k.downs == 1);
	CHECK(!egress_link_up(k.link));
	meet();
	UNTIL(k.all);
	CHECK_EQ(k.downs, 1);
	CHECK_EQ(k.have, 2);
	over();
}

TEST(nonsense_ends_the_connection_and_not_the_process)
{
	CHECK(begin());
	meet();
	UNTIL(k.all);
	(void)!send(k.peer, "nonsense", 8, 0);
	UNTIL(k.downs == 1);
	close(k.peer);
	await();
	say(EGRESS_HAVE, 0); /* without HELLO */
	close(k.peer);
	meet();
	UNTIL(k.all);
	over();
}

/* More than the socket takes: it waits for room, in order, and nothing is lost. */
TEST(what_does_not_fit_is_sent_later)
{
	static uint8_t out[EGRESS_MSG_MAX], in[EGRESS_MSG_MAX];
	unsigned got = 0;
	struct egress_msg m;
	long n;

	CHECK(begin());
	meet();
	UNTIL(k.all);
	for (uint32_t i = 1; i <= 500; i++) {
		n = egress_plain_encode(EGRESS_GONE, i, i, 0, out, sizeof(out));
		CHECK(n > 0);
		egress_link_send(k.link, out, (size_t)n, NULL, 0);
	}
	for (int i = 0; got < 500 && i < 10000; i++) {
		ssize_t len = recv(k.peer, in, sizeof(in), MSG_DONTWAIT);

		uv_run(&k.loop, UV_RUN_NOWAIT);
		if (len < 0) {
			usleep(100);
			continue;
		}
		CHECK_EQ(egress_decode(in, (size_t)len, &m), 0);
		CHECK_EQ(m.seq, ++got);
	}
	CHECK_EQ(got, 500);
	over();
}
