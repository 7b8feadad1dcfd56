#include "egress/egress_test.h"

static struct world w;
static struct cell c;
static int server;
static uint16_t port;

/*
 * server.test and other.test are 127.0.0.1, which an administrator allows; wrong.test is an address that is always
 * refused.
 */
static bool begin(struct egress_sandbox *b)
{
	static const struct egress_config config = {
		.resolver = "127.0.0.1:1",
		.hosts = 4,
		.host = { "server.test 127.0.0.1", "other.test 127.0.0.1", "wrong.test 127.0.0.2",
			  "imds.test 169.254.169.254" },
		.ca_file = "",
	};

	port = 0;
	server = server_begin("127.0.0.1", &port);
	b->private[b->privates++] = "127.0.0.1:*";
	return server >= 0 && world_begin(&w, &config) && cell_begin(&w, &c, b);
}

static bool finish(void)
{
	close(server);
	cell_end(&c);
	return world_end(&w);
}

static struct egress_sandbox allow(const char *rule)
{
	return (struct egress_sandbox){ .mode = EGRESS_ALLOW, .rules = 1, .rule = { rule } };
}

/* Both ends of a stream to @name. */
static bool reach(const char *name, int *ret_client, int *ret_server)
{
	char addr[64];

	if (cell_ask(&w, &c, name, 1, addr) != 0 || (*ret_client = cell_dial(&w, &c, addr, port)) < 0)
		return false;
	*ret_server = server_accept(server);
	return *ret_server >= 0;
}

/* The client sees a reset, with nothing before it. */
static bool is_reset(int client)
{
	char byte;
	ssize_t n = recv(client, &byte, 1, 0);

	return n < 0 && (errno == ECONNRESET || errno == EPIPE);
}

TEST(a_name_that_is_allowed_has_an_address_and_leads_to_its_server)
{
	struct egress_sandbox b = allow("server.test:*");
	char addr[64], byte;
	int client, far;

	CHECK(begin(&b));
	CHECK_EQ(cell_ask(&w, &c, "Server.TEST", 1, addr), 0);
	CHECK_STR(addr, "198.18.1.0");
	CHECK_EQ(cell_ask(&w, &c, "server.test", 28, addr), 0);
	CHECK_STR(addr, "fd63:6c6f:6368:65::1:0");
	CHECK_EQ(cell_ask(&w, &c, "server.test", 16, addr), 0);
	CHECK_STR(addr, "");
	CHECK(world_await(&w, EGRESS_NAMED));
	client = cell_dial(&w, &c, "fd63:6c6f:6368:65::1:0", port);
	CHECK(client >= 0);
	far = server_accept(server);
	CHECK(far >= 0);
	CHECK(says(client, "\x01hello"));
	CHECK(arrives(far, "\x01hello"));
	CHECK(says(far, "answer"));
	CHECK(arrives(client, "answer"));
	/* One side ends, and the other still sends. */
	CHECK_EQ(shutdown(client, SHUT_WR), 0);
	CHECK_EQ(recv(far, &byte, 1, 0), 0);
	CHECK(says(far, "late"));
	CHECK(arrives(client, "late"));
	close(far);
	CHECK_EQ(recv(client, &byte, 1, 0), 0);
	close(client);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_STR(w.last.name, "server.test");
	CHECK_STR(w.last.rule, "server.test:*");
	CHECK_EQ(w.last.verdict, EGRESS_V_OK);
	CHECK_EQ(w.last.out, 6);
	CHECK_EQ(w.last.in, 10);
	CHECK_EQ(w.last.port, port);
	CHECK_EQ(w.last.family, 4);
	CHECK(!memcmp(w.last.addr, "\x7f\0\0\1", 4));
	CHECK(finish());
}

TEST(a_server_that_speaks_first_is_heard)
{
	struct egress_sandbox b = allow("server.test:*");
	int client, far;

	CHECK(begin(&b));
	CHECK(reach("server.test", &client, &far));
	CHECK(says(far, "220 welcome\r\n"));
	CHECK(arrives(client, "220 welcome\r\n"));
	CHECK(says(client, "EHLO x\r\n"));
	CHECK(arrives(far, "EHLO x\r\n"));
	close(client);
	close(far);
	CHECK(finish());
}

