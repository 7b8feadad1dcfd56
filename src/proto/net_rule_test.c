#include "proto/net_rule.h"
#include "base/base.h"
#include "base/test.h"

static const char *reads_as(const char *text)
{
	static char out[NET_RULE_TEXT];
	struct net_rule r;
	struct err e = { 0 };

	if (net_rule_parse(text, &r, &e) < 0)
		return e.remedy[0] ? "refused" : "refused without a remedy";
	net_rule_text(&r, out);
	return out;
}

TEST(rules_are_read_and_said_as_short_as_can_be)
{
	static const struct {
		const char *text, *as;
	} list[] = {
		{ "example.com", "example.com" },
		{ "Example.COM:443,80", "example.com" },
		{ "example.com:8443", "example.com:8443" },
		{ "example.com:8000-8100,22", "example.com:22,8000-8100" },
		{ "example.com:1-100,50-200,201", "example.com:1-201" },
		{ "example.com:1-65535", "example.com:*" },
		{ "example.com:*", "example.com:*" },
		{ "*.example.com", "*.example.com" },
		{ "*.example.com:443", "*.example.com:443" },
		{ "xn--bcher-kva.example", "xn--bcher-kva.example" },
		{ "_x.a-b.example", "_x.a-b.example" },
		{ "registry", "registry" },
		{ "10.1.0.0/16:5432", "10.1.0.0/16:5432" },
		{ "10.1.2.3", "10.1.2.3" },
		{ "10.1.2.3/32:80,443", "10.1.2.3" },
		{ "0.0.0.0/0:*", "0.0.0.0/0:*" },
		{ "[fd00::1]:22", "[fd00::1]:22" },
		{ "[fd00::]/8", "[fd00::]/8" },
		{ "[FD00:0:0:0:0:0:0:1]", "[fd00::1]" },
		{ "[::ffff:10.0.0.1]:80", "10.0.0.1:80" },
	};

	for (size_t i = 0; i < ARRAY_LEN(list); i++)
		CHECK_STR(reads_as(list[i].text), list[i].as);
}

TEST(what_is_not_surely_one_thing_is_refused)
{
	/* clang-format off */
	static const char *const list[] = {
		"", "*", "*.", ".", "a.", ".a", "a..b", "-a.b", "a-.b", "a b", "a\tb", "a/b", "a.com/", "https://a.com",
		"@packages", "a.com:", "a.com:0", "a.com:65536", "a.com:080", "a.com:80,", "a.com:,80", "a.com:90-80",
		"a.com:80-", "a.com:1,2,3,4,5,6,7,8,9", "a.com:443:443", "*a.com", "a.*.com", "*.*.com", "a.*",
		"127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.0x1", "1.2.3.4.5", "256.1.1.1", "01.2.3.4",
		"*.1", "10.1.2.3/16", "10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/", "fd00::1", "fd00::/8", "[fd00::1",
		"[fd00::1]/7", "[fd00::1%lo]", "[10.0.0.1]", "[]", "[::ffff:10.0.0.0]/104", "[fd00::]/129", "user@a.com",
		"a.com#", "a\\.com", "a.com:80 ", " a.com", "a.com\n", "\xc3\xa4.com",
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(list); i++)
		if (strcmp(reads_as(list[i]), "refused"))
			TEST_FAIL("'%s' reads as '%s'", list[i], reads_as(list[i]));
}

TEST(rules_by_name_have_options_and_keep_them)
{
	CHECK_STR(reads_as("a.com+terminate"), "a.com+terminate");
	CHECK_STR(reads_as("*.a.com:8443+ech+terminate"), "*.a.com:8443+terminate+ech");
	CHECK_STR(reads_as("a.com:*+ech"), "a.com:*+ech");
	CHECK_STR(reads_as("a.com:80,443+ech"), "a.com+ech");
	CHECK_STR(reads_as("a.com+"), "refused");
	CHECK_STR(reads_as("a.com+ech+ech"), "refused");
	CHECK_STR(reads_as("a.com+Ech"), "refused");
	CHECK_STR(reads_as("a.com+terminat"), "refused");
	CHECK_STR(reads_as("+ech"), "refused");
	CHECK_STR(reads_as("10.1.0.0/16+ech"), "refused");
	CHECK_STR(reads_as("[2001:db8::1]:443+terminate"), "refused");
}

TEST(names_are_bounded_and_hold_no_nul)
{
	char name[300], ret[NET_NAME_MAX];

	memset(name, 'a', sizeof(name));
	for (size_t i = 60; i < sizeof(name); i += 60)
		name[i] = '.';
	CHECK_EQ(net_name_parse(name, 253, ret), 0);
	CHECK_EQ(strlen(ret), 253);
	CHECK_EQ(net_name_parse(name, 254, ret), -EINVAL);
	name[60] = 'a';
	CHECK_EQ(net_name_parse(name, 100, ret), -EINVAL);
	CHECK_EQ(net_name_parse("a.com\0b.com", 11, ret), -EINVAL);
	CHECK_EQ(net_name_parse("", 0, ret), -EINVAL);
	CHECK_EQ(net_name_parse("WWW.Example.com", 15, ret), 0);
	CHECK_STR(ret, "www.example.com");
}

