#include "egress/dns.h"
#include "base/base.h"
#include "base/test.h"

static struct dns_question q;
static const uint8_t head[12] = { 7, 8, 1, 0, 0, 1 };

static int parse(const char *labels, size_t len)
{
	uint8_t packet[700];

	memcpy(packet, head, 12);
	memcpy(packet + 12, labels, len);
	memcpy(packet + 12 + len, "\0\1\0\1", 4);
	return dns_parse(packet, 12 + len + 4, &q);
}

TEST(a_question_is_read)
{
	CHECK_EQ(parse("\3WwW\7example\3com", 17), 0);
	CHECK_STR(q.name, "www.example.com");
	CHECK_EQ(q.type, DNS_A);
	CHECK_EQ(q.end, 12 + 17 + 4);
	CHECK_EQ(parse("", 1), 0);
	CHECK_STR(q.name, "");
}

TEST(names_that_no_host_has_are_none)
{
	CHECK_EQ(parse("\7a\0b.com\3com", 13), 0);
	CHECK_STR(q.name, "");
	CHECK_EQ(parse("\5a.com", 7), 0);
	CHECK_STR(q.name, "");
	CHECK_EQ(parse("\3a b\3com", 9), 0);
	CHECK_STR(q.name, "");
	CHECK_EQ(parse("\3"
		       "127\1"
		       "0\1"
		       "0\1"
		       "1",
		       11),
		 0);
	CHECK_STR(q.name, "");
	CHECK_EQ(parse("\12"
		       "2130706433",
		       12),
		 0);
	CHECK_STR(q.name, "");
}

TEST(what_is_malformed_is_refused)
{
	uint8_t packet[600] = { 7, 8, 1, 0, 0, 1 };
	char many[300];

	CHECK_EQ(parse("\300\14", 2), -EBADMSG);
	CHECK_EQ(parse("\100", 1), -EBADMSG);
	CHECK_EQ(parse("\77abc", 4), -EBADMSG);
	for (size_t i = 0; i < sizeof(many); i += 2)
		many[i] = 1, many[i + 1] = 'a';
	CHECK_EQ(parse(many, sizeof(many)), -EBADMSG);
	for (size_t len = 0; len < 12; len++)
		CHECK_EQ(dns_parse(packet, len, &q), -EINVAL);
	CHECK_EQ(dns_parse(packet, 12, &q), -EBADMSG);
	packet[2] = 0x80;
	CHECK_EQ(dns_parse(packet, 20, &q), -EINVAL);
	memcpy(packet, head, 12);
	packet[5] = 2;
	CHECK_EQ(dns_parse(packet, 40, &q), -EBADMSG);
	packet[5] = 1;
	packet[2] = 0x28;
	CHECK_EQ(dns_parse(packet, 40, &q), -EBADMSG);
	packet[2] = 1;
	packet[16] = 1;
	CHECK_EQ(dns_parse(packet, 17, &q), 0);
	CHECK_EQ(dns_parse(packet, 16, &q), -EBADMSG);
	packet[16] = 3; /* a class of its own */
	CHECK_EQ(dns_parse(packet, 17, &q), -EBADMSG);
}

TEST(an_answer_holds_the_question_and_what_was_asked_for)
{
	static const uint8_t v4[4] = { 198, 18, 1, 2 };
	uint8_t query[64], out[DNS_ANSWER_MAX];
	size_t n;

	memcpy(query, head, 12);
	memcpy(query + 12, "\1a\4test\0\0\1\0\1", 12);
	CHECK_EQ(dns_parse(query, 24, &q), 0);
	n = dns_answer(query, 24, &q, DNS_OK, v4, out);
	CHECK_EQ(n, 24 + 12 + 4);
	CHECK_EQ(out[0], 7);
	CHECK_EQ(out[2], 0x85);
	CHECK_EQ(out[3], 0x80);
	CHECK_EQ(out[7], 1);
	CHECK(!memcmp(out + n - 4, v4, 4));
	n = dns_answer(query, 24, &q, DNS_NO_NAME, v4, out);
	CHECK_EQ(n, 24);
	CHECK_EQ(out[3] & 15, 3);
	CHECK_EQ(out[7], 0);
	/* Of what could not be read only the head comes back. */
	CHECK_EQ(dns_parse(query, 15, &q), -EBADMSG);
	n = dns_answer(query, 15, &q, DNS_REFUSED, NULL, out);
	CHECK_EQ(n, 12);
	CHECK_EQ(out[3] & 15, 5);
	CHECK_EQ(out[5], 0);
}