TEST(letters_without_a_line_pass_at_once_and_a_request_that_comes_so_does_not)
{
	struct egress_sandbox b = allow("server.test:*");
	char byte;
	int client, far;

	CHECK(begin(&b));
	CHECK(reach("server.test", &client, &far));
	CHECK(says(client, "x"));
	CHECK(arrives(far, "x"));
	CHECK(says(far, "x"));
	CHECK(arrives(client, "x"));
	CHECK(says(client, "yz"));
	CHECK(arrives(far, "yz"));
	CHECK(says(client, " /\r\nmore"));
	CHECK(arrives(far, " /\r\nmore"));
	CHECK(says(client, " HTTP/1.1\r\n"));
	CHECK(arrives(far, " HTTP/1.1\r\n"));
	CHECK_EQ(shutdown(client, SHUT_WR), 0);
	CHECK_EQ(recv(far, &byte, 1, 0), 0);
	close(far);
	CHECK_EQ(recv(client, &byte, 1, 0), 0);
	close(client);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.out, 22);
	CHECK(reach("server.test", &client, &far));
	CHECK(says(client, "FOO / HT"));
	CHECK(arrives(far, "FOO / HT"));
	CHECK(says(client, "TP/1.1\r\nHost: other.test\r\n\r\n"));
	CHECK(is_reset(client));
	CHECK(recv(far, &byte, 1, 0) <= 0);
	close(client);
	close(far);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.verdict, EGRESS_V_DENIED);
	CHECK(finish());
}

TEST(a_name_that_is_not_allowed_does_not_exist)
{
	struct egress_sandbox b = allow("server.test:*");
	char addr[64];

	CHECK(begin(&b));
	CHECK_EQ(cell_ask(&w, &c, "other.test", 1, addr), 3);
	CHECK(world_stream(&w, EGRESS_LOOKUP));
	CHECK_STR(w.last.name, "other.test");
	CHECK_STR(w.last.rule, "other.test");
	CHECK_EQ(w.last.verdict, EGRESS_V_DENIED);
	CHECK_EQ(w.last.times, 1);
	for (int i = 0; i < 5; i++)
		CHECK_EQ(cell_ask(&w, &c, "other.test", 28, addr), 3);
	CHECK(world_stream(&w, EGRESS_LOOKUP));
	CHECK_EQ(w.last.times, 5);
	CHECK_EQ(cell_ask(&w, &c, "a.server.test", 1, addr), 3);
	CHECK_EQ(cell_ask(&w, &c, "server.test.", 1, addr), 0);
	CHECK(finish());
}

/* The client's socket exists while it waits, so its process is looked up before the answer is sent. */
TEST(who_asked_for_a_name_that_is_refused_is_found_out_before_the_answer)
{
	struct egress_sandbox b = allow("server.test:*");
	struct egress_they they = { .pid = 78, .command = "git pull" };
	struct sockaddr_in own;
	socklen_t len = sizeof(own);
	struct egress_who who;
	uint8_t packet[512];
	size_t size;
	int fd;
	long n;

	CHECK(begin(&b));
	fd = cell_query(&w, &c, "other.test", 1, &size);
	CHECK(fd >= 0 && getsockname(fd, (struct sockaddr *)&own, &len) == 0);
	CHECK(world_await(&w, EGRESS_WHO));
	CHECK_EQ(egress_who_decode(&w.msg, &who), 0);
	CHECK(who.udp && who.family == 4 && who.port == 53 && who.sandbox == c.number);
	CHECK_EQ(who.client_port, ntohs(own.sin_port));
	CHECK(!memcmp(who.client, "\306\22\0\2", 4) && !memcmp(who.addr, "\306\22\0\1", 4));
	they.sandbox = who.sandbox;
	n = egress_they_encode(&they, w.msg.seq, packet, sizeof(packet));
	CHECK_EQ(send(w.owner, packet, (size_t)n, 0), n);
	CHECK_EQ(recv(fd, packet, sizeof(packet), 0), size);
	CHECK_EQ(packet[3] & 15, 3);
	close(fd);
	CHECK(world_stream(&w, EGRESS_LOOKUP));
	CHECK_EQ(w.last.pid, 78);
	CHECK_STR(w.last.command, "git pull");
	/* An owner that says nothing is waited for once, and then not for a while. */
	fd = cell_query(&w, &c, "third.test", 1, &size);
	CHECK(fd >= 0 && recv(fd, packet, sizeof(packet), 0) > 0);
	close(fd);
	CHECK(world_stream(&w, EGRESS_LOOKUP));
	CHECK(!w.last.pid);
	CHECK(finish());
}

