/* The network of real sandboxes, made by the real warden: destinations, leftovers, owners of connections. */
#include "engine/blank/alone.h"
#include "engine/sandbox/sandbox.h"
#include "base/base.h"
#include "base/test.h"
#include "engine/kernel_memory/looks.h"
#include "layers/seal_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>

/* Connects there, says how it went, and stays open until a line comes. */
#define TRY                                                                                                            \
	"import socket,sys\n"                                                                                          \
	"def t(a, p):\n"                                                                                               \
	"    s = socket.socket(socket.AF_INET6 if ':' in a else socket.AF_INET)\n"                                     \
	"    s.settimeout(5)\n"                                                                                        \
	"    try: s.connect((a, p)); return s\n"                                                                       \
	"    except OSError as e: return type(e).__name__ if e.errno else str(e)\n"

struct box {
	struct client_sandbox s;
	struct kt_peer p;
	uint32_t execs;
};

static struct steer_rules allow(void)
{
	struct steer_rules r = { .mode = STEER_ALLOW, .n = 1 };

	r.rule[0] = (struct steer_rule){ .family = 4, .prefix = 24, .first = 80, .last = 80, .addr = { 203, 0, 113 } };
	return r;
}

static void net_spec(struct sandbox_spec *spec, const struct steer_rules *r)
{
	wt_spec(spec);
	if (r) {
		spec->flags |= SPEC_NET;
		spec->net = *r;
	}
}

static bool make(struct wt *w, const struct steer_rules *r, struct box *b)
{
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	net_spec(&spec, r);
	b->execs = 0;
	if (client_create(w->client, &spec, &b->s, &e) < 0) {
		printf("# create: %s; %s\n", e.msg, e.remedy);
		return false;
	}
	kt_open(&b->p, TAKE_FD(b->s.sock));
	return kt_wait(&b->p, FRAME_UP, 0, &f, fds);
}

static bool end(struct wt *w, struct box *b)
{
	struct err e = { 0 };
	bool ok = client_destroy(w->client, b->s.handle, &e) == 0;

	kt_close(&b->p);
	client_sandbox_done(&b->s);
	return ok;
}

/* A Python program inside, and what it prints. */
static bool says(struct box *b, const char *program, const char *want)
{
	char script[3000];
	struct kt_pipes x;
	bool ok;

	snprintf(script, sizeof(script), "exec python3 -u - 2>&1 <<'END'\n" TRY "%s\nEND", program);
	ok = kt_exec(&b->p, ++b->execs, script, -1, &x) && kt_reads(x.out, want) && kt_exited(&b->p, b->execs, 0);
	kt_pipes_close(&x);
	return ok;
}

static bool wait_in(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 10000) == 1;
}

/* Takes one connection of the listener: its destination, and its source. */
static int take(int listener, struct warden_who *ret)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct sockaddr_in6 a, b;
	socklen_t len = sizeof(a);
	int fd;

	if (!wait_in(listener))
		return -1;
	fd = accept4(listener, (struct sockaddr *)&b, &len, SOCK_CLOEXEC);
	len = sizeof(a);
	if (fd < 0 || getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		return -1;
	*ret = (struct warden_who){ .family = 6, .client_port = ntohs(b.sin6_port), .port = ntohs(a.sin6_port) };
	memcpy(ret->client, &b.sin6_addr, 16);
	memcpy(ret->addr, &a.sin6_addr, 16);
	if (!memcmp(ret->addr, mapped, 12)) {
		ret->family = 4;
		memset(ret->client, 0, 16);
		memset(ret->addr, 0, 16);
		memcpy(ret->client, b.sin6_addr.s6_addr + 12, 4);
		memcpy(ret->addr, a.sin6_addr.s6_addr + 12, 4);
	}
	return fd;
}

/* What a namespace has, by a process in it. */
static bool plain(struct box *b)
{
	AUTO_CLOSE int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	char routes[4096] = "", addrs[4096] = "";
	bool ok;

	if (setns(b->s.pidfd, CLONE_NEWNET) < 0)
		return false;
	ok = fd_get(AT_FDCWD, "/proc/thread-self/net/fib_trie", routes, sizeof(routes)) > 0 &&
	     fd_get(AT_FDCWD, "/proc/thread-self/net/if_inet6", addrs, sizeof(addrs)) > 0;
	ok = ok && !strstr(routes, "198.18") && !strstr(routes, "0.0.0.0/0 host") && !strstr(addrs, "fd63");
	return setns(here, CLONE_NEWNET) == 0 && ok;
}

