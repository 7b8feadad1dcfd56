/* Names by a real resolver: a DNS server of the test's own, on loopback. And servers that do not answer. */
#include "egress/egress_test.h"

static struct world w;
static struct cell c;
static int server, dns;
static uint16_t port;
static pid_t dns_pid;

/* a.test: 127.0.0.1. both.test: also 127.0.0.3, which does not answer. rebind.test: 127.0.0.1, then 10.0.0.1. */
static size_t answer(const uint8_t *q, size_t len, uint8_t *out, unsigned asked)
{
	static const uint8_t good[4] = { 127, 0, 0, 1 }, bad[4] = { 10, 0, 0, 1 }, dead[4] = { 127, 0, 0, 3 };
	const uint8_t *list[2] = { NULL, NULL };
	const char *name = (const char *)q + 13;
	size_t end = 12, n;
	unsigned k = 0;

	while (q[end])
		end += q[end] + 1U;
	end += 5;
	memcpy(out, q, end);
	memset(out + 4, 0, 8);
	out[2] = 0x81;
	out[3] = 0x80;
	out[5] = 1;
	(void)len;
	if (q[end - 3] == 1) {
		if (!memcmp(name, "a\4test", 6))
			list[0] = good;
		else if (!memcmp(name, "both\4test", 9))
			list[0] = dead, list[1] = good;
		else if (!memcmp(name, "rebind\4test", 11))
			list[0] = asked ? bad : good;
		else if (!memcmp(name, "in\4test", 7))
			list[0] = bad;
		else
			out[3] = 0x83;
	} else if (!memcmp(name, "none\4test", 9)) {
		out[3] = 0x83;
	}
	for (n = end; k < 2 && list[k]; k++) {
		memcpy(out + n, "\300\14\0\1\0\1\0\0\0\0\0\4", 12); /* not to be kept */
		memcpy(out + n + 12, list[k], 4);
		n += 16;
	}
	out[7] = (uint8_t)k;
	return n;
}

static void serve_dns(void)
{
	unsigned asked = 0;

	for (;;) {
		uint8_t q[512], out[1024];
		struct sockaddr_in from;
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(dns, q, sizeof(q), 0, (struct sockaddr *)&from, &len);
		size_t k;

		if (n < 17)
			continue;
		k = answer(q, (size_t)n, out, asked);
		/* Both families are asked; only one counts. */
		if (!memcmp(q + 13, "rebind", 6) && out[7])
			asked++;
		sendto(dns, out, k, 0, (struct sockaddr *)&from, len);
	}
}

static bool begin(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct egress_config config = { .ca_file = "" };
	struct egress_sandbox b = { .mode = EGRESS_ALLOW,
				    .rules = 1,
				    .rule = { "*.test:*" },
				    .privates = 2,
				    .private = { "127.0.0.1:*", "127.0.0.3:*" } };
	socklen_t len = sizeof(a);
	char resolver[32];

	dns = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (bind(dns, (struct sockaddr *)&a, sizeof(a)) < 0 || getsockname(dns, (struct sockaddr *)&a, &len) < 0)
		return false;
	dns_pid = fork();
	if (dns_pid == 0)
		serve_dns();
	close(dns);
	snprintf(resolver, sizeof(resolver), "127.0.0.1:%u", ntohs(a.sin_port));
	config.resolver = resolver;
	port = 0;
	server = server_begin("127.0.0.1", &port);
	return server >= 0 && world_begin(&w, &config) && cell_begin(&w, &c, &b);
}

static bool finish(void)
{
	kill(dns_pid, SIGKILL);
	waitpid(dns_pid, NULL, 0);
	close(server);
	cell_end(&c);
	return world_end(&w);
}

static int dial(const char *name)
{
	char addr[64];

	return cell_ask(&w, &c, name, 1, addr) == 0 ? cell_dial(&w, &c, addr, port) : -1;
}

static bool is_reset(int client)
{
	char byte;

	return recv(client, &byte, 1, 0) < 0 && errno == ECONNRESET;
}

TEST(names_are_asked_of_the_resolver_when_a_stream_begins)
{
	int client, far;

	CHECK(begin());
	client = dial("a.test");
	CHECK(client >= 0);
	/* Its bytes wait for the answer. */
	CHECK(says(client, "\1early"));
	far = server_accept(server);
	CHECK(far >= 0);
	CHECK(arrives(far, "\1early"));
	close(client);
	close(far);
	client = dial("none.test");
	CHECK(client >= 0);
	CHECK(is_reset(client));
	close(client);
	do
		CHECK(world_stream(&w, EGRESS_STREAM));
	while (strcmp(w.last.name, "none.test"));
	CHECK_EQ(w.last.verdict, EGRESS_V_FAILED);
	CHECK_STR(w.last.reason, "the name does not exist");
	CHECK(finish());
}

