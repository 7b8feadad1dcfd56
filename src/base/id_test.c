#include "base/id.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

TEST(an_id_has_the_documented_form)
{
	char id[ID_SIZE];

	CHECK_EQ(id_new(id, sizeof(id)), 0);
	CHECK_EQ(strlen(id), ID_LEN);
	CHECK(!strncmp(id, "0000", ID_NODE_LEN));
	CHECK(id_valid(id));
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

TEST(ten_thousand_ids_differ)
{
	static char ids[10000][ID_SIZE];

	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		CHECK_EQ(id_new(ids[i], sizeof(ids[i])), 0);
	qsort(ids, ARRAY_LEN(ids), sizeof(ids[0]), compare);
	for (size_t i = 1; i < ARRAY_LEN(ids); i++)
		CHECK(strcmp(ids[i - 1], ids[i]));
}

TEST(every_symbol_is_used_at_every_place)
{
	static unsigned seen[ID_LEN][256];
	char id[ID_SIZE];

	for (unsigned i = 0; i < 3000; i++) {
		CHECK_EQ(id_new(id, sizeof(id)), 0);
		for (size_t k = 0; k < ID_LEN; k++)
			seen[k][(unsigned char)id[k]]++;
	}
	for (size_t k = ID_NODE_LEN; k < ID_LEN; k++) {
		unsigned kinds = 0;

		for (unsigned c = 0; c < 256; c++)
			kinds += seen[k][c] > 0;
		CHECK_EQ(kinds, 32);
	}
}

TEST(a_short_buffer_is_refused_untouched)
{
	char id[ID_SIZE] = "untouched";

	CHECK_EQ(id_new(id, ID_SIZE - 1), -ENOSPC);
	CHECK_STR(id, "untouched");
}

TEST(without_randomness_there_is_no_id)
{
	char id[ID_SIZE] = "untouched";

	sys_test_fail(SYSID_getrandom, ENOSYS, 1);
	CHECK_EQ(id_new(id, sizeof(id)), -ENOSYS);
	CHECK_STR(id, "untouched");
	sys_test_fail(SYSID_getrandom, EINTR, 1);
	CHECK_EQ(id_new(id, sizeof(id)), 0);
	CHECK(id_valid(id));
}

TEST(what_could_leave_a_folder_is_no_id)
{
	CHECK(!id_valid(""));
	CHECK(!id_valid("0000abc"));
	CHECK(!id_valid("../../../../../../../etc"));
	CHECK(!id_valid("0000ABCDEFGHIJKLMNOPQRST"));
	CHECK(!id_valid("0000abcdefghijklmnopqrst0"));
	CHECK(!id_valid("0000abcdefghijklmnopqrs\n"));
	CHECK(id_valid("0000abcdefghijklmnopqrst"));
}
