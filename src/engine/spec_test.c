#include "engine/spec.h"
#include "base/base.h"
#include "base/test.h"
#include "proto/frame.h"

static struct err e;

static struct sandbox_spec good(void)
{
	struct sandbox_spec s = { .uid = 1000, .gid = 1000, .limits = { .memory = 512 * MIB, .pids = 256 } };

	snprintf(s.image, sizeof(s.image), "host");
	snprintf(s.hostname, sizeof(s.hostname), "sandbox");
	snprintf(s.workdir, sizeof(s.workdir), "/home/user");
	s.nmounts = SPEC_MOUNTS;
	s.ntmpfs = SPEC_TMPFS;
	for (size_t i = 0; i < SPEC_MOUNTS; i++) {
		snprintf(s.mount[i].src, SPEC_PATH, "/srv/%zu", i);
		snprintf(s.mount[i].dst, SPEC_PATH, "/mnt/%zu", i);
	}
	for (size_t i = 0; i < SPEC_TMPFS; i++) {
		snprintf(s.tmpfs[i].path, SPEC_PATH, "/scratch/%zu", i);
		s.tmpfs[i].size = MIB;
	}
	return s;
}

static int check(const struct sandbox_spec *s)
{
	e = (struct err){ 0 };
	return spec_check(s, &e);
}

TEST(a_good_spec_with_everything_passes)
{
	struct sandbox_spec s = good();

	CHECK_EQ(check(&s), 0);
	s.flags = SPEC_FLAGS & ~SPEC_MEMORY & ~SPEC_TIERS;
	snprintf(s.disk, sizeof(s.disk), "0000abcdefghjkmnpqrstvwx");
	s.uid = s.gid = 0;
	CHECK_EQ(check(&s), 0);
	s.uid = s.gid = 65535;
	CHECK_EQ(check(&s), 0);
}

TEST(strings_that_do_not_end_are_refused)
{
	struct sandbox_spec s;

#define UNENDED(field)                                                                                                 \
	do {                                                                                                           \
		s = good();                                                                                            \
		memset(s.field, 'a', sizeof(s.field));                                                                 \
		s.field[0] = '/';                                                                                      \
		CHECK_EQ(check(&s), -EINVAL);                                                                          \
		CHECK(e.msg[0]);                                                                                       \
	} while (0)
	UNENDED(image);
	UNENDED(hostname);
	UNENDED(workdir);
	UNENDED(mount[0].src);
	UNENDED(mount[SPEC_MOUNTS - 1].dst);
	UNENDED(tmpfs[SPEC_TMPFS - 1].path);
}

TEST(control_characters_are_refused_everywhere)
{
	static const char bad[] = { '\n', '\t', '\033', '\001', '\177' };
	struct sandbox_spec s;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		s = good();
		s.hostname[1] = bad[i];
		CHECK_EQ(check(&s), -EINVAL);
		s = good();
		s.workdir[1] = bad[i];
		CHECK_EQ(check(&s), -EINVAL);
		s = good();
		s.mount[3].src[2] = bad[i];
		CHECK_EQ(check(&s), -EINVAL);
		s = good();
		s.mount[3].dst[2] = bad[i];
		CHECK_EQ(check(&s), -EINVAL);
		s = good();
		s.tmpfs[3].path[2] = bad[i];
		CHECK_EQ(check(&s), -EINVAL);
		s = good();
		snprintf(s.image, sizeof(s.image), "/i%cx", bad[i]);
		CHECK_EQ(check(&s), -EINVAL);
		CHECK(!strpbrk(e.msg, "\n\t\033\001\177")); /* nor do they reach the message */
	}
}

