#include "memory/socket_guard.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct socket_guard g;
static int at[2];

static void begin(void)
{
	AUTO_CLOSE int self = sys_pidfd_open(getpid(), 0);
	struct err e = { 0 };

	CHECK(self >= 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, at), 0);
	if (socket_guard_start(&g, self, &e) < 0)
		TEST_FAIL("%s", e.msg);
}

static int offset(void)
{
	int v;
	socklen_t len = sizeof(v);

	return getsockopt(at[0], SOL_SOCKET, SO_PEEK_OFF, &v, &len) < 0 ? -errno : v;
}

TEST(what_a_guard_changes_it_sets_back)
{
	begin();
	CHECK_EQ(socket_guard_change(&g, GUARD_PEEK, at[0]), 0);
	CHECK_EQ(offset(), 0);
	CHECK_EQ(socket_guard_undo_peek(&g, at[0]), 0);
	CHECK_EQ(offset(), -1);
	CHECK_EQ(socket_guard_change(&g, GUARD_PEEK, at[0]), 0);
	socket_guard_stop(&g);
	CHECK_EQ(offset(), -1);
	fd_close_many(at, 2);
}

TEST(a_guard_has_one_right_and_a_filter)
{
	char path[64], text[4096];

	begin();
	CHECK_EQ(socket_guard_change(&g, GUARD_CRED, at[0]), getpid());
	snprintf(path, sizeof(path), "/proc/%d/status", (int)g.pid);
	CHECK(fd_get(AT_FDCWD, path, text, sizeof(text)) > 0);
	CHECK_CONTAINS(text, "CapPrm:\t0000000000001000\n");
	CHECK_CONTAINS(text, "CapEff:\t0000000000001000\n");
	CHECK_CONTAINS(text, "NoNewPrivs:\t1\n");
	CHECK_CONTAINS(text, "Seccomp:\t2\n");
	socket_guard_stop(&g);
	fd_close_many(at, 2);
}

TEST(what_a_killed_guard_changed_is_set_back)
{
	begin();
	CHECK_EQ(socket_guard_change(&g, GUARD_PEEK, at[0]), 0);
	CHECK_EQ(kill(g.pid, SIGKILL), 0);
	CHECK_EQ(socket_guard_undo_peek(&g, at[0]), -EOWNERDEAD);
	CHECK_EQ(offset(), -1);
	socket_guard_stop(&g);
	fd_close_many(at, 2);
}