TEST(a_sandbox_with_a_network_gives_its_sockets_and_one_without_has_nothing)
{
	static const char *const more[] = { "--pool", "1", NULL };
	struct steer_rules r = allow();
	struct warden_who who;
	struct box a, b;
	struct wt w;
	int fd;

	CHECK(wt_open(&w, more));
	CHECK(make(&w, &r, &a));
	CHECK(a.s.net[0] >= 0 && a.s.net[1] >= 0 && a.s.net[2] >= 0);
	CHECK(says(&a, "t('203.0.113.9', 80); t('198.18.1.0', 443); print(t('203.0.113.9', 81), t('2001:db8::1', 80))",
		   "ConnectionRefusedError ConnectionRefusedError"));
	fd = take(a.s.net[STEER_TCP], &who);
	CHECK(fd >= 0 && who.family == 4 && who.port == 80 && !memcmp(who.addr, (uint8_t[]){ 203, 0, 113, 9 }, 4));
	fd_close(fd);
	fd = take(a.s.net[STEER_TCP], &who);
	CHECK(fd >= 0 && who.port == 443 && !memcmp(who.addr, (uint8_t[]){ 198, 18, 1, 0 }, 4));
	fd_close(fd);
	CHECK(says(&a, "print(open('/etc/resolv.conf').read().split()[1])", "198.18.0.1"));
	CHECK(make(&w, NULL, &b));
	CHECK(b.s.net[0] < 0 && b.s.net[1] < 0 && b.s.net[2] < 0);
	CHECK(plain(&b));
	CHECK(says(&b, "print(t('203.0.113.9', 80))", "OSError"));
	CHECK(end(&w, &a) && end(&w, &b));
	CHECK_EQ(wt_stop(&w), 0);
}

TEST(rules_are_replaced_while_it_runs_and_sockets_made_anew_once_the_old_ones_are_gone)
{
	static const char *const more[] = { "--pool", "2", NULL };
	struct steer_rules r = allow(), open_all = { .mode = STEER_OPEN };
	struct steer_denied d[STEER_DENIED];
	int again[STEER_SOCKETS];
	struct err e = { 0 };
	struct warden_who who;
	struct box a, b;
	struct wt w;

	CHECK(wt_open(&w, more));
	CHECK(make(&w, &r, &a));
	CHECK(says(&a, "print(t('9.9.9.9', 853), t('9.9.9.9', 853), t('2001:db8::9', 1))",
		   "ConnectionRefusedError ConnectionRefusedError ConnectionRefusedError"));
	CHECK_EQ(client_denied(w.client, a.s.handle, d, &e), 1); /* port 1 was not asked for again */
	CHECK(d[0].family == 4 && d[0].port == 853 && d[0].count == 2 &&
	      !memcmp(d[0].addr, (uint8_t[]){ 9, 9, 9, 9 }, 4));
	CHECK_EQ(client_net(w.client, a.s.handle, &open_all, NULL, &e), 0);
	CHECK(says(&a, "t('9.9.9.9', 853); print('sent')", "sent"));
	fd_close(take(a.s.net[STEER_TCP], &who));
	CHECK_EQ(who.port, 853);
	/* While a process has the old sockets there are no new ones; afterwards there are. */
	CHECK(client_net(w.client, a.s.handle, &open_all, again, &e) < 0);
	CHECK_EQ(e.kind, ERR_CONFLICT);
	fd_close_many(a.s.net, STEER_SOCKETS);
	CHECK(says(&a, "print(t('9.9.9.9', 853), t('198.18.2.2', 80))",
		   "ConnectionRefusedError ConnectionRefusedError"));
	CHECK_EQ(client_net(w.client, a.s.handle, &r, again, &e), 0);
	CHECK(says(&a, "t('203.0.113.1', 80); print(t('9.9.9.9', 853))", "ConnectionRefusedError"));
	fd_close(take(again[STEER_TCP], &who));
	CHECK_EQ(who.port, 80);
	fd_close_many(again, STEER_SOCKETS);
	/* One made without has no rules to be changed; but it can be given a way out. */
	CHECK(make(&w, NULL, &b));
	CHECK(client_net(w.client, b.s.handle, &r, NULL, &e) < 0);
	CHECK_EQ(e.kind, ERR_CONFLICT);
	CHECK_EQ(client_denied(w.client, b.s.handle, d, &e), 0);
	CHECK_EQ(client_net(w.client, b.s.handle, &r, again, &e), 0);
	CHECK(says(&b, "t('203.0.113.1', 80); print(t('9.9.9.9', 853))", "ConnectionRefusedError"));
	fd_close(take(again[STEER_TCP], &who));
	CHECK_EQ(who.port, 80);
	CHECK_EQ(client_net(w.client, b.s.handle, &open_all, NULL, &e), 0);
	CHECK_EQ(client_freeze(w.client, b.s.handle, &e), 0);
	CHECK_EQ(client_thaw(w.client, b.s.handle, &e), 0);
	fd_close_many(again, STEER_SOCKETS);
	CHECK_EQ(client_net(w.client, b.s.handle, &r, again, &e), 0);
	fd_close_many(again, STEER_SOCKETS);
	CHECK(end(&w, &a) && end(&w, &b));
	CHECK_EQ(wt_stop(&w), 0);
}