TEST(a_name_that_leads_to_a_private_address_is_refused_and_the_owner_is_asked_whose_it_was)
{
	struct egress_sandbox b = { .mode = EGRESS_OPEN };
	struct egress_they they = { .pid = 77, .command = "curl x" };
	struct egress_who who;
	uint8_t packet[512];
	char addr[64];
	int client;
	long n;

	CHECK(begin(&b));
	CHECK_EQ(cell_ask(&w, &c, "imds.test", 1, addr), 0);
	client = cell_dial(&w, &c, addr, 443);
	CHECK(client >= 0);
	CHECK(world_await(&w, EGRESS_WHO));
	CHECK_EQ(egress_who_decode(&w.msg, &who), 0);
	CHECK_EQ(who.sandbox, c.number);
	CHECK_EQ(who.family, 4);
	they.sandbox = who.sandbox;
	n = egress_they_encode(&they, w.msg.seq, packet, sizeof(packet));
	CHECK_EQ(send(w.owner, packet, (size_t)n, 0), n);
	CHECK(is_reset(client));
	close(client);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.verdict, EGRESS_V_DENIED);
	CHECK_EQ(w.last.pid, 77);
	CHECK_STR(w.last.command, "curl x");
	CHECK_CONTAINS(w.last.reason, "169.254.169.254, a cloud's metadata service");
	CHECK_STR(w.last.rule, "");
	/* The second one does not wait, and is only counted. */
	client = cell_dial(&w, &c, addr, 443);
	CHECK(client >= 0);
	CHECK(is_reset(client));
	close(client);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.times, 1);
	CHECK_EQ(w.last.pid, 0);
	CHECK(finish());
}

TEST(addresses_are_reached_by_rules_and_never_private_ones)
{
	struct egress_sandbox b = { .mode = EGRESS_ALLOW, .rules = 2, .rule = { "127.0.0.1:*", "127.0.0.2:*" } };
	char text[32];
	uint16_t other = 0;
	int client, far, second;

	CHECK(begin(&b));
	second = server_begin("127.0.0.2", &other);
	CHECK(second >= 0);
	/* Loopback addresses stay inside, so the proxy is asked for them. */
	client = cell_dial(&w, &c, "198.18.0.1", 3128);
	CHECK(client >= 0);
	snprintf(text, sizeof(text), "CONNECT 127.0.0.1:%u", port);
	CHECK(says(client, text) && says(client, " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"));
	far = server_accept(server);
	CHECK(far >= 0);
	CHECK(arrives(client, "HTTP/1.1 200 "));
	close(client);
	close(far);
	client = cell_dial(&w, &c, "198.18.0.1", 3128);
	snprintf(text, sizeof(text), "CONNECT 127.0.0.2:%u", other);
	CHECK(says(client, text) && says(client, " HTTP/1.1\r\nHost: 127.0.0.2\r\n\r\n"));
	CHECK(arrives(client, "HTTP/1.1 403 "));
	close(client);
	do
		CHECK(world_stream(&w, EGRESS_STREAM));
	while (w.last.verdict != EGRESS_V_DENIED);
	CHECK_CONTAINS(w.last.reason, "127.0.0.2 is a loopback address");
	close(second);
	CHECK(finish());
}

