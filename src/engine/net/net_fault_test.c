/* A sandbox's way out, made in this process while any one call fails: it is whole, or there is no sandbox. */
#include "engine/sandbox/sandbox.h"
#include "base/base.h"
#include "base/pidfd.h"
#include "base/test.h"
#include "engine/kernel_memory/looks.h"
#include "warden/warden_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/stat.h>

#ifdef CLOCHE_FAULTS
static const enum sys_id calls[] = { SYSID_unshare, SYSID_setns, SYSID_ioctl, SYSID_sendmsg, SYSID_recvmsg };

static ino_t our_net(void)
{
	struct stat st;

	return stat("/proc/thread-self/ns/net", &st) < 0 ? 0 : st.st_ino;
}

static int dial(const char *to, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, to, &a.sin_addr);
	return connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
}

/* Seen from inside: what is allowed leads to the listener, what is not is refused. */
static bool whole(const struct warden_sandbox *s, int listener)
{
	AUTO_CLOSE int here = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	bool ok = setns(warden_pidfd(s), CLONE_NEWNET) == 0;
	int in;

	ok = ok && dial("198.18.1.1", 80) == 0 && dial("9.9.9.9", 80) == -ECONNREFUSED;
	in = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ok = ok && in >= 0;
	fd_close(in);
	return setns(here, CLONE_NEWNET) == 0 && ok;
}

static struct warden *open_warden(void)
{
	char agent[512];
	struct warden_opts o = { .looker = &kernel_looker_threads, .env.agent = agent };
	struct warden *w = NULL;
	struct err e = { 0 };

	if (!wt_program("cloche-agent", agent, sizeof(agent)) || warden_new(&o, &w, &e) < 0)
		printf("# %s\n", e.msg);
	return w;
}

TEST(a_create_that_fails_anywhere_leaves_nothing_and_one_that_does_not_is_whole)
{
	const ino_t net = our_net();
	unsigned failed = 0, made = 0, fds;
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct warden *w = open_warden();

	CHECK(w);
	wt_spec(&spec);
	spec.flags |= SPEC_NET;
	spec.net.mode = STEER_ALLOW;
	fds = wt_fds(getpid());
	/* Not setns: that is the return. A thread that cannot return reports it, and no more can be done. */
	for (size_t c = 0; c < ARRAY_LEN(calls); c++)
		for (unsigned nth = 1; nth <= 12 && calls[c] != SYSID_setns; nth++) {
			unsigned before = sys_test_count(calls[c]);
			struct warden_sandbox *s = NULL;
			int r, way[STEER_SOCKETS];

			sys_test_fail(calls[c], ENOMEM, nth);
			r = warden_create(w, &spec, &s, &e);
			sys_test_fail(calls[c], 0, 0);
			CHECK_EQ(our_net(), net);
			if (r < 0) {
				failed++;
				CHECK_EQ(wt_fds(getpid()), fds);
				CHECK(e.msg[0]);
				continue;
			}
			made++;
			warden_net_sockets(s, way);
			CHECK(way[0] >= 0 && way[1] >= 0 && way[2] >= 0);
			/* An agent that could not start has sent the reason, which the caller reads from its socket. */
			CHECK(whole(s, way[STEER_TCP]) || pidfd_ended(warden_pidfd(s)));
			fd_close_many(way, STEER_SOCKETS);
			CHECK_EQ(warden_destroy(w, s, &e), 0);
			CHECK_EQ(wt_fds(getpid()), fds);
			if (sys_test_count(calls[c]) < before + nth)
				break;
		}
	printf("# %u failed, %u did all the same\n", failed, made);
	CHECK(failed >= 8);
	warden_free(w);
}

TEST(a_change_that_fails_anywhere_leaves_the_rules_that_were)
{
	const struct steer_rules none = { .mode = STEER_NONE };
	struct steer_rules was;
	const ino_t net = our_net();
	unsigned failed = 0, fds;
	struct warden_sandbox *s;
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct warden *w = open_warden();
	int way[STEER_SOCKETS];

	CHECK(w);
	wt_spec(&spec);
	spec.flags |= SPEC_NET;
	spec.net.mode = STEER_ALLOW;
	was = spec.net;
	CHECK_EQ(warden_create(w, &spec, &s, &e), 0);
	warden_net_sockets(s, way);
	poll(NULL, 0, 500); /* the watch has opened by then what it looks at the sandbox by */
	fds = wt_fds(getpid());
	/* Of setns not the second, as above. */
	for (size_t c = 1; c < ARRAY_LEN(calls); c++)
		for (unsigned nth = 1; nth <= (calls[c] == SYSID_setns ? 1 : 2); nth++) {
			struct steer_denied d[STEER_DENIED];
			int r, fd = -1;

			sys_test_fail(calls[c], ENOMEM, nth);
			r = warden_net(w, s, &none, NULL, &e);
			sys_test_fail(calls[c], 0, 0);
			CHECK_EQ(our_net(), net);
			CHECK_EQ(wt_fds_wait(getpid(), fds), fds);
			failed += r < 0;
			/*
			 * A failure before the kernel was asked: nothing has changed. After that, the change may have
			 * been made.
			 */
			if (r < 0 && calls[c] != SYSID_recvmsg)
				CHECK(whole(s, way[STEER_TCP]));
			CHECK_EQ(warden_net(w, s, &was, NULL, &e), 0);
			CHECK(whole(s, way[STEER_TCP]));
			/* And the others. */
			sys_test_fail(calls[c], ENOMEM, nth);
			r = warden_socket(w, s, 4, &fd, &e);
			sys_test_fail(calls[c], 0, 0);
			fd_close(fd);
			CHECK(r == 0 || fd < 0);
			sys_test_fail(calls[c], ENOMEM, nth);
			warden_denied(w, s, d, &e);
			sys_test_fail(calls[c], 0, 0);
			CHECK_EQ(our_net(), net);
			CHECK_EQ(wt_fds(getpid()), fds);
		}
	CHECK(failed >= 3);
	fd_close_many(way, STEER_SOCKETS);
	CHECK_EQ(warden_destroy(w, s, &e), 0);
	warden_free(w);
}
#endif