TEST(whose_connection_it_is_can_be_told)
{
	static const char *const more[] = { "--pool", "1", NULL };
	static const struct {
		const char *to;
		uint16_t port;
	} cases[] = { { "203.0.113.5", 80 }, { "fd63:6c6f:6368:65::1:5", 443 }, { "::ffff:198.18.1.9", 443 } };
	struct steer_rules r = allow();
	struct socket_owner they;
	struct err e = { 0 };
	struct warden_who who;
	struct box b;
	struct wt w;

	CHECK(wt_open(&w, more));
	CHECK(make(&w, &r, &b));
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char script[1600], want[32];
		struct kt_pipes x;
		int fd;

		snprintf(
			script, sizeof(script),
			"exec python3 -u -c \"%simport os; s = t('%s', %u); print('pid', os.getpid(), s); input()\" odd\\\\33name 2>&1",
			TRY, cases[i].to, cases[i].port);
		CHECK(kt_exec(&b.p, ++b.execs, script, -1, &x));
		fd = take(b.s.net[STEER_TCP], &who);
		CHECK(fd >= 0);
		CHECK_EQ(client_who(w.client, b.s.handle, &who, &they, &e), 0);
		CHECK(they.pid > 1);
		CHECK(!strncmp(they.command, "python3 -u -c ", 14));
		snprintf(want, sizeof(want), "pid %u ", they.pid);
		CHECK(kt_reads(x.out, want));
		/* A connection that does not exist has no owner. */
		who.client_port ^= 1;
		CHECK_EQ(client_who(w.client, b.s.handle, &who, &they, &e), 0);
		CHECK(they.pid == 0 && !they.command[0]);
		CHECK_EQ(write(x.in, "\n", 1), 1);
		CHECK(kt_exited(&b.p, b.execs, 0));
		kt_pipes_close(&x);
		fd_close(fd);
	}
	CHECK(end(&w, &b));
	CHECK_EQ(wt_stop(&w), 0);
}

TEST(a_socket_inside_reaches_what_listens_there_with_or_without_a_network)
{
	static const char *const more[] = { "--pool", "1", NULL };
	struct steer_rules r = { .mode = STEER_NONE };
	struct err e = { 0 };
	struct wt w;

	CHECK(wt_open(&w, more));
	for (int net = 0; net < 2; net++) {
		struct sockaddr_in a = { .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
					 .sin_port = htons(8000) };
		struct sockaddr_in6 b6 = { .sin6_family = AF_INET6,
					   .sin6_addr = IN6ADDR_LOOPBACK_INIT,
					   .sin6_port = htons(8001) };
		struct kt_pipes x;
		struct box b;
		char c = 0;
		int fd;

		CHECK(make(&w, net ? &r : NULL, &b));
		CHECK(kt_exec(
			&b.p, ++b.execs,
			"exec python3 -u -c 'import socket\n"
			"l = socket.create_server((\"127.0.0.1\", 8000))\n"
			"m = socket.create_server((\"::1\", 8001), family=socket.AF_INET6)\n"
			"print(\"up\"); c, _ = l.accept(); c.send(b\"4\"); c, _ = m.accept(); c.send(b\"6\")' 2>&1",
			-1, &x));
		CHECK(kt_reads(x.out, "up"));
		CHECK_EQ(client_socket(w.client, b.s.handle, 4, &fd, &e), 0);
		CHECK(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 || errno == EINPROGRESS);
		CHECK(wait_in(fd) && read(fd, &c, 1) == 1 && c == '4');
		fd_close(fd);
		CHECK_EQ(client_socket(w.client, b.s.handle, 6, &fd, &e), 0);
		CHECK(connect(fd, (struct sockaddr *)&b6, sizeof(b6)) == 0 || errno == EINPROGRESS);
		CHECK(wait_in(fd) && read(fd, &c, 1) == 1 && c == '6');
		fd_close(fd);
		kt_pipes_close(&x);
		CHECK(end(&w, &b));
	}
	CHECK_EQ(wt_stop(&w), 0);
}