static bool has(const char *rule, const char *name, uint16_t port)
{
	struct net_rule r;
	struct net_addr a;

	if (net_rule_parse(rule, &r, NULL) < 0)
		return false;
	return net_addr_parse(name, &a) == 0 ? net_rule_has_addr(&r, &a, port) : net_rule_has_name(&r, name, port);
}

TEST(rules_have_what_they_name_and_nothing_else)
{
	CHECK(has("a.com", "a.com", 443));
	CHECK(has("a.com", "a.com", 80));
	CHECK(!has("a.com", "a.com", 22));
	CHECK(!has("a.com", "b.a.com", 443));
	CHECK(!has("a.com", "xa.com", 443));
	CHECK(has("*.a.com", "b.a.com", 443));
	CHECK(has("*.a.com", "c.b.a.com", 443));
	CHECK(!has("*.a.com", "a.com", 443));
	CHECK(!has("*.a.com", "xa.com", 443));
	CHECK(!has("*.a.com", ".a.com", 443));
	CHECK(has("a.com:*", "a.com", 1));
	CHECK(has("a.com:8000-8100", "a.com", 8100));
	CHECK(!has("a.com:8000-8100", "a.com", 8101));
	CHECK(has("10.1.0.0/16:5432", "10.1.255.3", 5432));
	CHECK(!has("10.1.0.0/16:5432", "10.2.0.0", 5432));
	CHECK(!has("10.1.0.0/16:5432", "10.1.0.1", 443));
	CHECK(has("10.128.0.0/9", "10.200.1.1", 443));
	CHECK(!has("10.128.0.0/9", "10.127.1.1", 443));
	CHECK(has("[fd00::]/8:22", "fdff::1", 22));
	CHECK(!has("[fd00::]/8:22", "fc00::1", 22));
	CHECK(has("1.2.3.4", "::ffff:1.2.3.4", 80));
	CHECK(!has("0.0.0.0/0", "2001:4860::1", 80));
}

TEST(nothing_special_is_public_in_any_spelling)
{
	/* clang-format off */
	static const char *const special[] = {
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1",
		"169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1",
		"192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
		"239.1.1.1", "240.0.0.1", "255.255.255.255", "168.63.129.16", "100.100.100.200", "::", "::1", "fc00::1",
		"fd00:ec2::254", "fd20:ce::254", "fe80::1", "fec0::1", "ff02::1", "100::1", "2001:db8::1", "2001:2::1",
		"2001:10::1", "3fff::1", "5f00::1", "4000::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::10.0.0.1",
		"64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::1", "2002:0a00:0001::1", "2002:7f00:1::",
		"2001:0:0a00:1::1", "2001:0:808:808::f5ff:fffe", "2600::5efe:10.0.0.1", "2600::200:5efe:127.0.0.1",
	};
	/* clang-format on */
	static const char *const public[] = {
		"1.1.1.1",	  "8.8.8.8",	      "9.255.255.255",	 "11.0.0.0",
		"100.63.255.255", "100.128.0.0",      "126.1.1.1",	 "172.15.255.255",
		"172.32.0.0",	  "192.0.1.1",	      "192.169.0.0",	 "198.17.255.255",
		"198.20.0.0",	  "223.255.255.1",    "2606:4700::1111", "2001:4860:4860::8888",
		"2a00::1",	  "64:ff9b::8.8.8.8", "2002:808:808::1", "2600::5efe:8.8.8.8",
	};
	const char *what;
	struct net_addr a;

	for (size_t i = 0; i < ARRAY_LEN(special); i++) {
		what = NULL;
		CHECK_EQ(net_addr_parse(special[i], &a), 0);
		if (net_addr_public(&a, &what) || !what)
			TEST_FAIL("%s is public", special[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(public); i++) {
		CHECK_EQ(net_addr_parse(public[i], &a), 0);
		if (!net_addr_public(&a, &what))
			TEST_FAIL("%s is %s", public[i], what);
	}
}

TEST(only_usual_spellings_are_addresses)
{
	static const char *const list[] = { "",		"127.1",	"1",   "0x7f.1", "01.2.3.4", "1.2.3.4 ",
					    "1.2.3.4.", "fe80::1%eth0", ":::", "1.2.3",	 "[::1]" };
	struct net_addr a;
	char text[64];

	for (size_t i = 0; i < ARRAY_LEN(list); i++)
		CHECK_EQ(net_addr_parse(list[i], &a), -EINVAL);
	CHECK_EQ(net_addr_parse("::ffff:1.2.3.4", &a), 0);
	CHECK_EQ(a.family, 4);
	net_addr_text(&a, text);
	CHECK_STR(text, "1.2.3.4");
}

TEST(a_resolver_is_an_address_with_a_port_or_without)
{
	static const char *const good[] = { "1.2.3.4", "1.2.3.4:53", "::1", "[::1]", "[::1]:5353" };
	static const char *const bad[] = { "",		 "foo",	 "1.2.3.4:", "1.2.3.4:0",   "1.2.3.4:65536",
					   "1.2.3.4:5x", "[::1", "[::1]5",   "[1.2.3.4]:5", "dns.example:53",
					   "[]:53",	 ":53",	 "1.2.3:53" };

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		CHECK(net_server_ok(good[i]));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK(!net_server_ok(bad[i]));
}