/* A ClientHello with that SNI, as short as one can be. NULL: with another extension, of @kind, instead. */
static size_t hello_with(uint8_t *out, const char *name, uint16_t kind)
{
	size_t n = strlen(name ? name : ""), more = kind ? 4 : 0, ext = (name ? n + 9 : 0) + more,
	       body = 2 + 32 + 1 + 4 + 2 + 2 + ext, at = 0;
	const uint8_t head[] = {
		0x16,	       3, 1, (uint8_t)((body + 4) >> 8), (uint8_t)(body + 4), 1, 0, (uint8_t)(body >> 8),
		(uint8_t)body, 3, 3
	};

	memcpy(out, head, sizeof(head));
	at = sizeof(head);
	memset(out + at, 7, 32);
	at += 32;
	memcpy(out + at, "\0\0\2\x13\x01\1\0", 7);
	at += 7;
	out[at++] = (uint8_t)(ext >> 8);
	out[at++] = (uint8_t)ext;
	if (kind) {
		out[at++] = (uint8_t)(kind >> 8);
		out[at++] = (uint8_t)kind;
		out[at++] = 0;
		out[at++] = 0;
	}
	if (!name)
		return at;
	memcpy(out + at, "\0\0", 2);
	at += 2;
	out[at++] = 0;
	out[at++] = (uint8_t)(n + 5);
	out[at++] = 0;
	out[at++] = (uint8_t)(n + 3);
	out[at++] = 0;
	out[at++] = 0;
	out[at++] = (uint8_t)n;
	memcpy(out + at, name, n);
	return at + n;
}

static size_t hello(uint8_t *out, const char *name)
{
	return hello_with(out, name, 0);
}

/* Whether such a ClientHello reaches the server. */
static bool hello_passes(const char *name, uint16_t kind)
{
	uint8_t bytes[512], got[512];
	size_t n = hello_with(bytes, name, kind);
	int client = -1, far = -1;
	bool passed;

	passed = reach("server.test", &client, &far) && send(client, bytes, n, 0) == (ssize_t)n &&
		 recv(far, got, n, MSG_WAITALL) == (ssize_t)n && !memcmp(got, bytes, n);
	if (!passed && !is_reset(client))
		printf("# neither passed nor reset\n");
	close(client);
	close(far);
	return passed;
}

static bool denied_for(const char *why)
{
	do {
		if (!world_stream(&w, EGRESS_STREAM))
			return false;
	} while (w.last.verdict != EGRESS_V_DENIED);
	return !w.last.out && strstr(w.last.reason, why);
}

#define KIND_ECH 0xfe0d
#define KIND_TICKET 35

TEST(tls_that_does_not_say_the_name_it_was_let_through_by_is_reset)
{
	struct egress_sandbox b = { .mode = EGRESS_ALLOW, .rules = 1, .rule = { "server.test:*" } };

	CHECK(begin(&b));
	CHECK(!hello_passes(NULL, KIND_TICKET));
	CHECK(denied_for("without a server name"));
	CHECK(!hello_passes("server.test", KIND_ECH));
	CHECK(denied_for("encrypted_client_hello"));
	CHECK(hello_passes("server.test", KIND_TICKET));
	CHECK(finish());
}

/* A server's first record: a HelloRetryRequest, or not. */
static bool server_says(int far, bool retry)
{
	static const uint8_t head[] = { 0x16, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3 };
	static const uint8_t again[32] = { 0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
					   0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
					   0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c };
	uint8_t bytes[47] = { 0 };

	memcpy(bytes, head, sizeof(head));
	memcpy(bytes + sizeof(head), again, sizeof(again));
	if (!retry)
		bytes[20] ^= 1;
	return send(far, bytes, sizeof(bytes), 0) == sizeof(bytes);
}