TEST(paths_are_absolute_and_go_only_down)
{
	static const char *const bad[] = { "",	    "x",     "./x",	"..",	      "/..",
					   "/../x", "/x/..", "/x/../y", "/x/../../y", "/x//.." };
	static const char *const fine[] = { "/x",   "//x",  "/x/",  "/x//y", "/./x",
					    "/...", "/..x", "/x..", "/.x",   "/x/.../y" };
	struct sandbox_spec s;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		s = good();
		snprintf(s.workdir, SPEC_PATH, "%s", bad[i]);
		if (check(&s) != -EINVAL)
			TEST_FAIL("workdir '%s' passed", bad[i]);
		s = good();
		snprintf(s.mount[0].src, SPEC_PATH, "%s", bad[i]);
		if (check(&s) != -EINVAL)
			TEST_FAIL("source '%s' passed", bad[i]);
		s = good();
		snprintf(s.mount[0].dst, SPEC_PATH, "%s", bad[i]);
		if (check(&s) != -EINVAL)
			TEST_FAIL("target '%s' passed", bad[i]);
		s = good();
		snprintf(s.image, SPEC_PATH, "%s", bad[i]);
		if (check(&s) != -EINVAL)
			TEST_FAIL("image '%s' passed", bad[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
		s = good();
		snprintf(s.workdir, SPEC_PATH, "%s", fine[i]);
		snprintf(s.mount[0].dst, SPEC_PATH, "%s", fine[i]);
		if (check(&s) != 0)
			TEST_FAIL("'%s' refused: %s", fine[i], e.msg);
	}
}

TEST(targets_in_the_sandboxs_own_places_are_refused)
{
	static const char *const bad[] = {
		"/proc",	  "/proc/",   "/proc/sys", "//proc",   "///proc//sys", "/./proc",    "/.//proc",
		"/././proc",	  "//./proc", "/dev",	   "/dev/shm", "/dev//shm",    "/./dev/pts", "/sys",
		"/sys/fs/cgroup", "/",	      "//",	   "/.",       "/./",	       "/./.",
	};
	static const char *const fine[] = { "/procx", "/proc.d/x", "/x/proc", "/device", "/sysroot", "/home/dev" };
	struct sandbox_spec s;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		s = good();
		snprintf(s.mount[1].dst, SPEC_PATH, "%s", bad[i]);
		if (check(&s) != -EINVAL)
			TEST_FAIL("mount target '%s' passed", bad[i]);
		s = good();
		snprintf(s.tmpfs[1].path, SPEC_PATH, "%s", bad[i]);
		if (check(&s) != -EINVAL)
			TEST_FAIL("tmpfs '%s' passed", bad[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
		s = good();
		snprintf(s.mount[1].dst, SPEC_PATH, "%s", fine[i]);
		if (check(&s) != 0)
			TEST_FAIL("'%s' refused: %s", fine[i], e.msg);
	}
}

TEST(counts_and_flags_out_of_range_are_refused)
{
	struct sandbox_spec s;

	s = good();
	s.nmounts = SPEC_MOUNTS + 1;
	CHECK_EQ(check(&s), -EINVAL);
	s.nmounts = UINT32_MAX;
	CHECK_EQ(check(&s), -EINVAL);
	s = good();
	s.ntmpfs = SPEC_TMPFS + 1;
	CHECK_EQ(check(&s), -EINVAL);
	for (unsigned bit = 0; bit < 32; bit++) {
		if (1U << bit & SPEC_TIERS) /* each decides for itself: tier_check() */
			continue;
		s = good();
		s.flags = 1U << bit;
		CHECK_EQ(check(&s), s.flags & SPEC_FLAGS & ~SPEC_MEMORY & ~SPEC_TIERS & ~SPEC_DISK_AGAIN ? 0 : -EINVAL);
	}
	s = good();
	s.flags = SPEC_MEMORY; /* of which layer? */
	CHECK_EQ(check(&s), -EINVAL);
	s.layers = 1;
	id_new(s.layer[0], sizeof(s.layer[0]));
	CHECK_EQ(check(&s), 0);
}

TEST(ids_that_are_not_mapped_or_the_agents_are_refused)
{
	static const uint32_t bad[] = { AGENT_UID, 65536, 100000, UINT32_MAX };
	struct sandbox_spec s;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		s = good();
		s.uid = bad[i];
		CHECK_EQ(check(&s), -EINVAL);
		s = good();
		s.gid = bad[i];
		CHECK_EQ(check(&s), -EINVAL);
	}
}

TEST(limits_too_small_to_work_are_refused)
{
	struct sandbox_spec s;

#define LIMIT(field, low)                                                                                              \
	do {                                                                                                           \
		s = good();                                                                                            \
		s.limits.field = (low);                                                                                \
		CHECK_EQ(check(&s), 0);                                                                                \
		s.limits.field = (low)-1;                                                                              \
		CHECK_EQ(check(&s), -EINVAL);                                                                          \
		s.limits.field = 0; /* lifted */                                                                       \
		CHECK_EQ(check(&s), 0);                                                                                \
	} while (0)
	LIMIT(memory, 8 * MIB);
	LIMIT(disk, 64 * KIB);
	LIMIT(inodes, 64);
	LIMIT(pids, 2);
	LIMIT(cpu_milli, 10);
}

TEST(a_size_without_its_unit_is_pointed_out)
{
	struct sandbox_spec s = good();

	s.limits.memory = 256;
	CHECK_EQ(check(&s), -EINVAL);
	CHECK_STR(e.msg, "memory must be at least 8M (got 256 bytes; did you mean \"256M\"?)");
	s = good();
	s.limits.disk = 64 * KIB - 1;
	CHECK_EQ(check(&s), -EINVAL);
	CHECK_STR(e.msg, "disk must be at least 64K (got 65535 bytes; did you mean \"65535M\"?)");
	s = good();
	s.limits.memory = 4 * MIB;
	CHECK_EQ(check(&s), -EINVAL);
	CHECK_STR(e.msg, "memory must be at least 8M (got 4194304 bytes)");
}

TEST(what_is_beyond_the_counts_is_not_looked_at)
{
	struct sandbox_spec s = good();

	memset(&s.mount[2], 0xff, sizeof(s.mount[2]));
	memset(&s.tmpfs[2], 0xff, sizeof(s.tmpfs[2]));
	s.nmounts = s.ntmpfs = 2;
	CHECK_EQ(check(&s), 0);
	s.nmounts = 3;
	CHECK_EQ(check(&s), -EINVAL);
}

TEST(any_tier_can_be_asked_for_but_no_jail)
{
	struct sandbox_spec s = good();

	for (uint32_t bit = 1; bit; bit <<= 1)
		if (bit & SPEC_TIERS) { /* which ones there are, tier_check() knows */
			s.flags = bit;
			CHECK_EQ(check(&s), 0);
		}
	s = good();
	s.flags |= SPEC_JAIL;
	CHECK_EQ(check(&s), -EINVAL);
}
