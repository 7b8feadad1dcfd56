/* Egress and its owners: names that come back, other sockets, modes; and operation without an owner. */
#include "egress/egress_test.h"
#include "egress/dns.h"

#include <sys/un.h>

static struct world w;
static struct cell c;
static int server;
static uint16_t port;
static const struct egress_config config = {
	.resolver = "127.0.0.1:1",
	.hosts = 2,
	.host = { "server.test 127.0.0.1", "other.test 127.0.0.1" },
	.ca_file = "",
};

static struct egress_sandbox sandbox(uint8_t mode, const char *rule)
{
	return (struct egress_sandbox){
		.mode = mode, .rules = rule != NULL, .rule = { rule }, .privates = 1, .private = { "127.0.0.1:*" }
	};
}

static bool begin(struct egress_sandbox *b)
{
	port = 0;
	server = server_begin("127.0.0.1", &port);
	return server >= 0 && world_begin(&w, &config) && cell_begin(&w, &c, b);
}

static bool finish(void)
{
	close(server);
	cell_end(&c);
	return world_end(&w);
}

TEST(names_that_a_sandbox_had_before_lead_where_they_did)
{
	struct egress_names n = { .n = 2, .name = { { 5, "server.test" }, { 9, "other.test" } } };
	struct egress_sandbox b = sandbox(EGRESS_ALLOW, "server.test:*");
	uint8_t packet[512];
	char addr[64];
	int client, far;
	long len;

	CHECK(begin(&b));
	n.sandbox = c.number;
	len = egress_names_encode(EGRESS_NAMES, &n, packet, sizeof(packet));
	CHECK_EQ(send(w.owner, packet, (size_t)len, 0), len);
	CHECK_EQ(cell_put(&w, &b, NULL, 0), 0);
	client = cell_dial(&w, &c, "198.18.1.5", port);
	CHECK(client >= 0);
	far = server_accept(server);
	CHECK(far >= 0);
	CHECK(says(client, "\x01") && arrives(far, "\x01"));
	close(client);
	close(far);
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	CHECK_STR(addr, "198.18.1.5");
	/* A name is known, but that is no reason to reach it. */
	client = cell_dial(&w, &c, "198.18.1.9", 443);
	CHECK(client >= 0);
	CHECK(recv(client, addr, 1, 0) < 0 && errno == ECONNRESET);
	close(client);
	client = cell_dial(&w, &c, "198.18.1.77", 443);
	CHECK(client >= 0);
	CHECK(recv(client, addr, 1, 0) < 0 && errno == ECONNRESET);
	close(client);
	CHECK(finish());
}

TEST(a_refused_request_in_plain_http_is_told_why)
{
	struct egress_sandbox b = sandbox(EGRESS_ALLOW, "server.test:443");
	char addr[64], got[2048] = "";
	int client;

	CHECK(begin(&b));
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	client = cell_dial(&w, &c, addr, 80);
	CHECK(client >= 0);
	CHECK(says(client, "GET / HTTP/1.1\r\nHost: server.test\r\n\r\n"));
	CHECK(recv(client, got, sizeof(got) - 1, 0) > 0);
	CHECK_CONTAINS(got, "HTTP/1.1 403 Forbidden\r\n");
	CHECK_CONTAINS(got, "\"code\":\"denied\"");
	CHECK_CONTAINS(got, "add 'server.test:80' to");
	CHECK_EQ(recv(client, got, 1, 0), 0);
	close(client);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_STR(w.last.rule, "server.test:80");
	CHECK_EQ(w.last.verdict, EGRESS_V_DENIED);
	CHECK(finish());
}

static bool tell(uint32_t seq)
{
	uint8_t packet[64];
	long n = egress_plain_encode(EGRESS_TELL, seq, c.number, 0, packet, sizeof(packet));

	return send(w.owner, packet, (size_t)n, 0) == n;
}