/* Whether a second ClientHello reaches a server that has asked for one, or has not. @early: it is sent before the server has spoken. */
static bool second_passes(const char *name, bool asked, bool early)
{
	static const uint8_t change[] = { 20, 3, 3, 0, 1, 1 };
	uint8_t first[512], second[512], got[512];
	size_t n = hello(first, "server.test"), m = sizeof(change);
	int client = -1, far = -1;
	bool passed;

	memcpy(second, change, m);
	m += hello(second + m, name);
	passed = reach("server.test", &client, &far) && send(client, first, n, 0) == (ssize_t)n &&
		 recv(far, got, n, MSG_WAITALL) == (ssize_t)n;
	if (passed && early)
		passed = send(client, second, m, 0) == (ssize_t)m && recv(far, got, 1, MSG_DONTWAIT) < 0;
	passed = passed && server_says(far, asked) && recv(client, got, 47, MSG_WAITALL) == 47;
	if (passed && !early)
		passed = send(client, second, m, MSG_NOSIGNAL) == (ssize_t)m;
	/* A change of ciphers may pass before. */
	passed = passed && recv(far, got, m, MSG_WAITALL) == (ssize_t)m && !memcmp(got, second, m);
	close(client);
	close(far);
	return passed;
}

TEST(a_second_client_hello_has_the_name_of_the_first)
{
	struct egress_sandbox b = { .mode = EGRESS_ALLOW, .rules = 2, .rule = { "server.test:*", "other.test:*" } };

	CHECK(begin(&b));
	CHECK(second_passes("server.test", true, false));
	CHECK(second_passes("server.test", true, true));
	CHECK(!second_passes("other.test", true, false));
	do
		CHECK(world_stream(&w, EGRESS_STREAM));
	while (w.last.verdict != EGRESS_V_DENIED);
	CHECK_CONTAINS(w.last.reason, "second ClientHello");
	CHECK(!second_passes("other.test", true, true));
	/* Without having been asked for, it is a server's error, and not read as one. */
	CHECK(second_passes("other.test", false, false));
	CHECK(finish());
}

/* Whether a stream that begins with these bytes reaches the server. */
static bool bytes_pass(const void *bytes, size_t n)
{
	uint8_t got[64];
	int client = -1, far = -1;
	bool passed;

	passed = reach("server.test", &client, &far) && send(client, bytes, n, 0) == (ssize_t)n &&
		 recv(far, got, n, MSG_WAITALL) == (ssize_t)n;
	close(client);
	close(far);
	return passed;
}

/* An alert that servers skip, a version they do not look at, and the ClientHello of SSL 2 in which OpenSSL takes TLS 1.2. */
static const uint8_t odd_alert[] = { 0x15, 3, 1, 0, 2, 1, 90, 0x16, 3, 1 },
		     odd_version[] = { 0x16, 2, 1, 0, 60, 1, 0, 0, 56, 3, 3 },
		     odd_ssl2[] = { 0x80, 28, 1, 3, 3, 0, 3, 0, 0,  0,	16, 0,	0,  0x2f, 1,
				    2,	  3,  4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,	  16 };

TEST(tls_that_begins_as_no_client_does_is_reset_where_a_rule_has_a_name)
{
	struct egress_sandbox b = { .mode = EGRESS_ALLOW, .rules = 1, .rule = { "server.test:*" } };

	CHECK(begin(&b));
	CHECK(!bytes_pass(odd_alert, sizeof(odd_alert)));
	CHECK(denied_for("does not begin with a ClientHello"));
	CHECK(!bytes_pass(odd_version, sizeof(odd_version)));
	CHECK(denied_for("records are invalid"));
	CHECK(!bytes_pass(odd_ssl2, sizeof(odd_ssl2)));
	CHECK(denied_for("SSL 3 and older"));
	/* Other protocols. */
	CHECK(bytes_pass("\x15\x01\0\0\x02\0\0\0\0\0\0\0", 12));
	CHECK(bytes_pass("\x80\0\0\x28\1\2\3\4", 8));
	CHECK(bytes_pass("\x16\1\0\0\x01\0\0\0\0\0\0\0", 12));
	CHECK(finish());
}

TEST(a_rule_can_let_ech_through_and_never_tls_without_a_name)
{
	struct egress_sandbox b = { .mode = EGRESS_ALLOW, .rules = 2, .rule = { "*.test:*+ech", "server.test:*" } };

	CHECK(begin(&b));
	CHECK(hello_passes("server.test", KIND_ECH));
	CHECK(!hello_passes(NULL, KIND_ECH));
	CHECK(denied_for("without a server name"));
	CHECK(finish());
}

