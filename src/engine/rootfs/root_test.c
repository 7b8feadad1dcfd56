#include "engine/rootfs/root.h"
#include "base/base.h"
#include "base/test.h"

static void limits(uint32_t flags, struct spec_limits l, uint64_t want_disk, uint64_t want_inodes)
{
	struct sandbox_spec s = { .flags = flags, .limits = l };
	uint64_t disk = 1, inodes = 1;

	root_limits(&s, &disk, &inodes);
	CHECK_EQ(disk, want_disk);
	CHECK_EQ(inodes, want_inodes);
}

TEST(files_in_memory_never_get_all_of_it)
{
	/* An eighth stays free, at least 4M and at most 64M. */
	limits(0, (struct spec_limits){ .memory = 512 * MIB, .disk = GIB }, 448 * MIB, 131072);
	limits(0, (struct spec_limits){ .memory = 8 * MIB, .disk = GIB }, 4 * MIB, 131072);
	limits(0, (struct spec_limits){ .memory = 160 * MIB, .disk = GIB }, 140 * MIB, 131072);
	limits(0, (struct spec_limits){ .memory = 512 * MIB, .disk = 10 * MIB }, 10 * MIB, 1280);
}

TEST(a_lifted_limit_stays_lifted_unless_memory_bounds_it)
{
	limits(0, (struct spec_limits){ 0 }, 0, 0);
	limits(0, (struct spec_limits){ .memory = 512 * MIB }, 448 * MIB, 0);
	limits(SPEC_DISK, (struct spec_limits){ .memory = 512 * MIB }, 0, 0);
}

TEST(a_disk_is_not_bounded_by_memory)
{
	limits(SPEC_DISK, (struct spec_limits){ .memory = 8 * MIB, .disk = GIB }, GIB, 131072);
}

TEST(inodes_follow_the_disk_unless_given)
{
	limits(0, (struct spec_limits){ .disk = MIB }, MIB, 1024);
	limits(0, (struct spec_limits){ .disk = GIB, .inodes = 77 }, GIB, 77);
}

TEST(an_empty_root_can_be_ended_twice)
{
	static struct root r;

	root_init(&r);
	root_done(&r);
	root_done(&r);
}