/* The pool makes ready what was asked last, and keeps namespaces: each gets exactly what it asked for all the same. */
TEST(whatever_the_pool_had_ready_each_gets_its_own_rules_or_none)
{
	static const char *const more[] = { "--pool", "3", NULL };
	struct steer_rules want[4] = { allow(), { .mode = STEER_OPEN }, { .mode = STEER_NONE } };
	struct wt w;

	CHECK(wt_open(&w, more));
	for (unsigned i = 0; i < 40; i++) {
		/* In runs, so that it learns, and mixed. */
		const unsigned kind = i < 24 ? i / 6 : i % 4;
		struct box b;

		CHECK(make(&w, kind == 3 ? NULL : &want[kind], &b));
		if (kind == 3)
			CHECK(plain(&b));
		if (kind == 3 || i % 2) {
			CHECK(end(&w, &b)); /* unused: its namespace serves again */
			continue;
		}
		CHECK(says(&b,
			   "s = t('203.0.113.1', 80), t('9.9.9.9', 80), t('198.18.1.1', 80)\n"
			   "print(*(x if isinstance(x, str) else 'yes' for x in s))",
			   kind == 0 ? "yes ConnectionRefusedError yes" :
			   kind == 1 ? "yes yes yes" :
				       "ConnectionRefusedError ConnectionRefusedError ConnectionRefusedError"));
		CHECK(end(&w, &b));
	}
	CHECK_EQ(wt_stop(&w), 0);
}

/*
 * The process that carries the last sandbox's streams may be slow to close them: the next sandbox never shares sockets
 * with it.
 */
TEST(sockets_that_somebody_still_holds_serve_nobody_else)
{
	static const char *const more[] = { "--pool", "2", NULL };
	struct steer_rules r = allow();
	int held[8];
	struct wt w;

	CHECK(wt_open(&w, more));
	for (unsigned i = 0; i < ARRAY_LEN(held); i++) {
		struct warden_who who;
		struct box b;

		CHECK(make(&w, &r, &b));
		held[i] = TAKE_FD(b.s.net[STEER_TCP]);
		if (i % 2) {
			CHECK(says(&b, "t('198.18.1.1', 80); print('sent')", "sent"));
			fd_close(take(held[i], &who));
		}
		for (unsigned k = 0; k < i; k++)
			CHECK(accept(held[k], NULL, NULL) < 0 && errno == EAGAIN);
		CHECK(end(&w, &b));
	}
	fd_close_many(held, ARRAY_LEN(held));
	CHECK_EQ(wt_stop(&w), 0);
}

