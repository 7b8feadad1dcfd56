#include "base/map.h"
#include "base/base.h"
#include "base/test.h"

TEST(what_is_put_is_found_and_what_is_removed_is_not)
{
	struct map m;
	int a = 1, b = 2;

	CHECK(map_init(&m) == 0);
	CHECK(map_get(&m, "a") == NULL);
	CHECK(map_put(&m, "a", &a) == 0 && map_put(&m, "b", &b) == 0);
	CHECK(map_get(&m, "a") == &a && map_get(&m, "b") == &b && m.count == 2);
	CHECK(map_put(&m, "a", &b) == 0 && map_get(&m, "a") == &b && m.count == 2);
	CHECK(map_del(&m, "a") == &b && map_get(&m, "a") == NULL && map_del(&m, "a") == NULL && m.count == 1);
	CHECK(map_put(&m, "a", &a) == 0 && map_get(&m, "a") == &a && m.count == 2);
	map_done(&m);
}

TEST(thousands_come_and_go_and_the_table_does_not_grow_for_ever)
{
	static int values[5000];
	struct map m;
	size_t at = 0, seen = 0;
	char key[32];

	CHECK(map_init(&m) == 0);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 5000; i++) {
			snprintf(key, sizeof(key), "key-%d-%d", round, i);
			CHECK(map_put(&m, key, &values[i]) == 0);
		}
		for (int i = 0; i < 5000; i++) {
			snprintf(key, sizeof(key), "key-%d-%d", round, i);
			CHECK(map_get(&m, key) == &values[i]);
			if (i % 10)
				CHECK(map_del(&m, key) == &values[i]);
		}
	}
	CHECK(m.count == 5000);
	while (map_next(&m, &at))
		seen++;
	CHECK(seen == 5000);
	CHECK(m.size <= 65536);
	map_done(&m);
}
