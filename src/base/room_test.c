#include "base/room.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>

TEST(who_needs_most_stops_first)
{
	const struct room small = { 0, 64 * MIB }, middle = { 0, 640 * MIB }, large = { 0, 1ULL << 50 };

	CHECK_EQ(room_low(&small, ROOM_WORK), 4 * MIB);
	CHECK_EQ(room_low(&middle, ROOM_WORK), 10 * MIB);
	CHECK_EQ(room_low(&large, ROOM_WORK), 16 * MIB);
	CHECK(room_low(&small, ROOM_WORK) < room_low(&small, ROOM_OUTPUT));
	CHECK(room_low(&small, ROOM_OUTPUT) < room_low(&small, ROOM_LAYERS));
	CHECK(room_low(&small, ROOM_LAYERS) < small.size);
}

TEST(a_disk_is_asked)
{
	struct room r = { 0 };

	CHECK_EQ(room_of(AT_FDCWD, "/dev/shm", &r), 0);
	CHECK(r.left <= r.size);
	CHECK_EQ(room_of(AT_FDCWD, "/no/such/folder", &r), -ENOENT);
}