TEST(the_next_warden_can_do_all_of_it_for_a_sandbox_it_took_over)
{
	struct steer_rules r = allow(), open_all = { .mode = STEER_OPEN };
	struct steer_denied d[STEER_DENIED];
	struct warden_receipt receipt;
	struct socket_owner they;
	struct warden_who who;
	int again[STEER_SOCKETS], fd;
	struct err e = { 0 };
	struct kt_pipes x;
	uint64_t found = 0;
	struct frame f;
	struct box b;
	struct wt w;
	int fds[8];

	kt_fresh();
	CHECK(wt_open(&w, kt_args()));
	CHECK(make(&w, &r, &b));
	CHECK(says(&b, "print(t('9.9.9.9', 853))", "ConnectionRefusedError"));
	kt_close(&b.p);
	fd_close_many(b.s.net, STEER_SOCKETS);
	kt_crash(&w);

	CHECK(wt_open(&w, kt_args()));
	CHECK(client_next(w.client, 0, &found, &receipt, &e) == 0 && found == b.s.handle);
	CHECK_EQ(client_denied(w.client, found, d, &e), 1);
	CHECK_EQ(client_net(w.client, found, &open_all, again, &e), 0);
	client_sandbox_done(&b.s);
	CHECK_EQ(client_attach(w.client, found, &b.s, &e), 0);
	kt_open(&b.p, TAKE_FD(b.s.sock));
	CHECK(kt_wait(&b.p, FRAME_READY, 0, &f, fds) && kt_wait(&b.p, FRAME_UP, 0, &f, fds));
	CHECK(kt_exec(&b.p, 50, "exec python3 -c \"" TRY "s = t('9.9.9.9', 853); input()\"", -1, &x));
	fd = take(again[STEER_TCP], &who);
	CHECK(fd >= 0 && who.port == 853);
	CHECK_EQ(client_who(w.client, found, &who, &they, &e), 0);
	CHECK(they.pid > 1 && !strncmp(they.command, "python3", 7));
	fd_close(fd);
	CHECK_EQ(client_socket(w.client, found, 4, &fd, &e), 0);
	fd_close(fd);
	kt_pipes_close(&x);
	fd_close_many(again, STEER_SOCKETS);
	CHECK(end(&w, &b));
	CHECK(kt_settled(&w));
	CHECK_EQ(wt_stop(&w), 0);
	kt_remove_state();
}

/* Root inside has its capabilities, none of them here: what is below 1024 is not its own either. */
TEST(root_inside_can_not_take_the_ports_nor_the_rules)
{
	static const char *const more[] = { "--pool", "1", NULL };
	static const char program[] =
		"import os\n"
		"def p(*a):\n"
		"    try: a[0](*a[1:]); return 'yes'\n"
		"    except OSError: return 'no'\n"
		"s = socket.socket(socket.AF_INET6)\n"
		"r = [p(s.bind, ('::', 1)), p(s.bind, ('::', 53)), p(s.setsockopt, 0, 19, 1), p(s.setsockopt, 41, 75, 1),\n"
		"     p(s.setsockopt, 1, 36, 1), p(socket.socket, 2, 3, 6), p(socket.socket, 17, 3, 0),\n"
		"     p(lambda: open('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'w').write('0'))]\n"
		"print(os.getuid(), *r)";
	struct steer_rules r = allow();
	const char *argv[] = { "/usr/bin/python3", "-u", "-c", NULL }, *envp[] = { "PATH=/usr/bin:/bin" };
	struct frame_exec x = {
		.flags = FRAME_EXEC_KEEP | FRAME_EXEC_STDIN,
		.cwd = "/",
		.argc = 4,
		.envc = 1,
		.argv = argv,
		.envp = envp,
	};
	int in[2], out[2];
	uint8_t buf[4096];
	char text[2000];
	struct box b;
	struct wt w;
	long len;

	CHECK(wt_open(&w, more));
	CHECK(make(&w, &r, &b));
	fd_close_many(b.s.net, STEER_SOCKETS); /* no listener: the ports are free */
	snprintf(text, sizeof(text), "%s%s", TRY, program);
	argv[3] = text;
	len = frame_exec_encode(&x, buf, sizeof(buf));
	CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	CHECK(len > 0 && kt_send(&b.p, FRAME_EXEC, 1, buf, (size_t)len,
				 (int[]){ in[0], out[1], out[1], out[0], out[0], in[1] }, 6));
	fd_close(in[0]);
	fd_close(out[1]);
	CHECK(kt_reads(out[0], "0 no no no no no no no no"));
	fd_close(in[1]);
	fd_close(out[0]);
	CHECK(end(&w, &b));
	CHECK_EQ(wt_stop(&w), 0);
}