TEST(a_name_that_is_bound_anew_to_a_private_address_is_refused_then)
{
	int client, far;

	CHECK(begin());
	client = dial("rebind.test");
	far = server_accept(server);
	CHECK(client >= 0 && far >= 0);
	close(client);
	close(far);
	client = dial("rebind.test");
	CHECK(client >= 0);
	CHECK(is_reset(client));
	close(client);
	do
		CHECK(world_stream(&w, EGRESS_STREAM));
	while (w.last.verdict != EGRESS_V_DENIED);
	CHECK_CONTAINS(w.last.reason, "10.0.0.1, a private address");
	CHECK(finish());
}

TEST(an_address_that_does_not_answer_does_not_hold_up_the_next)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int dead, filler[4], client, far;
	uint64_t start;

	CHECK(begin());
	/* A listener whose queue is full drops what comes. */
	dead = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	to.sin_port = htons(port);
	inet_pton(AF_INET, "127.0.0.3", &to.sin_addr);
	CHECK_EQ(bind(dead, (struct sockaddr *)&to, sizeof(to)), 0);
	CHECK_EQ(listen(dead, 0), 0);
	for (int i = 0; i < 4; i++) {
		filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)!connect(filler[i], (struct sockaddr *)&to, sizeof(to));
	}
	start = clock_mono_ns();
	client = dial("both.test");
	CHECK(client >= 0);
	far = server_accept(server);
	CHECK(far >= 0);
	CHECK(says(client, "\x01") && arrives(far, "\x01"));
	/* A quarter of a second, and not the twenty that one is waited for. */
	CHECK(clock_mono_ns() - start < 8 * LOOP_SEC);
	close(client);
	close(far);
	for (int i = 0; i < 4; i++)
		close(filler[i]);
	close(dead);
	CHECK(finish());
}

TEST(a_client_that_leaves_while_its_name_is_asked_for_harms_nobody)
{
	int client, far;

	CHECK(begin());
	for (int i = 0; i < 50; i++) {
		client = dial(i % 2 ? "a.test" : "in.test");
		CHECK(client >= 0);
		close(client);
	}
	client = dial("a.test");
	CHECK(client >= 0 && says(client, "\x01last"));
	for (;;) {
		char got[8] = "";

		far = server_accept(server);
		CHECK(far >= 0);
		if (recv(far, got, 5, MSG_WAITALL) == 5 && !strcmp(got, "\x01last"))
			break;
		close(far);
	}
	close(client);
	close(far);
	CHECK(finish());
}

static void never(void *arg, const struct resolve_answer *a)
{
	(void)a;
	++*(int *)arg;
}

/* Queries continue after their asker is gone. */
TEST(queries_that_nobody_answers_are_bounded_and_leave_room_for_others)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct resolve_asker *one = calloc(1, sizeof(*one)), *two = calloc(1, sizeof(*two));
	int silent = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), told = 0, r = 0, n;
	struct resolve_answer answer;
	struct resolve_query *q;
	socklen_t len = sizeof(a);
	struct resolve *resolve = NULL;
	struct loop loop;
	char text[64];

	CHECK_EQ(bind(silent, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(getsockname(silent, (struct sockaddr *)&a, &len), 0);
	snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(a.sin_port));
	CHECK_EQ(loop_init(&loop), 0);
	CHECK_EQ(resolve_new(&loop, text, NULL, 0, &resolve, NULL), 0);
	for (n = 0; n < 40000 && r == 0; n++) {
		snprintf(text, sizeof(text), "n%d.test", n);
		r = resolve_name(resolve, one, text, &answer, &q, never, &told);
		if (r == 0)
			resolve_cancel(q); /* its stream has gone */
	}
	CHECK_EQ(r, -EBUSY);
	CHECK(n > 1000);
	CHECK_EQ(resolve_name(resolve, two, "other.test", &answer, &q, never, &told), 0);
	resolve_asker_free(one);
	resolve_free(resolve);
	CHECK_EQ(told, 1);
	resolve_asker_free(two);
	loop_done(&loop);
	close(silent);
}
