#include "egress/policy.h"
#include "base/base.h"
#include "base/test.h"

#include <ifaddrs.h>
#include <netinet/in.h>

static struct policy *make(uint8_t mode, const char *rule, const char *private)
{
	struct policy *p = NULL;

	policy_new(mode, &rule, rule != NULL, &private, private != NULL, &p, NULL);
	return p;
}

static bool has(const struct policy *p, const struct policy *outer, const char *to, uint16_t port)
{
	struct net_addr a;
	uint16_t rule;

	return net_addr_parse(to, &a) == 0 ? policy_has_addr(p, outer, &a, port, &rule) :
					     policy_has_name(p, outer, to, port, &rule);
}

TEST(each_mode_lets_through_what_it_says)
{
	struct policy *outer = make(EGRESS_ALLOW, "*.good.test", NULL), *nothing = make(EGRESS_ALLOW, NULL, NULL), *p;

	p = make(EGRESS_NONE, "a.test", NULL);
	CHECK(!has(p, NULL, "a.test", 443) && !policy_knows(p, NULL, "a.test"));
	policy_free(p);
	p = make(EGRESS_ALLOW, NULL, NULL);
	CHECK(!has(p, outer, "a.test", 443) && !has(p, outer, "8.8.8.8", 443) && !policy_knows(p, outer, "a.test"));
	policy_free(p);
	p = make(EGRESS_ALLOW, "a.test:22", NULL);
	CHECK(has(p, NULL, "a.test", 22) && !has(p, NULL, "a.test", 443) && policy_knows(p, NULL, "a.test"));
	CHECK(!has(p, NULL, "8.8.8.8", 22) && !policy_knows(p, NULL, "b.test"));
	policy_free(p);
	p = make(EGRESS_OPEN, NULL, NULL);
	CHECK(has(p, outer, "a.test", 22) && has(p, outer, "8.8.8.8", 1) && policy_knows(p, outer, "x.y"));
	policy_free(p);
	p = make(EGRESS_OBSERVE, NULL, NULL);
	CHECK(has(p, NULL, "a.test", 22) && has(p, nothing, "a.test", 22));
	CHECK(has(p, outer, "a.good.test", 443) && !has(p, outer, "a.test", 443) && !has(p, outer, "8.8.8.8", 443));
	CHECK(policy_knows(p, outer, "a.good.test") && !policy_knows(p, outer, "a.test"));
	policy_free(p);
	policy_free(outer);
	policy_free(nothing);
}

TEST(a_rule_that_can_not_be_read_makes_no_policy)
{
	const char *bad[] = { "a.test", "127.1" };
	struct policy *p = NULL;
	struct err e = { 0 };

	CHECK(policy_new(EGRESS_ALLOW, bad, 2, NULL, 0, &p, &e) < 0);
	CHECK(!p);
	CHECK_CONTAINS(e.msg, "127.1");
	CHECK(policy_new(EGRESS_ALLOW, bad, 1, bad, 2, &p, &e) < 0);
	CHECK(!p);
}

TEST(this_hosts_own_addresses_are_nobodys)
{
	struct policy *p = make(EGRESS_OPEN, NULL, NULL), *q = make(EGRESS_OPEN, NULL, "10.0.0.0/8:5432");
	struct own own = { 0 };
	struct ifaddrs *list;
	struct net_addr a, pub;
	const char *what;
	unsigned seen = 0;

	CHECK_EQ(own_refresh(&own, 1), 0);
	CHECK_EQ(getifaddrs(&list), 0);
	for (struct ifaddrs *i = list; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
			continue;
		a = (struct net_addr){ .family = 4 };
		memcpy(a.addr, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, 4);
		CHECK(!policy_addr_open(p, &own, &a, 443, &what));
		seen++;
	}
	freeifaddrs(list);
	CHECK(seen);
	/* A public address that this host has is as private as the others. */
	net_addr_parse("8.8.8.8", &pub);
	CHECK(policy_addr_open(p, &own, &pub, 443, &what));
	own.addr[0] = pub;
	CHECK(!policy_addr_open(p, &own, &pub, 443, &what));
	CHECK_STR(what, "an address of this host");
	net_addr_parse("10.1.2.3", &a);
	CHECK(!policy_addr_open(p, &own, &a, 5432, &what));
	CHECK_STR(what, "a private address");
	CHECK(policy_addr_open(q, &own, &a, 5432, &what));
	CHECK(!policy_addr_open(q, &own, &a, 5433, &what));
	own_done(&own);
	policy_free(p);
	policy_free(q);
}
