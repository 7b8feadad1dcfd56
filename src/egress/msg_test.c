#include "egress/msg.h"
#include "base/base.h"
#include "base/test.h"

static uint8_t out[EGRESS_MSG_MAX], again[EGRESS_MSG_MAX];
static struct egress_msg m;

/* Cut anywhere it is refused, and so is a byte more. */
static bool only_whole(long n, int (*decode)(const struct egress_msg *, void *), void *into)
{
	for (long cut = 0; cut < n; cut++)
		if (egress_decode(out, (size_t)cut, &m) == 0 && decode(&m, into) == 0)
			return false;
	out[n] = 0;
	return egress_decode(out, (size_t)n + 1, &m) < 0 || decode(&m, into) < 0;
}

static int decode_sandbox(const struct egress_msg *msg, void *into)
{
	return egress_sandbox_decode(msg, into);
}

static int decode_stream(const struct egress_msg *msg, void *into)
{
	return egress_stream_decode(msg, into);
}

static void nothing_needs_no_struct(enum egress_type type)
{
	long n = egress_plain_encode(type, 7, 8, 9, out, sizeof(out));

	CHECK_EQ(n, EGRESS_HEAD + 16);
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(m.type, type);
	CHECK_EQ(m.seq, 7);
	CHECK_EQ(m.sandbox, 8);
	CHECK_EQ(m.arg, 9);
	CHECK_EQ(egress_decode(out, (size_t)n - 1, &m), -EBADMSG);
	out[n] = 0;
	CHECK_EQ(egress_decode(out, (size_t)n + 1, &m), -EBADMSG);
}

TEST(plain_messages_come_back)
{
	static const enum egress_type list[] = { EGRESS_GONE, EGRESS_KEEP, EGRESS_HELLO, EGRESS_HAVE,
						 EGRESS_DONE, EGRESS_TELL, EGRESS_TOLD };

	for (size_t i = 0; i < ARRAY_LEN(list); i++)
		nothing_needs_no_struct(list[i]);
}

TEST(a_head_that_makes_no_sense_is_refused)
{
	long n = egress_plain_encode(EGRESS_KEEP, 1, 0, 0, out, sizeof(out));

	for (size_t at = 0; at < 4; at++) {
		memcpy(again, out, (size_t)n);
		again[at] = at == 1 ? 99 : 7;
		CHECK_EQ(egress_decode(again, (size_t)n, &m), -EBADMSG);
	}
	CHECK_EQ(egress_decode(out, 0, &m), -EBADMSG);
	CHECK_EQ(egress_plain_encode(EGRESS_KEEP, 1, 0, 0, out, 10), -EMSGSIZE);
}

static struct egress_sandbox full_sandbox(void)
{
	struct egress_sandbox b = {
		.sandbox = 5,
		.tree = 6,
		.mode = EGRESS_ALLOW,
		.rules = 2,
		.rule = { "a.example", "*.b.example:22" },
		.privates = 1,
		.private = { "10.0.0.0/8:*" },
		.injects = 1,
		.inject = { { .kind = EGRESS_HEADER,
			      .tls = true,
			      .port = 443,
			      .host = "a.example",
			      .field = "Authorization",
			      .value = "Bearer x",
			      .secret = "token" } },
		.budget = { .bytes_out = 1,
			    .bytes_in = 2,
			    .connections = 3,
			    .bandwidth = 4,
			    .dns = 5,
			    .concurrent = 6,
			    .requests = 7 },
		.tree_budget = { .requests = 8 },
		.counts = { .sandbox = 5, .bytes_out = 9, .concurrent = 1 },
		.tree_counts = { .dns = 10 },
		.ca_cert = "cert",
		.ca_key = "key",
	};

	snprintf(b.id, sizeof(b.id), "0000abc");
	return b;
}

TEST(a_sandbox_comes_back_and_only_whole)
{
	struct egress_sandbox b = full_sandbox(), c;
	long n = egress_sandbox_encode(&b, 3, out, sizeof(out)), k;

	CHECK(n > 0);
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(m.type, EGRESS_SANDBOX);
	CHECK_EQ(m.seq, 3);
	CHECK_EQ(egress_sandbox_decode(&m, &c), 0);
	CHECK_STR(c.id, "0000abc");
	CHECK_STR(c.rule[1], "*.b.example:22");
	CHECK_STR(c.inject[0].value, "Bearer x");
	CHECK_EQ(c.budget.requests, 7);
	CHECK_EQ(c.tree_counts.dns, 10);
	k = egress_sandbox_encode(&c, 3, again, sizeof(again));
	CHECK_EQ(k, n);
	CHECK(!memcmp(out, again, (size_t)n));
	CHECK(only_whole(n, decode_sandbox, &c));
}

