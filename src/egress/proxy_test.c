/* Clients that know of a proxy. */
#include "egress/egress_test.h"

static struct world w;
static struct cell c;
static int server;
static uint16_t port;

static bool begin(void)
{
	static const struct egress_config config = {
		.resolver = "127.0.0.1:1", .hosts = 1, .host = { "server.test 127.0.0.1" }, .ca_file = ""
	};
	struct egress_sandbox b = { .mode = EGRESS_ALLOW,
				    .rules = 1,
				    .rule = { "server.test:*" },
				    .privates = 1,
				    .private = { "127.0.0.1:*" } };

	port = 0;
	server = server_begin("127.0.0.1", &port);
	return server >= 0 && world_begin(&w, &config) && cell_begin(&w, &c, &b);
}

static bool finish(void)
{
	close(server);
	cell_end(&c);
	return world_end(&w);
}

TEST(connect_makes_a_tunnel_to_a_host_that_is_allowed)
{
	char text[256];
	int client, far;

	CHECK(begin());
	client = cell_dial(&w, &c, "198.18.0.1", 3128);
	CHECK(client >= 0);
	snprintf(text, sizeof(text), "CONNECT server.test:%u HTTP/1.1\r\nHost: server.test:%u\r\n\r\n", port, port);
	CHECK(says(client, text));
	far = server_accept(server);
	CHECK(far >= 0);
	CHECK(arrives(client, "HTTP/1.1 200 Connection established\r\n\r\n"));
	CHECK(says(client, "\x01inside"));
	CHECK(arrives(far, "\x01inside"));
	CHECK(says(far, "back"));
	CHECK(arrives(client, "back"));
	close(client);
	close(far);
	CHECK(world_stream(&w, EGRESS_STREAM));
	CHECK_STR(w.last.name, "server.test");
	CHECK_EQ(w.last.out, 7);
	CHECK(finish());
}

static bool refused_by_http(const char *ask, char *got, size_t size)
{
	int client = cell_dial(&w, &c, "198.18.0.1", 3128);
	ssize_t n;

	memset(got, 0, size);
	if (client < 0 || !says(client, ask))
		return false;
	n = recv(client, got, size - 1, 0);
	close(client);
	return n > 0 && strstr(got, "HTTP/1.1 403 ");
}

TEST(what_a_proxy_is_asked_for_is_judged_as_everything_else)
{
	static const char *const list[] = {
		"CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n",
		"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
		"CONNECT 2130706433:80 HTTP/1.1\r\nHost: 2130706433\r\n\r\n",
		"CONNECT server.test@evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT [::ffff:127.0.0.1]:80 HTTP/1.1\r\nHost: x.test\r\n\r\n",
		"CONNECT 198.18.0.1:3128 HTTP/1.1\r\nHost: 198.18.0.1:3128\r\n\r\n",
		"GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
		"GET http://server.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
	};
	char got[2048];

	CHECK(begin());
	for (size_t i = 0; i < ARRAY_LEN(list); i++)
		if (!refused_by_http(list[i], got, sizeof(got)))
			TEST_FAIL("'%s': '%s'", list[i], got);
	CHECK(refused_by_http(list[0], got, sizeof(got)));
	CHECK_CONTAINS(got, "other.test:443");
	CHECK(finish());
}

TEST(an_absolute_request_goes_to_its_host_as_servers_know_it)
{
	char text[256], got[512] = "";
	int client, far;

	CHECK(begin());
	client = cell_dial(&w, &c, "198.18.0.1", 3128);
	snprintf(text, sizeof(text),
		 "GET http://server.test:%u/x?y HTTP/1.1\r\nHost: server.test:%u\r\nProxy-Connection: a\r\n\r\n", port,
		 port);
	CHECK(says(client, text));
	far = server_accept(server);
	CHECK(far >= 0);
	CHECK(recv(far, got, sizeof(got) - 1, 0) > 0);
	CHECK_CONTAINS(got, "GET /x?y HTTP/1.1\r\n");
	CHECK_CONTAINS(got, "Connection: close");
	CHECK(!strstr(got, "Proxy-"));
	CHECK(says(far, "HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok"));
	close(far);
	CHECK(arrives(client, "HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok"));
	CHECK_EQ(recv(client, got, 1, 0), 0);
	close(client);
	CHECK(finish());
}

static int socks(const void *ask, size_t len)
{
	int client = cell_dial(&w, &c, "198.18.0.1", 1080);
	char reply[2];

	if (client < 0 || send(client, "\5\1\0", 3, 0) != 3 || recv(client, reply, 2, MSG_WAITALL) != 2 ||
	    memcmp(reply, "\5\0", 2) || send(client, ask, len, 0) != (ssize_t)len)
		return -1;
	return client;
}

TEST(socks_reaches_names_and_refuses_with_its_own_codes)
{
	uint8_t ask[32] = "\5\1\0\3\13server.test", reply[10];
	int client, far;

	CHECK(begin());
	ask[16] = (uint8_t)(port >> 8);
	ask[17] = (uint8_t)port;
	client = socks(ask, 18);
	CHECK(client >= 0);
	far = server_accept(server);
	CHECK(far >= 0);
	CHECK_EQ(recv(client, reply, 10, MSG_WAITALL), 10);
	CHECK_EQ(reply[1], 0);
	CHECK(says(client, "\x01x"));
	CHECK(arrives(far, "\x01x"));
	close(far);
	close(client);
	client = socks("\5\1\0\3\12other.test\1\273", 17);
	CHECK_EQ(recv(client, reply, 10, MSG_WAITALL), 10);
	CHECK_EQ(reply[1], 2);
	close(client);
	client = socks("\5\1\0\1\251\376\251\376\0\120", 10);
	CHECK_EQ(recv(client, reply, 10, MSG_WAITALL), 10);
	CHECK_EQ(reply[1], 2);
	close(client);
	client = socks("\5\1\0\3\17server.test\0.ev\1\273", 22);
	CHECK_EQ(recv(client, reply, 10, MSG_WAITALL), 10);
	CHECK(reply[1] != 0);
	close(client);
	CHECK(finish());
}