TEST(where_no_rule_limits_names_tls_need_not_say_one)
{
	struct egress_sandbox b = { .mode = EGRESS_OPEN };

	CHECK(begin(&b));
	CHECK(hello_passes(NULL, KIND_TICKET));
	CHECK(hello_passes("server.test", KIND_ECH));
	CHECK(bytes_pass(odd_alert, sizeof(odd_alert)));
	CHECK(finish());
}

TEST(tls_to_another_name_than_was_looked_up_is_reset)
{
	struct egress_sandbox b = { .mode = EGRESS_ALLOW, .rules = 2, .rule = { "server.test:*", "other.test:*" } };
	uint8_t bytes[512], got[512];
	size_t n;
	int client, far;

	CHECK(begin(&b));
	CHECK(reach("server.test", &client, &far));
	n = hello(bytes, "server.test");
	/* In pieces, as networks deliver it. */
	CHECK_EQ(send(client, bytes, 3, 0), 3);
	CHECK_EQ(send(client, bytes + 3, n - 3, 0), n - 3);
	CHECK_EQ(recv(far, got, n, MSG_WAITALL), n);
	CHECK(!memcmp(got, bytes, n));
	close(client);
	close(far);
	CHECK(reach("server.test", &client, &far));
	n = hello(bytes, "other.test");
	CHECK_EQ(send(client, bytes, n, 0), n);
	CHECK(is_reset(client));
	CHECK(recv(far, got, 1, 0) <= 0);
	close(client);
	close(far);
	do
		CHECK(world_stream(&w, EGRESS_STREAM));
	while (w.last.verdict != EGRESS_V_DENIED);
	CHECK_CONTAINS(w.last.reason, "other.test");
	CHECK_EQ(w.last.out, 0);
	CHECK(finish());
}

TEST(every_request_of_a_connection_is_for_its_host)
{
	struct egress_sandbox b = { .mode = EGRESS_ALLOW, .rules = 2, .rule = { "server.test:*", "other.test:*" } };
	static const char one[] = "POST /a HTTP/1.1\r\nHost: server.test\r\nContent-Length: 5\r\n\r\nhello";
	static const char two[] = "GET /b HTTP/1.1\r\nHost: server.test\r\n\r\n";
	static const char bad[] = "GET /c HTTP/1.1\r\nHost: other.test\r\n\r\n";
	char got[1024] = "";
	int client, far;

	CHECK(begin(&b));
	CHECK(reach("server.test", &client, &far));
	CHECK(says(client, one) && says(client, two));
	CHECK(arrives(far, one) && arrives(far, two));
	CHECK(says(far, "HTTP/1.1 204 x\r\n\r\n"));
	CHECK(arrives(client, "HTTP/1.1 204 x\r\n\r\n"));
	CHECK(says(client, bad));
	CHECK(is_reset(client));
	CHECK(recv(far, got, 1, 0) <= 0);
	close(client);
	close(far);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.verdict, EGRESS_V_DENIED);
	CHECK_EQ(w.last.requests, 2);
	/* A request that comes when all before are answered gets the reason, after the server's last bytes. */
	CHECK(reach("server.test", &client, &far));
	CHECK(says(client, two) && arrives(far, two));
	CHECK(says(far, "HTTP/1.1 204 x\r\n\r\n") && arrives(client, "HTTP/1.1 204 x\r\n\r\n"));
	CHECK(says(client, bad));
	CHECK_EQ(recv(far, got, 1, 0), 0);
	CHECK(says(far, "HTTP/1.1 408 x\r\n\r\n"));
	close(far);
	CHECK(arrives(client, "HTTP/1.1 408 x\r\n\r\nHTTP/1.1 403 "));
	CHECK(recv(client, got, sizeof(got) - 1, 0) > 0);
	CHECK_CONTAINS(got, "other.test");
	close(client);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.verdict, EGRESS_V_DENIED); /* the same as before: folded with it */
	/* But not when the server does not end. */
	CHECK(reach("server.test", &client, &far));
	CHECK(says(client, two) && arrives(far, two));
	CHECK(says(far, "HTTP/1.1 204 x\r\n\r\n") && arrives(client, "HTTP/1.1 204 x\r\n\r\n"));
	CHECK(says(client, bad));
	CHECK(is_reset(client));
	close(client);
	close(far);
	/* The first request gets a reason, too. */
	CHECK(reach("server.test", &client, &far));
	CHECK(says(client, bad));
	CHECK(recv(client, got, sizeof(got) - 1, 0) > 0);
	CHECK_CONTAINS(got, "HTTP/1.1 403 ");
	CHECK_CONTAINS(got, "\"remedy\"");
	CHECK_CONTAINS(got, "other.test");
	CHECK_EQ(recv(client, got, 1, 0), 0);
	CHECK(recv(far, got, 1, 0) <= 0);
	close(client);
	close(far);
	CHECK(finish());
}

