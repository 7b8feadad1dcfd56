#include "egress/names.h"
#include "base/base.h"
#include "base/test.h"

static struct net_addr addr(const char *text)
{
	struct net_addr a = { 0 };

	net_addr_parse(text, &a);
	return a;
}

TEST(a_name_keeps_its_address)
{
	struct names s = { 0 };
	struct name *a = names_get(&s, "a.test", 1), *b = names_get(&s, "b.test", 1);

	CHECK(a && b && a != b);
	CHECK(names_get(&s, "a.test", 9) == a);
	CHECK_EQ(a->used, 9);
	CHECK_EQ(a->index, 0);
	CHECK_EQ(b->index, 1);
	CHECK(names_at(&s, 1) == b);
	CHECK(!names_at(&s, 2));
	CHECK(!names_at(&s, 70000));
	names_done(&s);
}

TEST(a_full_table_gives_the_place_that_was_used_least_and_only_when_it_rests)
{
	struct names s = { 0 };
	char text[32];

	for (unsigned i = 0; i < EGRESS_NAMES_MAX; i++) {
		snprintf(text, sizeof(text), "n%u.test", i);
		CHECK(names_get(&s, text, 1000 + i));
	}
	CHECK(!names_get(&s, "new.test", 1000 + NAMES_REST - 1));
	names_at(&s, 0)->streams = 1;
	CHECK(!names_get(&s, "new.test", 1000 + NAMES_REST));
	CHECK_EQ(names_get(&s, "new.test", 1001 + NAMES_REST)->index, 1);
	CHECK_STR(names_at(&s, 1)->text, "new.test");
	CHECK(!strcmp(names_get(&s, "n0.test", 5000)->text, "n0.test"));
	names_done(&s);
}

TEST(names_come_back_where_they_were)
{
	struct names s = { 0 };
	struct egress_names told;

	CHECK_EQ(names_set(&s, 7, "a.test", 1), 0);
	CHECK_EQ(names_set(&s, 7, "a.test", 1), 0);
	CHECK_EQ(names_set(&s, 8, "a.test", 1), -EBUSY);
	CHECK_EQ(names_set(&s, 8, "A.test", 1), -EINVAL);
	CHECK_EQ(names_set(&s, 8, "127.0.0.1", 1), -EINVAL);
	CHECK_EQ(names_set(&s, EGRESS_NAMES_MAX, "b.test", 1), -EINVAL);
	CHECK_EQ(names_get(&s, "a.test", 2)->index, 7);
	CHECK(!names_at(&s, 3));
	names_at(&s, 7)->streams = 1;
	CHECK_EQ(names_set(&s, 7, "b.test", 1), -EBUSY);
	/* Only new names are reported, and each once. */
	CHECK(names_get(&s, "c.test", 2));
	CHECK_EQ(names_tell(&s, &told), 1);
	CHECK_STR(told.name[0].name, "c.test");
	CHECK_EQ(names_tell(&s, &told), 0);
	names_done(&s);
}

TEST(addresses_and_places_are_each_others)
{
	static const uint32_t list[] = { 0, 1, 255, 256, EGRESS_NAMES_MAX - 1 };
	struct net_addr a;

	for (size_t i = 0; i < ARRAY_LEN(list); i++) {
		a = (struct net_addr){ .family = 4 };
		names_v4(list[i], a.addr);
		CHECK_EQ(names_index(&a), list[i]);
		a.family = 6;
		names_v6(list[i], a.addr);
		CHECK_EQ(names_index(&a), list[i]);
	}
	a = addr("198.18.1.1");
	CHECK_EQ(names_index(&a), 1);
	a = addr("fd63:6c6f:6368:65::1:1");
	CHECK_EQ(names_index(&a), 1);
	a = addr("198.18.0.1");
	CHECK_EQ(names_index(&a), -2);
	a = addr("198.19.255.255");
	CHECK_EQ(names_index(&a), -2);
	a = addr("fd63:6c6f:6368:65:1::1:1");
	CHECK_EQ(names_index(&a), -2);
	a = addr("198.20.0.1");
	CHECK_EQ(names_index(&a), -1);
	a = addr("fd63:6c6f:6368:66::1:1");
	CHECK_EQ(names_index(&a), -1);
}
