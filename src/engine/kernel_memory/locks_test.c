#include "engine/kernel_memory/locks.h"
#include "base/base.h"
#include "base/test.h"
#include "engine/kernel_memory/mounts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

TEST(a_line_of_proc_locks_is_a_device_and_an_inode)
{
	struct kernel_lock l = { 0 };

	CHECK(kernel_lock_parse("1: POSIX  ADVISORY  WRITE 778 00:33:18 0 EOF\n", &l));
	CHECK(l.dev == makedev(0, 0x33) && l.ino == 18 && !l.ofd);
	CHECK(kernel_lock_parse("204: OFDLCK ADVISORY  READ  -1 fe:00:18446744073709551615 2 2", &l));
	CHECK(l.dev == makedev(0xfe, 0) && l.ino == UINT64_MAX && l.ofd);
	CHECK(kernel_lock_parse("3: FLOCK  ADVISORY  READ  778 103:02:1 0 EOF", &l));
	CHECK(l.dev == makedev(0x103, 2) && !l.ofd);
	CHECK(kernel_lock_parse("4: LEASE  ACTIVE    READ  778 00:1b:7 0 EOF", &l));
	CHECK(kernel_lock_parse("4: DELEG  BREAKING  WRITE 778 00:1b:7 0 EOF", &l));
}

TEST(what_waits_for_a_lock_or_is_no_whole_line_is_not_one)
{
	static const char *const lines[] = {
		"",
		"\n",
		"1: -> POSIX  ADVISORY  WRITE 778 00:33:18 0 EOF",
		"POSIX  ADVISORY  WRITE 778 00:33:18 0 EOF",
		"1: POSIX  *NOINODE*",
		"1: OFDLCK ADVISORY  READ  -1 <none>:0 0 EOF",
		"1: OFDLCK ADVISORY  READ  -1 00:1b",
		"1: ",
		"8446744073709551615184467440737095516151844674407370955161518446744073709551615"
	};
	struct kernel_lock l = { .ino = 5 };

	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		CHECK(!kernel_lock_parse(lines[i], &l));
	CHECK(l.ino == 5);
}

TEST(a_line_of_maps_is_a_device_and_an_inode)
{
	uint64_t dev = 0, ino = 0;

	CHECK(kernel_lock_parse_map(
		"7f51b2a00000-7f51b2a01000 r--s 00000000 00:01 2053                       /memfd:lock (deleted)\n",
		&dev, &ino));
	CHECK(dev == makedev(0, 1) && ino == 2053);
	CHECK(!kernel_lock_parse_map(
		"7ffd0a7e0000-7ffd0a801000 rw-p 00000000 00:00 0                          [stack]\n", &dev, &ino));
	CHECK(!kernel_lock_parse_map("of a path that was too long for one line", &dev, &ino));
}

#define LOCKS 12000
#define EACH 500

/* Takes read locks of a file that is mapped, and whose descriptors are closed. */
static bool keep_locks(void *map[LOCKS / EACH])
{
	for (unsigned i = 0; i < LOCKS / EACH; i++) {
		struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1 };
		AUTO_CLOSE int fd = memfd_create("locks-test", MFD_CLOEXEC);

		for (; l.l_start < 2 * EACH; l.l_start += 2)
			if (fcntl(fd, F_OFD_SETLK, &l) < 0)
				return false;
		map[i] = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
		if (map[i] == MAP_FAILED)
			return false;
	}
	return true;
}

static void wait_a_little(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}

static void drop_locks(void *map[LOCKS / EACH])
{
	for (unsigned i = 0; i < LOCKS / EACH; i++)
		munmap(map[i], 4096);
}

/* Looks until @bytes are found by that rule, for 60 s. */
static uint64_t found(struct kernel_locks *k, const struct kernel_locks_owner *o, struct kernel_locks_of *of,
		      const uint64_t *which, uint64_t bytes)
{
	for (int i = 0; i < 12000 && *which < bytes; i++) {
		kernel_locks_start(k, KERNEL_LOCKS_SOON);
		if (kernel_locks_news(k, of))
			kernel_locks_assign(k, o, of);
		wait_a_little();
	}
	return *which;
}

