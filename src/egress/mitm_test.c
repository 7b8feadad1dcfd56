/* Which servers get a value, and which requests are refused. */
#include "egress/mitm_test.h"

static void ask_twice(struct peer *p)
{
	static const char own[] = "GET /b HTTP/1.1\r\nHost: " NAME ":443\r\nx-key: mine\r\nConnection: close\r\n\r\n";

	say(p, GET, strlen(GET));
	hear_until(p, "\r\n\r\nok");
	p->len = 0;
	say(p, own, strlen(own));
	hear_until(p, NULL);
}

static void answer_two(struct peer *p)
{
	hear_until(p, "/a HTTP/1.1\r\nHost: " NAME "\r\nX-Key: s3cret\r\n" PLAIN "\r\n");
	say(p, OK, strlen(OK));
	hear_until(p, "Connection: close\r\nX-Key: s3cret\r\n" PLAIN "\r\n");
	say(p, OK, strlen(OK));
}

TEST(every_request_of_a_connection_gets_the_value)
{
	up(true);
	begin(true, ask_twice);
	serve(f.world, NAME, answer_two);
	turn();
	CHECK_EQ(f.client.shook, 1);
	CHECK_STR(f.client.got, OK);
	CHECK_CONTAINS(f.server.got, "GET /b HTTP/1.1\r\nHost: " NAME ":443\r\nConnection: close\r\n"
				     "X-Key: s3cret\r\n" PLAIN "\r\n");
	CHECK(!strstr(f.server.got, "mine"));
	CHECK_EQ(f.requests, 2);
	CHECK_EQ(f.out, f.server.len);
	CHECK_EQ(f.in, 2 * strlen(OK));
	CHECK_EQ(f.verdict, EGRESS_V_OK);
	down();
}

TEST(plain_http_gets_it_when_it_is_for_plain_http)
{
	up(false);
	begin(false, ask_once);
	serve(NULL, NULL, answer_two);
	for (int i = 0; i < 3000 && f.in < strlen(OK); i++)
		loop_turn(&f.loop, 20);
	shutdown(f.client.fd, SHUT_WR);
	turn();
	CHECK_STR(f.server.got, "GET /a HTTP/1.1\r\nHost: " NAME "\r\nX-Key: s3cret\r\n" PLAIN "\r\n");
	CHECK_CONTAINS(f.client.got, OK);
	down();
}