TEST(all_that_happened_is_told_before_the_word_that_it_was)
{
	struct egress_sandbox b = sandbox(EGRESS_ALLOW, "server.test:443");
	struct egress_they they = { .command = "curl", .pid = 42 };
	uint8_t packet[256];
	char addr[64], got[2048] = "";
	int client;
	long n;

	CHECK(begin(&b));
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	client = cell_dial(&w, &c, addr, 80);
	CHECK(says(client, "GET / HTTP/1.1\r\nHost: server.test\r\n\r\n"));
	CHECK(recv(client, got, sizeof(got) - 1, 0) > 0);
	close(client);
	/* The stream has ended, but its process is not known yet: the report waits for that, for a bounded time. */
	CHECK(tell(8) && tell(9) && world_await(&w, EGRESS_WHO));
	they.sandbox = c.number;
	n = egress_they_encode(&they, w.msg.seq, packet, sizeof(packet));
	CHECK_EQ(send(w.owner, packet, (size_t)n, 0), n);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.pid, 42);
	CHECK(world_await(&w, EGRESS_COUNTS)); /* as they are now */
	CHECK(world_await(&w, EGRESS_TOLD));
	CHECK_EQ(w.msg.seq, 9);
	CHECK_EQ(w.msg.sandbox, c.number);
	CHECK(tell(10) && world_await(&w, EGRESS_TOLD));
	CHECK_EQ(w.msg.seq, 10);
	CHECK(finish());
}

TEST(observing_tells_the_rule_that_each_stream_would_need)
{
	struct egress_sandbox b = sandbox(EGRESS_OBSERVE, NULL);
	char addr[64], want[64];
	int client, far;

	CHECK(begin(&b));
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	client = cell_dial(&w, &c, addr, port);
	far = server_accept(server);
	CHECK(client >= 0 && far >= 0);
	snprintf(want, sizeof(want), "server.test:%u", port);
	CHECK(world_stream(&w, EGRESS_SEEN)); /* while it lasts */
	CHECK_STR(w.last.rule, want);
	CHECK(says(client, "\x01") && arrives(far, "\x01"));
	close(client);
	close(far);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_STR(w.last.rule, want);
	CHECK_EQ(w.last.verdict, EGRESS_V_OK);
	CHECK(finish());
}

TEST(other_sockets_for_a_known_sandbox_take_the_place_of_the_old_ones)
{
	struct egress_sandbox b = sandbox(EGRESS_ALLOW, "server.test:*");
	struct steer_rules rules = { .mode = STEER_OPEN };
	struct err e = { 0 };
	int old, far, fds[STEER_SOCKETS], second, r;
	char addr[64];

	CHECK(begin(&b));
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	old = cell_dial(&w, &c, addr, port);
	far = server_accept(server);
	CHECK(old >= 0 && far >= 0);
	/* Of another namespace, as after a restore. */
	CHECK_EQ(unshare(CLONE_NEWNET), 0);
	close(c.netns);
	c.netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	r = ns_loopback_up() == 0 && steer_up(&rules, &e) == 0 ? steer_sockets(fds, &e) : -1;
	CHECK_EQ(setns(w.home, CLONE_NEWNET), 0);
	CHECK_EQ(r, 0);
	CHECK_EQ(cell_put(&w, &b, fds, EGRESS_SOCKETS), 0);
	for (int i = 0; i < STEER_SOCKETS; i++)
		close(fds[i]);
	CHECK(says(old, "\x01") && arrives(far, "\x01"));
	second = cell_dial(&w, &c, addr, port);
	CHECK(second >= 0);
	close(far);
	far = server_accept(server);
	CHECK(says(second, "\x01") && arrives(far, "\x01"));
	close(second);
	close(old);
	close(far);
	CHECK(finish());
}