/* Streams to the outside are reset in a copy, as by a failing network; in the source they continue. */
TEST(a_sandbox_is_sealed_with_memory_while_streams_are_open_and_its_copy_finds_them_reset)
{
	static const char program[] =
		"exec python3 -u -c \"" TRY "import select, errno\n"
		"a, b, n = t('198.18.1.1', 80), t('fd63:6c6f:6368:65::1:2', 443), t('203.0.113.2', 80)\n"
		"n.setblocking(False)\n"
		"p = select.epoll(); p.register(n.fileno(), select.EPOLLIN)\n"
		"print('open')\n"
		"while True:\n"
		"    input(); r = []\n"
		"    ready = len(p.poll(0))\n"
		"    for s in (a, b, n):\n"
		"        s.settimeout(0.05 if s is not n else 0)\n"
		"        try: r.append(s.recv(9).decode() or 'end')\n"
		"        except OSError as e: r.append(errno.errorcode.get(e.errno, 'timeout'))\n"
		"    print('got', ready, *r)\n"
		"    c = t('198.18.1.3', 80)\n"
		"    print('new', c if isinstance(c, str) else 'yes')\n\" 2>&1";
	struct steer_rules r = allow();
	struct sandbox_spec spec;
	struct client_layer l;
	struct warden_who who;
	struct kt_held held[2];
	struct err e = { 0 };
	struct st_box a, b;
	struct kt_pipes x;
	char id[ID_SIZE];
	uint64_t pause;
	struct wt w;
	int fd[3];

	st_fresh();
	CHECK(wt_open(&w, st_args()));
	net_spec(&spec, &r);
	CHECK(st_create(&w, &spec, &a));
	CHECK(kt_exec(&a.p, 1, program, -1, &x));
	for (unsigned i = 0; i < 3; i++) {
		fd[i] = take(a.s.net[STEER_TCP], &who);
		CHECK(fd[i] >= 0);
	}
	CHECK(kt_reads(x.out, "open"));
	CHECK_EQ(write(fd[1], "unread", 6), 6); /* can be read in the copy, too, before the reset */
	id_new(id, sizeof(id));
	if (client_seal_memory(w.client, a.s.handle, id, &l, &pause, &e) < 0)
		TEST_FAIL("%s", e.msg);
	st_stand_on(&spec, id);
	spec.flags |= SPEC_MEMORY;
	CHECK(st_create(&w, &spec, &b));
	CHECK(b.s.net[0] >= 0 && b.s.net[1] >= 0 && b.s.net[2] >= 0);
	CHECK_EQ(kt_sync(&b.p, held, 2), 1);
	CHECK_EQ(write(held[0].pipes.in, "\n", 1), 1);
	CHECK(kt_reads(held[0].pipes.out, "got 1 ECONNRESET unread ECONNRESET\nnew yes"));
	fd_close(take(b.s.net[STEER_TCP], &who));
	CHECK_EQ(who.port, 80);
	/* The source has felt nothing. */
	CHECK_EQ(write(fd[0], "first", 5), 5);
	CHECK_EQ(write(x.in, "\n", 1), 1);
	CHECK(kt_reads(x.out, "got 0 first unread EAGAIN\nnew yes"));
	fd_close_many(fd, 3);
	kt_pipes_close(&held[0].pipes);
	kt_pipes_close(&x);
	CHECK(st_end(&w, &a) && st_end(&w, &b));
	CHECK(st_stop(&w));
}

/* A resolv.conf of the image is left alone, until the sandbox has a network. */
TEST(in_any_image_the_resolver_is_found)
{
	static const char *const had[] = {
		"mkdir etc; ln -s ../run/systemd/resolve/stub-resolv.conf etc/resolv.conf",
		"mkdir etc; echo nameserver 10.0.0.1 > etc/resolv.conf",
		"mkdir etc",
		"true",
	};
	char dir[64], cmd[400], path[64], text[256];

	snprintf(dir, sizeof(dir), "/var/tmp/cloche-net-image-%d", (int)getpid());
	for (size_t i = 0; i < 2 * ARRAY_LEN(had); i++) {
		const char *more[] = { "--pool", "1", "--images", dir, NULL };
		struct steer_rules r = allow();
		struct sandbox_spec spec;
		struct st_box b;
		struct wt w;

		snprintf(cmd, sizeof(cmd), "rm -rf %s && mkdir -p %s/i && cd %s/i && %s", dir, dir, dir, had[i / 2]);
		CHECK_EQ(st_shell(cmd), 0);
		CHECK(wt_open(&w, more));
		net_spec(&spec, &r);
		spec.flags |= i % 2 ? SPEC_READ_ONLY : 0;
		snprintf(spec.image, sizeof(spec.image), "%s/i", dir);
		CHECK(st_create(&w, &spec, &b));
		snprintf(path, sizeof(path), "/proc/%d/root/etc/resolv.conf", (int)wt_pid(b.s.pidfd));
		CHECK(fd_get(AT_FDCWD, path, text, sizeof(text)) > 0);
		CHECK_STR(text, STEER_RESOLV_CONF);
		CHECK(st_end(&w, &b));
		CHECK_EQ(wt_stop(&w), 0);
	}
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	st_shell(cmd);
}