TEST(a_server_with_a_stranger_s_certificate_gets_nothing)
{
	up(true);
	begin(true, ask_once);
	serve(f.sandbox, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 502 ");
	CHECK_CONTAINS(f.client.got, "\"code\":\"unreachable\"");
	CHECK_CONTAINS(f.client.got, "the certificate of " NAME " is not trusted");
	CHECK_CONTAINS(f.client.got, "network_ca");
	CHECK_EQ(f.server.len, 0);
	CHECK_EQ(f.verdict, EGRESS_V_FAILED);
	CHECK_EQ(f.out, 0);
	down();
}

TEST(a_server_with_another_name_gets_nothing)
{
	up(true);
	begin(true, ask_once);
	serve(f.world, "other.example.test", listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 502 ");
	CHECK_CONTAINS(f.client.got, "hostname mismatch");
	CHECK_EQ(f.server.len, 0);
	down();
}

TEST(without_authorities_nobody_is_trusted)
{
	up(true);
	trust_free(f.trust);
	f.trust = NULL;
	begin(true, ask_once);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 502 ");
	CHECK_EQ(f.server.len, 0);
	down();
}

TEST(a_server_that_can_not_be_reached_is_told)
{
	up(true);
	begin(true, ask_once);
	mitm_connected(f.m, -1, "connection refused");
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 502 ");
	CHECK_CONTAINS(f.client.got, "connection refused");
	CHECK_EQ(f.verdict, EGRESS_V_FAILED);
	down();
}

static void ask_other(struct peer *p)
{
	static const char other[] = "GET / HTTP/1.1\r\nHost: other.example.test\r\n\r\n";

	say(p, GET, strlen(GET));
	hear_until(p, "\r\n\r\nok");
	p->len = 0;
	memset(p->got, 0, sizeof(p->got));
	say(p, other, strlen(other));
	hear_until(p, NULL);
}

TEST(a_request_for_another_host_is_refused_and_not_passed_on)
{
	up(true);
	begin(true, ask_other);
	serve(f.world, NAME, answer_one);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 421 ");
	CHECK(!strstr(f.server.got, "other"));
	CHECK_EQ(f.verdict, EGRESS_V_DENIED);
	down();
}

static void ask_badly(struct peer *p)
{
	static const char bad[] = "POST / HTTP/1.1\r\nHost: " NAME "\r\nContent-Length: 1\r\n"
				  "Transfer-Encoding: chunked\r\n\r\n";

	say(p, bad, strlen(bad));
	hear_until(p, NULL);
}

TEST(an_ambiguous_request_is_refused)
{
	up(true);
	begin(true, ask_badly);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 400 ");
	CHECK_CONTAINS(f.client.got, "given twice");
	CHECK_EQ(f.server.len, 0);
	down();
}

static void ask_much(struct peer *p)
{
	char line[1024];

	say(p, "GET / HTTP/1.1\r\nHost: " NAME "\r\nX: ", 26 + strlen(NAME));
	memset(line, 'x', sizeof(line));
	for (int i = 0; i < 40; i++)
		say(p, line, sizeof(line));
	hear_until(p, NULL);
}

TEST(a_head_that_never_ends_is_refused)
{
	up(true);
	begin(true, ask_much);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 400 ");
	CHECK_CONTAINS(f.client.got, "too large");
	CHECK_EQ(f.server.len, 0);
	down();
}

TEST(who_is_trusted_is_settled_when_it_begins)
{
	up(true);
	begin(true, ask_once);
	trust_free(TAKE_PTR(f.trust)); /* a new configuration came */
	serve(f.world, NAME, farewell);
	turn();
	CHECK_CONTAINS(f.client.got, "all");
	down();
}

static void ask_trace(struct peer *p)
{
	static const char trace[] = "TRACE / HTTP/1.1\r\nHost: " NAME "\r\n\r\n";

	say(p, trace, strlen(trace));
	hear_until(p, NULL);
}

TEST(a_request_that_would_be_repeated_is_refused)
{
	up(true);
	begin(true, ask_trace);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 403 Forbidden");
	CHECK_EQ(f.server.len, 0);
	CHECK_EQ(f.requests, 0);
	down();
}

TEST(a_client_that_only_speaks_http_2_is_told_in_the_report)
{
	up(true);
	SSL_CTX_set_alpn_protos(f.client.ctx, (const unsigned char *)"\x02h2", 3);
	begin(true, ask_once);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK(f.client.shook != 1);
	CHECK_CONTAINS(f.reason, "HTTP/2 only");
	down();
}

TEST(a_budget_of_requests_is_told)
{
	up(true);
	f.allowed = 0;
	begin(true, ask_once);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK_CONTAINS(f.client.got, "HTTP/1.1 429 ");
	CHECK_CONTAINS(f.client.got, "too many requests");
	CHECK_EQ(f.server.len, 0);
	CHECK_EQ(f.verdict, EGRESS_V_BUDGET);
	down();
}

TEST(a_client_that_does_not_trust_us_ends_it)
{
	up(true);
	SSL_CTX_free(f.client.ctx);
	f.client.ctx = client_ctx(&f.world_pem);
	begin(true, ask_once);
	serve(f.world, NAME, listen_only);
	turn();
	CHECK(f.client.shook != 1);
	CHECK_CONTAINS(f.reason, "does it trust the sandbox's CA");
	CHECK_EQ(f.server.len, 0);
	down();
}