TEST(sockets_that_are_not_what_they_should_be_are_refused)
{
	struct egress_sandbox b = sandbox(EGRESS_ALLOW, "server.test:*"), d = b;
	int pair[2], fds[EGRESS_SOCKETS], client;
	char addr[64];

	CHECK(begin(&b));
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	fds[0] = fds[1] = fds[2] = pair[0];
	d.sandbox = d.tree = 1000;
	CHECK_EQ(cell_put(&w, &d, fds, EGRESS_SOCKETS), EINVAL);
	CHECK_EQ(cell_put(&w, &d, fds, 2), EINVAL);
	CHECK_EQ(cell_put(&w, &d, NULL, 0), ENOENT);
	d = b;
	d.rule[0] = "127.1";
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	client = cell_dial(&w, &c, addr, port);
	CHECK(client >= 0);
	close(client);
	/* One that is known and gets a policy that makes no sense has none: not the one from before either. */
	CHECK_EQ(cell_put(&w, &d, NULL, 0), EINVAL);
	CHECK_EQ(cell_dial(&w, &c, addr, port), -1);
	CHECK_EQ(cell_put(&w, &b, NULL, 0), ENOENT);
	close(pair[0]);
	close(pair[1]);
	CHECK(finish());
}

TEST(dns_over_tcp_answers_each_query_and_not_too_many_connections)
{
	struct egress_sandbox b = sandbox(EGRESS_ALLOW, "server.test:*");
	static const uint8_t query[] = "\0\35\1\2\1\0\0\1\0\0\0\0\0\0\6server\4test\0\0\1\0\1";
	uint8_t got[2 + DNS_ANSWER_MAX];
	int fd[9];
	char byte;

	CHECK(begin(&b));
	for (int i = 0; i < 9; i++) {
		fd[i] = cell_dial(&w, &c, "198.18.0.1", 53);
		CHECK(fd[i] >= 0);
	}
	/* Two at once, the second in two pieces. */
	CHECK_EQ(send(fd[0], query, sizeof(query) - 1, 0), sizeof(query) - 1);
	CHECK_EQ(send(fd[0], query, 9, 0), 9);
	CHECK_EQ(recv(fd[0], got, 2 + 29 + 16, MSG_WAITALL), 2 + 29 + 16);
	CHECK(!memcmp(got + 2 + 29 + 12, "\306\22\1\0", 4));
	CHECK_EQ(send(fd[0], query + 9, sizeof(query) - 1 - 9, 0), sizeof(query) - 1 - 9);
	CHECK_EQ(recv(fd[0], got, 2 + 29 + 16, MSG_WAITALL), 2 + 29 + 16);
	CHECK(recv(fd[8], &byte, 1, 0) <= 0);
	CHECK_EQ(send(fd[1], "\377\377xx", 4, 0), 4);
	CHECK(recv(fd[1], &byte, 1, 0) <= 0);
	for (int i = 0; i < 9; i++)
		close(fd[i]);
	CHECK(finish());
}

TEST(what_is_injected_into_plain_http_is_added_on_the_way)
{
	struct egress_sandbox b = sandbox(EGRESS_ALLOW, "server.test:*");
	char addr[64], got[1024] = "";
	int client, far;

	port = 0;
	server = server_begin("127.0.0.1", &port);
	b.injects = 1;
	b.inject[0] = (struct egress_inject){ .kind = EGRESS_HEADER,
					      .tls = false,
					      .port = port,
					      .host = "server.test",
					      .field = "X-Token",
					      .value = "geheim",
					      .secret = "token" };
	CHECK(server >= 0 && world_begin(&w, &config) && cell_begin(&w, &c, &b));
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	client = cell_dial(&w, &c, addr, port);
	far = server_accept(server);
	CHECK(client >= 0 && far >= 0);
	CHECK(says(client, "GET / HTTP/1.1\r\nHost: server.test\r\nx-token: mine\r\nConnection: close\r\n\r\n"));
	CHECK(recv(far, got, sizeof(got) - 1, 0) > 0);
	CHECK_CONTAINS(got, "X-Token: geheim\r\n");
	CHECK(!strstr(got, "mine"));
	CHECK(says(far, "HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok"));
	CHECK(arrives(client, "HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok"));
	close(far);
	close(client);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_STR(w.last.secrets, "token");
	CHECK_EQ(w.last.requests, 1);
	CHECK(w.last.out > 0 && w.last.in > 0);
	CHECK(finish());
}

/* ---- without an owner -------------------------------------------------------------------------------------------- */

static struct sockaddr_un place;
static socklen_t place_len = sizeof(place);

