/* Budgets, as streams feel them. */
#include "egress/egress_test.h"
#include "egress/tenant.h"

#include <sys/resource.h>

static struct world w;
static struct cell c;
static int server;
static uint16_t port;

static bool begin(struct egress_sandbox *b)
{
	static const struct egress_config config = {
		.resolver = "127.0.0.1:1", .hosts = 1, .host = { "server.test 127.0.0.1" }, .ca_file = ""
	};

	port = 0;
	server = server_begin("127.0.0.1", &port);
	b->mode = EGRESS_ALLOW;
	b->rules = 1;
	b->rule[0] = "server.test:*";
	b->privates = 1;
	b->private[0] = "127.0.0.1:*";
	return server >= 0 && world_begin(&w, &config) && cell_begin(&w, &c, b);
}

static bool finish(void)
{
	close(server);
	cell_end(&c);
	return world_end(&w);
}

static int dial(void)
{
	char addr[64];

	return cell_ask(&w, &c, "server.test", 1, addr) == 0 ? cell_dial(&w, &c, addr, port) : -1;
}

static bool ends(int fd)
{
	char buf[4096];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		;
	return n == 0 || errno == ECONNRESET;
}

TEST(past_the_bytes_streams_are_cut_and_new_ones_refused_with_the_reason)
{
	struct egress_sandbox b = { .budget.bytes_out = 1000 };
	static char bytes[600] = { 1 };
	char got[1200];
	int client, far;

	CHECK(begin(&b));
	client = dial();
	far = server_accept(server);
	CHECK_EQ(send(client, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
	CHECK_EQ(recv(far, got, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
	CHECK_EQ(send(client, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
	CHECK_EQ(recv(far, got, 400, MSG_WAITALL), 400);
	/* Not one byte more, though 200 were sent. */
	CHECK(recv(far, got, 1, 0) <= 0);
	CHECK(ends(client));
	close(client);
	close(far);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.verdict, EGRESS_V_CUT);
	CHECK_EQ(w.last.out, 1000);
	CHECK_CONTAINS(w.last.reason, "outgoing bytes");
	client = dial();
	CHECK(client >= 0 && ends(client));
	close(client);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.verdict, EGRESS_V_BUDGET);
	CHECK_CONTAINS(w.last.reason, "outgoing bytes");
	CHECK(finish());
}

TEST(more_connections_at_once_than_allowed_are_reset_and_not_left_waiting)
{
	struct egress_sandbox b = { .budget.concurrent = 2 };
	int client[2], far[2], third;

	CHECK(begin(&b));
	for (int i = 0; i < 2; i++) {
		client[i] = dial();
		far[i] = server_accept(server);
		CHECK(client[i] >= 0 && far[i] >= 0);
	}
	third = dial();
	CHECK(third >= 0);
	CHECK(ends(third));
	close(third);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.verdict, EGRESS_V_BUDGET);
	close(client[0]);
	CHECK(ends(far[0]));
	close(far[0]);
	CHECK(world_stream(&w, EGRESS_STREAM));
	third = dial();
	far[0] = server_accept(server);
	CHECK(third >= 0 && far[0] >= 0);
	CHECK(says(third, "\x01") && arrives(far[0], "\x01"));
	close(third);
	close(far[0]);
	close(client[1]);
	close(far[1]);
	CHECK(finish());
}

TEST(who_speaks_http_is_told_of_a_budget_that_is_used_up)
{
	struct egress_sandbox b = { .budget.connections = 1 };
	char got[2048];
	int fd;

	CHECK(begin(&b));
	fd = dial();
	close(server_accept(server));
	CHECK(fd >= 0 && ends(fd));
	close(fd);
	for (int i = 0; i < 2; i++) { /* at any port, and of the proxy */
		fd = i ? cell_dial(&w, &c, "198.18.0.1", 3128) : dial();
		CHECK(fd >= 0);
		CHECK(says(fd, i ? "CONNECT server.test:443 HTTP/1.1\r\n\r\n" :
				   "GET / HTTP/1.1\r\nHost: server.test\r\n\r\n"));
		memset(got, 0, sizeof(got));
		CHECK(recv(fd, got, sizeof(got) - 1, 0) > 0);
		CHECK_CONTAINS(got, "HTTP/1.1 429 Too Many Requests\r\n");
		CHECK_CONTAINS(got, "request a larger network budget");
		close(fd);
	}
	CHECK(finish());
}

TEST(a_tree_shares_its_budget)
{
	struct egress_sandbox b = { .tree = 99, .tree_budget.connections = 3 }, d;
	struct cell second;
	char addr[64];
	int fd;

	b.tree_counts.connections = 1; /* used before egress knew it */
	CHECK(begin(&b));
	d = b;
	CHECK(cell_begin(&w, &second, &d));
	fd = dial();
	CHECK(fd >= 0);
	close(server_accept(server));
	CHECK(ends(fd));
	close(fd);
	CHECK_EQ(cell_ask(&w, &second, "server.test", 1, addr), 0);
	fd = cell_dial(&w, &second, addr, port);
	CHECK(fd >= 0);
	close(server_accept(server));
	CHECK(ends(fd));
	close(fd);
	fd = dial();
	CHECK(fd >= 0 && ends(fd));
	close(fd);
	do
		CHECK(world_stream(&w, EGRESS_STREAM));
	while (w.last.verdict != EGRESS_V_BUDGET);
	CHECK_CONTAINS(w.last.reason, "tree");
	cell_end(&second);
	CHECK(finish());
}

TEST(queries_past_their_budget_are_refused)
{
	struct egress_sandbox b = { .budget.dns = 2 };
	char addr[64];

	CHECK(begin(&b));
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	CHECK_EQ(cell_ask(&w, &c, "other.test", 1, addr), 3);
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 5);
	CHECK(finish());
}

TEST(requests_to_a_host_within_a_minute_are_counted)
{
	struct egress_sandbox b = { .budget.requests = 2 };
	static const char get[] = "GET / HTTP/1.1\r\nHost: server.test\r\n\r\n";
	char got[1024] = "";
	int client, far, tries = 0;

	CHECK(begin(&b));
	do {
		client = dial();
		far = server_accept(server);
		CHECK(client >= 0 && far >= 0);
		CHECK(says(client, get));
		memset(got, 0, sizeof(got));
		if (recv(far, got, sizeof(get) - 1, MSG_WAITALL) == (ssize_t)sizeof(get) - 1) {
			CHECK(says(far, "HTTP/1.1 204 x\r\nConnection: close\r\n\r\n"));
			close(far);
			far = -1;
		}
		CHECK(recv(client, got, sizeof(got) - 1, 0) > 0);
		close(client);
		fd_close(far);
	} while (!strstr(got, " 429 ") && ++tries < 5);
	CHECK_EQ(tries, 2);
	CHECK_CONTAINS(got, "\"quota\"");
	CHECK(finish());
}

TEST(bandwidth_holds_streams_back_and_loses_nothing)
{
	struct egress_sandbox b = { .budget.bandwidth = 4000000 };
	static char bytes[3000000];
	uint64_t start;
	int client, far, status;
	double sec;
	pid_t pid;

	memset(bytes, 1, sizeof(bytes));
	CHECK(begin(&b));
	client = dial();
	far = server_accept(server);
	CHECK(client >= 0 && far >= 0);
	start = clock_mono_ns();
	pid = fork();
	if (pid == 0)
		_exit(fd_write_all(client, bytes, sizeof(bytes)) < 0);
	CHECK_EQ(recv(far, bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
	sec = (double)(clock_mono_ns() - start) / 1e9;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	printf("# 3 MB at 4 MB a second: %.2f s\n", sec);
	/* Half a megabyte comes at once, the rest at its pace. */
	CHECK(sec > 0.55 && sec < 8);
	close(client);
	close(far);
	CHECK(finish());
}

/* Each refusal is a record of a log that all share. */
TEST(who_makes_up_names_is_not_told_about_each)
{
	struct egress_sandbox b = { 0 };
	unsigned told = 0, others = 0;
	char name[64], addr[64];

	CHECK(begin(&b));
	for (unsigned i = 0; i < 900; i++) {
		snprintf(name, sizeof(name), "n%u.else.test", i);
		CHECK(cell_ask(&w, &c, name, 1, addr) > 0);
	}
	while (told + others < 900 && world_stream(&w, EGRESS_LOOKUP)) {
		if (strcmp(w.last.name, "*"))
			told += w.last.times;
		else
			others += w.last.times;
	}
	CHECK_EQ(told + others, 900);
	CHECK(told >= 256 && told < 500);
	CHECK(finish());
}

/*
 * The guest of a virtual machine answers itself which process has asked: one that does not answer must not delay the
 * queries of other sandboxes.
 */
TEST(a_sandbox_of_which_nobody_says_whose_a_question_was_is_not_asked_about_and_others_are)
{
	struct egress_sandbox b = { 0 };
	struct egress_who who = { 0 };
	struct cell silent;
	char addr[64];

	CHECK(begin(&b));
	CHECK(cell_begin(&w, &silent, &b));
	CHECK(silent.number != c.number);
	CHECK(cell_ask(&w, &silent, "one.else.test", 1, addr) > 0); /* late, without a word of ours */
	CHECK(world_await(&w, EGRESS_WHO) && egress_who_decode(&w.msg, &who) == 0 && who.sandbox == silent.number);
	CHECK(cell_ask(&w, &silent, "two.else.test", 1, addr) > 0);
	CHECK(cell_ask(&w, &c, "three.else.test", 1, addr) > 0);
	CHECK(world_await(&w, EGRESS_WHO) && egress_who_decode(&w.msg, &who) == 0 && who.sandbox == c.number);
	cell_end(&silent);
	CHECK(finish());
}

static bool may_open(pid_t pid, rlim_t most)
{
	struct rlimit l;

	if (prlimit(pid, RLIMIT_NOFILE, NULL, &l) < 0)
		return false;
	l.rlim_cur = most;
	return prlimit(pid, RLIMIT_NOFILE, &l, NULL) == 0;
}

/* A queue that is not emptied would keep egress awake for ever. */
TEST(without_descriptors_who_asks_is_told_and_later_answered)
{
	static const uint8_t query[] = "\0\35\1\2\1\0\0\1\0\0\0\0\0\0\6server\4test\0\0\1\0\1";
	struct egress_sandbox b = { 0 };
	char path[64], got[2 + 29 + 16];
	int fd, most = 0;

	CHECK(begin(&b));
	for (int i = 0; i < 64; i++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)w.pid, i);
		if (access(path, F_OK) == 0 || faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			most = i + 1;
	}
	CHECK(most > 4 && may_open(w.pid, (rlim_t)most));
	for (int i = 0; i < 3; i++) {
		fd = cell_dial(&w, &c, "198.18.0.1", 53);
		CHECK(fd >= 0 && ends(fd));
		close(fd);
		fd = cell_dial(&w, &c, "198.18.1.7", 80);
		CHECK(fd >= 0 && ends(fd));
		close(fd);
	}
	CHECK(may_open(w.pid, 256));
	fd = cell_dial(&w, &c, "198.18.0.1", 53);
	CHECK_EQ(send(fd, query, sizeof(query) - 1, 0), sizeof(query) - 1);
	CHECK_EQ(recv(fd, got, sizeof(got), MSG_WAITALL), sizeof(got));
	close(fd);
	CHECK(finish());
}

TEST(all_sandboxes_of_a_tenant_have_half_of_the_streams_and_ports)
{
	static struct egress g = { .files = 4000, .most = 4000, .ports = 28232 };
	struct tenant *one = tenant_get(&g, 1), *other = tenant_get(&g, 2), *alone = tenant_get(&g, 0);

	CHECK(one && other && alone && tenant_get(&g, 1) == one);
	for (; !tenant_full(&g, one) && one->streams < 4000; one->streams++)
		;
	CHECK(one->streams > 800 && one->streams <= egress_room(&g) / 2 + 1);
	CHECK(!tenant_full(&g, other));
	alone->streams = 4000; /* of `cloche run` */
	CHECK(!tenant_full(&g, alone));
	g.ports = 100;
	other->streams = 49;
	CHECK(!tenant_full(&g, other));
	other->streams = 50;
	CHECK(tenant_full(&g, other));
	tenant_put(&g, one);
	tenant_put(&g, one);
	tenant_put(&g, other);
	tenant_put(&g, alone);
	CHECK(!g.tenants);
}

TEST(who_has_many_streams_leaves_some_to_others)
{
	static struct egress g = { .files = 4000, .most = 4000 };

	CHECK(egress_share(&g) > 200);
	/* Sandbox after sandbox takes all it may have: there is always something left. */
	for (unsigned i = 0; i < 12; i++) {
		uint32_t mine = 0;

		for (; mine < egress_share(&g); mine++)
			g.streams++;
		CHECK(mine >= 40);
		CHECK(egress_share(&g) >= 40);
		CHECK(g.streams * 2 < 3500);
	}
}
