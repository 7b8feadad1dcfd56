#include "proto/account.h"
#include "base/base.h"
#include "base/test.h"

static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\n"
			     "# app:x:9:9::/:/bin/sh\n"
			     "broken:x:12\n"
			     "app:x:many:7:::\n"
			     "app:x:1001:1002:An app:/srv/app:/bin/sh\n"
			     "app:x:5:5::/second:/bin/sh\n"
			     "none:x:6:6:::\n"
			     "large:x:70000:7::/:\n"
			     "agent:x:65533:7::/:\n"
			     "huge:x:4294967297:7::/:\n"
			     "12:x:13:13::/:\n"
			     "last:x:7:8::/last:/bin/sh";
static const char group[] = "root:x:0:\n"
			    "app:x:1002:app\n"
			    "video:x:44:other,app\n"
			    "audio:x:29:app,app,last\n"
			    "apps:x:30:applied,xapp,app2\n"
			    "far:x:70000:far\n"
			    "wheel:x:10:";
static struct account a;
static bool about_group;

static int find(const char *text)
{
	const struct account_files in = { passwd, group, sizeof(passwd) - 1, sizeof(group) - 1 };

	a = (struct account){ 0 };
	return account_find(&in, text, &a, &about_group);
}

TEST(a_name_has_its_ids_its_home_and_the_groups_it_is_in)
{
	CHECK_EQ(find("app"), 0);
	CHECK(a.uid == 1001 && a.gid == 1002);
	CHECK_STR(a.name, "app");
	CHECK_STR(a.home, "/srv/app");
	CHECK(a.ngroups == 2 && a.groups[0] == 44 && a.groups[1] == 29);
	CHECK_EQ(find("last"), 0);
	CHECK(a.uid == 7 && a.gid == 8 && a.ngroups == 1 && a.groups[0] == 29);
	CHECK_STR(a.home, "/last");
	CHECK_EQ(find("none"), 0);
	CHECK_STR(a.home, "/");
}

TEST(a_group_that_is_given_is_the_only_one)
{
	CHECK_EQ(find("app:wheel"), 0);
	CHECK(a.uid == 1001 && a.gid == 10 && !a.ngroups);
	CHECK_EQ(find("app:77"), 0);
	CHECK(a.uid == 1001 && a.gid == 77 && !a.ngroups);
	CHECK_EQ(find("55:video"), 0);
	CHECK(a.uid == 55 && a.gid == 44 && !a.ngroups && !a.name[0]);
}

TEST(what_is_not_there_is_told)
{
	static const struct {
		const char *text;
		int r;
		bool group;
	} list[] = {
		{ "nobody", -ENOENT, false }, { "broken", -ENOENT, false }, { "ap", -ENOENT, false },
		{ "apps", -ENOENT, false },   { "app:x", -ENOENT, true },   { "large", -ERANGE, false },
		{ "agent", -ERANGE, false },  { "app:far", -ERANGE, true }, { "huge", -ERANGE, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(list); i++) {
		CHECK_EQ(find(list[i].text), list[i].r);
		CHECK_EQ(about_group, list[i].group);
	}
}

TEST(what_needs_no_lookup_and_what_is_no_name_is_refused)
{
	static const char *const list[] = { "",
					    ":",
					    "a:",
					    ":a",
					    "12",
					    "12:13",
					    "a b",
					    "a\n",
					    "a:b:c",
					    "a/b",
					    "a,b",
					    "-a",
					    "+a",
					    "a\x7f",
					    "a:b,c",
					    "012345678901234567890123456789abc",
					    "a:012345678901234567890123456789abc" };

	for (size_t i = 0; i < ARRAY_LEN(list); i++)
		CHECK_EQ(account_check(list[i]), -EINVAL);
	CHECK_EQ(account_check("65536"), -ERANGE);
	CHECK_EQ(account_check("99999999999999999999"), -ERANGE);
	CHECK_EQ(account_check("65533:a"), -ERANGE);
	CHECK_EQ(account_check("a:65533"), -ERANGE);
	CHECK_EQ(account_check("a_b.c-d$"), 0);
}

TEST(more_groups_than_are_kept_are_refused)
{
	static char many[ACCOUNT_GROUPS * 16 + 64];
	struct account_files in = { passwd, many, sizeof(passwd) - 1, 0 };
	size_t n = 0;

	for (unsigned i = 0; i < ACCOUNT_GROUPS; i++)
		n += (size_t)snprintf(many + n, sizeof(many) - n, "g%u:x:%u:app\n", i, 100 + i);
	in.group_len = n;
	CHECK_EQ(account_find(&in, "app", &a, &about_group), 0);
	CHECK_EQ(a.ngroups, ACCOUNT_GROUPS);
	n += (size_t)snprintf(many + n, sizeof(many) - n, "one:x:99:app\n");
	in.group_len = n;
	CHECK_EQ(account_find(&in, "app", &a, &about_group), -E2BIG);
}