TEST(locks_of_a_file_that_is_mapped_are_found_by_its_mapping)
{
	const int self = (int)getpid();
	struct kernel_locks *k = kernel_locks_new();
	struct kernel_locks_owner o = { .id = 1, .pid = &self, .npids = 1 };
	struct kernel_locks_of of = { 0 };
	void *map[LOCKS / EACH];
	uint64_t bytes;

	CHECK(k && keep_locks(map));
	/* An estimate: other programs on the machine have and change locks, too. */
	bytes = found(k, &o, &of, &of.mapped, (uint64_t)LOCKS / 2 * KERNEL_LOCK_BYTES);
	CHECK(bytes >= (uint64_t)LOCKS / 2 * KERNEL_LOCK_BYTES);
	CHECK(kernel_locks_count(k) >= LOCKS / 2);
	CHECK_EQ(of.own, 0);
	drop_locks(map);
	kernel_locks_free(k);
}

TEST(locks_on_a_file_system_of_its_own_need_no_process)
{
	struct kernel_locks *k = kernel_locks_new();
	struct kernel_locks_of of = { 0 };
	struct stat st = { 0 };
	AUTO_CLOSE int fd = memfd_create("locks-test", MFD_CLOEXEC);
	struct kernel_locks_owner o = { .id = 1, .ndevices = 1 };
	uint64_t dev;
	void *map[LOCKS / EACH];

	CHECK(k && fstat(fd, &st) == 0 && keep_locks(map));
	dev = st.st_dev;
	o.device = &dev;
	CHECK(found(k, &o, &of, &of.own, (uint64_t)LOCKS / 2 * KERNEL_LOCK_BYTES) >=
	      (uint64_t)LOCKS / 2 * KERNEL_LOCK_BYTES);
	drop_locks(map);
	kernel_locks_free(k);
}

TEST(locks_of_a_memfd_that_only_others_have_are_not_its_own)
{
	struct kernel_locks *k = kernel_locks_new();
	struct kernel_locks_of of = { 0 };
	struct kernel_locks_owner o = { .id = 1 };
	void *map[LOCKS / EACH];
	uint64_t before = 0;

	CHECK(k && keep_locks(map));
	for (int i = 0; i < 12000 && !(before && of.sample > before + 1); i++) {
		kernel_locks_start(k, KERNEL_LOCKS_SOON);
		if (kernel_locks_news(k, &of))
			kernel_locks_assign(k, &o, &of);
		before = before ? before : of.sample;
		wait_a_little();
	}
	CHECK(of.sample > before);
	CHECK_EQ(of.own + of.mapped, 0);
	drop_locks(map);
	kernel_locks_free(k);
}

TEST(a_figure_counts_only_for_a_moment)
{
	const struct kernel_locks_shown none = { .whole = true },
					some = { .all = 8 * MIB, .shared = 2 * MIB, .whole = true },
					part = { .all = 8 * MIB, .shared = 2 * MIB };
	struct kernel_locks_of of = { .own = 6 * MIB, .mapped = MIB, .until_ns = UINT64_MAX };

	CHECK_EQ(kernel_locks_bytes_of(&of, &none), 4 * 7 * MIB);
	/* Locks on its own file systems are all shown by descriptors. */
	CHECK_EQ(kernel_locks_bytes_of(&of, &some), (8 + 4) * MIB);
	of.own = 16 * MIB;
	CHECK_EQ(kernel_locks_bytes_of(&of, &some), (8 + 4 * 11) * MIB);
	/* Locks that descriptors show are not known yet. */
	CHECK_EQ(kernel_locks_bytes_of(&of, &part), (8 + 4 + 10) * MIB);
	of.until_ns = 1;
	CHECK_EQ(kernel_locks_bytes_of(&of, &some), 8 * MIB);
}

TEST(a_sample_from_before_it_was_ended_does_not_count)
{
	const int self = (int)getpid();
	struct kernel_locks *k = kernel_locks_new();
	struct kernel_locks_owner o = { .id = 1, .pid = &self, .npids = 1 };
	struct kernel_locks_of of = { .not_before_ns = UINT64_MAX / 2 };
	void *map[LOCKS / EACH];

	CHECK(k && keep_locks(map));
	for (int i = 0; i < 12000 && !of.sample; i++) {
		kernel_locks_start(k, KERNEL_LOCKS_SOON);
		if (kernel_locks_news(k, &of))
			kernel_locks_assign(k, &o, &of);
		wait_a_little();
	}
	CHECK(of.sample > 0);
	CHECK_EQ(kernel_locks_bytes_of(&of, &(struct kernel_locks_shown){ .whole = true }), 0);
	drop_locks(map);
	kernel_locks_free(k);
}