TEST(a_sandbox_without_a_number_or_with_a_strange_mode_is_refused)
{
	struct egress_sandbox b = full_sandbox(), c;
	long n;

	b.sandbox = 0;
	n = egress_sandbox_encode(&b, 3, out, sizeof(out));
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(egress_sandbox_decode(&m, &c), -EBADMSG);
	b = full_sandbox();
	b.mode = EGRESS_OBSERVE + 1;
	n = egress_sandbox_encode(&b, 3, out, sizeof(out));
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(egress_sandbox_decode(&m, &c), -EBADMSG);
	b = full_sandbox();
	b.inject[0].kind = 0;
	n = egress_sandbox_encode(&b, 3, out, sizeof(out));
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(egress_sandbox_decode(&m, &c), -EBADMSG);
	b = full_sandbox();
	b.rules = EGRESS_RULES_MAX + 1;
	CHECK_EQ(egress_sandbox_encode(&b, 3, out, sizeof(out)), -EMSGSIZE);
}

TEST(streams_names_config_counts_who_and_they_come_back)
{
	struct egress_stream s = { .sandbox = 1,
				   .out = 2,
				   .in = 3,
				   .usec = 4,
				   .verdict = EGRESS_V_DENIED,
				   .family = 4,
				   .port = 443,
				   .addr = { 1, 2, 3, 4 },
				   .pid = 12,
				   .requests = 1,
				   .times = 9,
				   .name = "a.b",
				   .rule = "a.b:443",
				   .reason = "why",
				   .command = "curl",
				   .secrets = "x y" },
			     s2;
	struct egress_names k = { .sandbox = 1, .n = 2, .name = { { 0, "a.b" }, { 4095, "c.d" } } }, k2;
	struct egress_config c = { .resolver = "1.2.3.4",
				   .hosts = 1,
				   .host = { "a.b 127.0.0.1" },
				   .outer = 1,
				   .rule = { "*.com" },
				   .ca_file = "/x" },
			     c2;
	struct egress_counts t = { .sandbox = 3, .refused = 4, .dns_refused = 5, .concurrent = 6 }, t2;
	struct egress_who w = { .sandbox = 1,
				.family = 6,
				.udp = true,
				.client_port = 40000,
				.port = 80,
				.client = { 1 },
				.addr = { 2 } },
			  w2;
	struct egress_they y = { .sandbox = 1, .pid = 5, .command = "sh" }, y2;
	long n = egress_stream_encode(EGRESS_LOOKUP, &s, out, sizeof(out));

	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(m.type, EGRESS_LOOKUP);
	CHECK_EQ(egress_stream_decode(&m, &s2), 0);
	CHECK_STR(s2.secrets, "x y");
	CHECK_EQ(s2.times, 9);
	CHECK_EQ(s2.port, 443);
	CHECK(only_whole(n, decode_stream, &s2));
	n = egress_names_encode(EGRESS_NAMED, &k, out, sizeof(out));
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(egress_names_decode(&m, &k2), 0);
	CHECK_EQ(k2.name[1].index, 4095);
	CHECK_STR(k2.name[1].name, "c.d");
	k.name[0].index = EGRESS_NAMES_MAX;
	n = egress_names_encode(EGRESS_NAMED, &k, out, sizeof(out));
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(egress_names_decode(&m, &k2), -EBADMSG);
	n = egress_config_encode(&c, out, sizeof(out));
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(egress_config_decode(&m, &c2), 0);
	CHECK_STR(c2.host[0], "a.b 127.0.0.1");
	CHECK_STR(c2.rule[0], "*.com");
	CHECK_STR(c2.ca_file, "/x");
	n = egress_counts_encode(&t, out, sizeof(out));
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(egress_counts_decode(&m, &t2), 0);
	CHECK_EQ(t2.dns_refused, 5);
	CHECK_EQ(t2.concurrent, 6);
	n = egress_who_encode(&w, 11, out, sizeof(out));
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(egress_who_decode(&m, &w2), 0);
	CHECK(!memcmp(w2.client, w.client, 16) && !memcmp(w2.addr, w.addr, 16));
	CHECK_EQ(w2.client_port, 40000);
	CHECK(w2.udp);
	n = egress_they_encode(&y, 11, out, sizeof(out));
	CHECK_EQ(egress_decode(out, (size_t)n, &m), 0);
	CHECK_EQ(m.seq, 11);
	CHECK_EQ(egress_they_decode(&m, &y2), 0);
	CHECK_STR(y2.command, "sh");
}