TEST(a_policy_that_changes_cuts_what_it_no_longer_allows)
{
	struct egress_sandbox b = { .mode = EGRESS_ALLOW, .rules = 2, .rule = { "server.test:*", "other.test:*" } };
	int client, far, client2, far2;
	char addr[64];

	CHECK(begin(&b));
	CHECK(reach("server.test", &client, &far));
	CHECK(reach("other.test", &client2, &far2));
	CHECK(says(client2, "\x01") && arrives(far2, "\x01"));
	b.rules = 1;
	CHECK_EQ(cell_put(&w, &b, NULL, 0), 0);
	CHECK(is_reset(client2));
	CHECK(says(client, "\x01") && arrives(far, "\x01"));
	CHECK_EQ(cell_ask(&w, &c, "other.test", 1, addr), 3);
	b.mode = EGRESS_NONE;
	CHECK_EQ(cell_put(&w, &b, NULL, 0), 0);
	CHECK(is_reset(client));
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 3);
	close(client);
	close(far);
	close(client2);
	close(far2);
	CHECK(finish());
}

TEST(a_sandbox_that_is_gone_has_its_streams_reset_and_its_last_words_told)
{
	struct egress_sandbox b = allow("server.test:*");
	struct egress_counts counts;
	uint8_t packet[64];
	int client, far;
	long n;

	CHECK(begin(&b));
	CHECK(reach("server.test", &client, &far));
	CHECK(says(client, "\x01") && arrives(far, "\x01"));
	n = egress_plain_encode(EGRESS_GONE, 0, c.number, 0, packet, sizeof(packet));
	CHECK_EQ(send(w.owner, packet, (size_t)n, 0), n);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.verdict, EGRESS_V_CUT);
	CHECK(world_await(&w, EGRESS_COUNTS));
	CHECK_EQ(egress_counts_decode(&w.msg, &counts), 0);
	CHECK_EQ(counts.bytes_out, 1);
	CHECK_EQ(counts.concurrent, 0);
	CHECK(world_await(&w, EGRESS_GONE));
	CHECK_EQ(w.msg.sandbox, c.number);
	CHECK(is_reset(client));
	close(client);
	close(far);
	CHECK_EQ(cell_put(&w, &b, NULL, 0), ENOENT);
	CHECK(finish());
}