static int join_as_owner(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	return connect(fd, (struct sockaddr *)&place, place_len) < 0 ? -1 : fd;
}

static bool begin_listening(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	long n;

	memset(&w, 0, sizeof(w));
	w.home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	place.sun_family = AF_UNIX;
	if (bind(fd, (struct sockaddr *)&place, sizeof(sa_family_t)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&place, &place_len) < 0 || listen(fd, 4) < 0)
		return false;
	w.pid = fork();
	if (w.pid == 0) {
		static struct egress g;
		int r = dup2(fd, 3) < 0 || close_range(4, ~0U, 0) < 0 ? -errno : egress_init(&g, 3, -1, NULL);

		while (r == 0)
			r = egress_turn(&g, -1);
		_exit(1);
	}
	close(fd);
	w.owner = join_as_owner();
	n = egress_config_encode(&config, w.packet, sizeof(w.packet));
	return w.owner >= 0 && send(w.owner, w.packet, (size_t)n, 0) == n;
}

TEST(without_an_owner_streams_go_on_and_the_next_one_hears_of_them)
{
	struct egress_sandbox b = sandbox(EGRESS_ALLOW, "server.test:*");
	uint8_t packet[64];
	char addr[64];
	int client, far, second, far2;
	long n;

	port = 0;
	server = server_begin("127.0.0.1", &port);
	CHECK(server >= 0 && begin_listening() && cell_begin(&w, &c, &b));
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	client = cell_dial(&w, &c, addr, port);
	far = server_accept(server);
	CHECK(client >= 0 && far >= 0);
	close(w.owner);
	CHECK(says(client, "\x01") && arrives(far, "\x01"));
	second = cell_dial(&w, &c, addr, port);
	far2 = server_accept(server);
	CHECK(second >= 0 && far2 >= 0);
	CHECK(says(second, "\x01") && arrives(far2, "\x01"));
	close(second);
	CHECK(recv(far2, addr, 1, 0) <= 0);
	close(far2);
	w.owner = join_as_owner();
	CHECK(world_await(&w, EGRESS_HELLO));
	CHECK_EQ(w.msg.arg, 0);
	CHECK(world_await(&w, EGRESS_HAVE));
	CHECK_EQ(w.msg.sandbox, c.number);
	CHECK(world_await(&w, EGRESS_HAVE));
	CHECK_EQ(w.msg.sandbox, 0);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_STR(w.last.name, "server.test");
	CHECK(says(client, "\x01") && arrives(far, "\x01"));
	/* Those that the new owner does not name are closed. */
	n = egress_plain_encode(EGRESS_KEEP, 0, 0, 0, packet, sizeof(packet));
	CHECK_EQ(send(w.owner, packet, (size_t)n, 0), n);
	CHECK(recv(client, addr, 1, 0) < 0 && errno == ECONNRESET);
	close(client);
	close(far);
	close(server);
	cell_end(&c);
	close(w.owner);
	close(w.home);
	kill(w.pid, SIGKILL);
	waitpid(w.pid, NULL, 0);
}

TEST(a_killed_egress_is_a_broken_connection_and_never_a_short_one)
{
	struct egress_sandbox b = sandbox(EGRESS_ALLOW, "server.test:*");
	char addr[64], byte;
	int client, far;

	CHECK(begin(&b));
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	client = cell_dial(&w, &c, addr, port);
	far = server_accept(server);
	CHECK(client >= 0 && far >= 0);
	CHECK(says(client, "\x01") && arrives(far, "\x01"));
	CHECK(says(far, "half") && arrives(client, "half"));
	kill(w.pid, SIGKILL);
	CHECK(recv(client, &byte, 1, 0) < 0 && errno == ECONNRESET);
	CHECK(recv(far, &byte, 1, 0) < 0 && errno == ECONNRESET);
	close(client);
	close(far);
	/* The sandbox has no other path. Its sockets are closed when egress is dead, not before. */
	CHECK_EQ(waitid(P_PID, (id_t)w.pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	CHECK(cell_dial(&w, &c, addr, port) < 0);
	CHECK_EQ(errno, ECONNREFUSED);
	CHECK(!finish());
}