/* In this process, as an ordinary user: what `cloche run` does without root. 0, or the line it failed at. */
static int rootless(const char *cache, const char *agent)
{
	struct warden_opts o = { .looker = &kernel_looker_threads,
				 .env.one_shot = true,
				 .env.alone = &env_alone,
				 .env.image_fill = image_fill_here,
				 .env.cache = cache };
	struct steer_rules r = allow();
	struct steer_denied d[STEER_DENIED];
	struct socket_owner they = { 0 };
	struct warden_sandbox *s;
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct warden_who who;
	struct warden *w;
	struct frame f;
	struct box b = { 0 };
	struct kt_pipes x;
	int fds[8], fd;

	if (setgid(65534) < 0 || setuid(65534) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return __LINE__;
	o.env.agent = agent;
	net_spec(&spec, &r);
	memset(&spec.limits, 0, sizeof(spec.limits)); /* which need groups */
	if (warden_new(&o, &w, &e) < 0 || warden_create(w, &spec, &s, &e) < 0) {
		printf("# %s; %s\n", e.msg, e.remedy);
		return __LINE__;
	}
	warden_net_sockets(s, b.s.net);
	kt_open(&b.p, warden_sock(s));
	if (!kt_wait(&b.p, FRAME_UP, 0, &f, fds) || b.s.net[0] < 0 || b.s.net[1] < 0 || b.s.net[2] < 0)
		return __LINE__;
	if (!says(&b, "print(t('203.0.113.9', 81), t('2001:db8::1', 80))",
		  "ConnectionRefusedError ConnectionRefusedError"))
		return __LINE__;
	if (!kt_exec(&b.p, 9, "exec python3 -c \"" TRY "s = t('203.0.113.9', 80); input()\"", -1, &x))
		return __LINE__;
	fd = take(b.s.net[STEER_TCP], &who);
	if (fd < 0 || who.port != 80)
		return __LINE__;
	if (warden_who(w, s, &who, &they, &e) < 0 || they.pid < 2 || strncmp(they.command, "python3 -c", 10) != 0) {
		printf("# %s\n", e.msg);
		return __LINE__;
	}
	if (warden_denied(w, s, d, &e) != 2)
		return __LINE__;
	kt_pipes_close(&x);
	fd_close(fd);
	fd_close_many(b.s.net, STEER_SOCKETS);
	/* No user inside, not even the one that it is mapped to, can bind the ports that are free now. */
	if (!says(&b,
		  "def p(*a):\n"
		  "    try: a[0](*a[1:]); return 'yes'\n"
		  "    except OSError: return 'no'\n"
		  "s = socket.socket(socket.AF_INET6); print(p(s.bind, ('::', 1)), p(s.bind, ('::', 53)), p(s.setsockopt, 41, 75, 1))",
		  "no no no"))
		return __LINE__;
	warden_free(w);
	return 0;
}

TEST(without_root_it_is_the_same)
{
	char cache[64], program[512], agent[96], cmd[1024];
	int status = -1;
	pid_t pid;

	snprintf(cache, sizeof(cache), "/var/tmp/cloche-net-test-%d", (int)getpid());
	CHECK(mkdir(cache, 0700) == 0 && chown(cache, 65534, 65534) == 0);
	/* The build may be in a folder that only root can enter. */
	CHECK(wt_program("cloche-agent", program, sizeof(program)));
	snprintf(agent, sizeof(agent), "%s/agent", cache);
	snprintf(cmd, sizeof(cmd), "install -m 755 '%s' %s", program, agent);
	st_shell(cmd);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int line = rootless(cache, agent);

		if (line)
			printf("# %s:%d\n", __FILE__, line);
		fflush(stdout);
		_exit(line != 0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", cache);
	st_shell(cmd);
	CHECK_EQ(status, 0);
}