TEST(many_bytes_arrive_as_they_were_sent_both_ways_at_once)
{
	enum { SIZE = 1 << 20, ROUNDS = 48 };
	struct egress_sandbox b = allow("server.test:*");
	static uint8_t bytes[SIZE], got[SIZE];
	int client, far, status;
	uint64_t start;
	pid_t pid;

	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (uint8_t)(i * 2654435761U >> 13);
	bytes[0] = 1;
	CHECK(begin(&b));
	CHECK(reach("server.test", &client, &far));
	start = clock_mono_ns();
	/* A child reads and sends back what comes, until the end. */
	pid = fork();
	if (pid == 0) {
		ssize_t n;

		close(client);
		while ((n = recv(far, got, sizeof(got), 0)) > 0)
			if (fd_write_all(far, got, (size_t)n) < 0)
				_exit(1);
		_exit(n < 0);
	}
	close(far);
	far = fork();
	if (far == 0) {
		for (int i = 0; i < ROUNDS; i++)
			if (fd_write_all(client, bytes, SIZE) < 0)
				_exit(1);
		_exit(shutdown(client, SHUT_WR) < 0);
	}
	for (int i = 0; i < ROUNDS; i++) {
		CHECK_EQ(recv(client, got, SIZE, MSG_WAITALL), SIZE);
		CHECK(!memcmp(got, bytes, SIZE));
	}
	CHECK_EQ(recv(client, got, 1, 0), 0);
	printf("# %u MB there and back: %llu ms\n", ROUNDS, (unsigned long long)((clock_mono_ns() - start) / 1000000));
	close(client);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(waitpid(far, &status, 0), far);
	CHECK_EQ(status, 0);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_EQ(w.last.verdict, EGRESS_V_OK);
	CHECK_EQ(w.last.out, (uint64_t)SIZE * ROUNDS);
	CHECK_EQ(w.last.in, (uint64_t)SIZE * ROUNDS);
	CHECK(finish());
}

/* Hundredths of a second that egress has used. */
static long used(void)
{
	char path[64], line[512] = "";
	long user = 0, sys = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", w.pid);
	f = fopen(path, "re");
	if (!f || !fgets(line, sizeof(line), f) ||
	    sscanf(line, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &sys) != 2)
		user = -1;
	if (f)
		fclose(f);
	return user + sys;
}

TEST(a_server_that_does_not_read_is_waited_for_without_work)
{
	static const char post[] = "POST / HTTP/1.1\r\nHost: server.test\r\nContent-Length: 400000000\r\n\r\n";
	struct egress_sandbox b = allow("server.test:*");
	static char bytes[1 << 20];
	size_t all = 0, far_got = 0;
	int client, far;
	long before;
	int tries = 0;

	CHECK(begin(&b));
	CHECK(reach("server.test", &client, &far));
	CHECK(says(client, post));
	/* Until nothing more goes in: all buffers are full. */
	fcntl(client, F_SETFL, O_NONBLOCK);
	for (;;) {
		struct pollfd p = { .fd = client, .events = POLLOUT };
		ssize_t n;

		if (poll(&p, 1, 500) != 1)
			break;
		n = send(client, bytes, sizeof(bytes), MSG_NOSIGNAL);
		CHECK(n > 0);
		all += (size_t)n;
		CHECK(all < 300000000);
	}
	/* Time in which it could work, and should not; on a busy machine it may still have had some to do. */
	do {
		before = used();
		CHECK(before >= 0);
		CHECK_EQ(poll(NULL, 0, 1000), 0);
	} while (used() - before >= 20 && ++tries < 10);
	CHECK(tries < 10);
	/* And when it reads again nothing is missing. */
	while (far_got < all) {
		ssize_t n = recv(far, bytes, sizeof(bytes), 0);

		CHECK(n > 0);
		far_got += (size_t)n;
	}
	close(client);
	close(far);
	CHECK(finish());
}

TEST(a_server_that_is_not_there_is_told_as_such_and_not_each_time)
{
	struct egress_sandbox b = allow("server.test:*");
	char addr[64];
	int client;

	CHECK(begin(&b));
	CHECK_EQ(cell_ask(&w, &c, "server.test", 1, addr), 0);
	close(server);
	for (int i = 0; i < 20; i++) {
		client = cell_dial(&w, &c, addr, port);
		CHECK(client >= 0);
		CHECK(is_reset(client));
		close(client);
	}
	/* The first at once, the others together, each second that this took. */
	for (uint32_t times = 0, told = 0; times < 20; times += w.last.times) {
		CHECK(told++ < 12 && world_stream(&w, EGRESS_STREAM));
		CHECK_EQ(w.last.verdict, EGRESS_V_FAILED);
		CHECK_CONTAINS(w.last.reason, "is unreachable");
	}
	server = -1;
	CHECK(finish());
}
