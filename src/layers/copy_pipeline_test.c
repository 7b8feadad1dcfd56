#include "layers/copy_pipeline.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/digests.h"
#include "layers/tree.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PIECE ((size_t)COPY_PIPELINE_PIECE)

/* Random bytes with zeros in between: whole blocks, parts of blocks, across a piece's end. */
static char *make_data(size_t len)
{
	char *p = malloc(len);

	for (size_t i = 0; p && i < len; i++)
		p[i] = (char)(i * 2654435761U >> 13 | 1);
	for (size_t at = 100000; p && at + 20000 < len; at += PIECE / 2 - 9000)
		memset(p + at, 0, 20000);
	return p;
}

static int make_source(const char *data, size_t len, struct stat *ret)
{
	const struct timespec times[2] = { { 1000000, 1 }, { 2000000, 123456789 } };
	int fd = memfd_create("source", MFD_CLOEXEC);

	if (pwrite(fd, data, len, 0) != (ssize_t)len || fchmod(fd, 06751) < 0 || futimens(fd, times) < 0 ||
	    fstat(fd, ret) < 0)
		return -1;
	return fd;
}

/* Makes it on a disk, since layers are on disks. */
static int make_target(int flags)
{
	return open("/var/tmp", O_TMPFILE | flags | O_CLOEXEC, 0600);
}

static bool arrived(int fd, const char *data, size_t size, const struct digests *d)
{
	AUTO_FREE char *is = malloc(size + 1), *buf = malloc(TREE_BUF);
	struct stat st;

	if (!is || !buf || fstat(fd, &st) < 0 || st.st_size != (off_t)size || st.st_mode != (S_IFREG | 06751) ||
	    st.st_mtim.tv_sec != 2000000 || st.st_mtim.tv_nsec != 123456789)
		return false;
	if (fcntl(fd, F_SETFL, O_RDWR) < 0 || pread(fd, is, size + 1, 0) != (ssize_t)size || memcmp(is, data, size))
		return false;
	for (uint64_t at = 0; at < size; at += TREE_BUF) {
		uint8_t sum[DIGESTS_AT_ONCE][SHA256_SIZE], known[SHA256_SIZE];
		int count = digests_pieces(fd, size, at, NULL, buf, sum);

		if (count <= 0)
			return false;
		for (int i = 0; i < count; i++)
			if (!digests_find(d, st.st_ino, size, at / DIGESTS_PIECE + (unsigned)i, known) ||
			    memcmp(sum[i], known, sizeof(known)))
				return false;
	}
	return true;
}

TEST(files_arrive_whole_as_they_were_when_they_were_read)
{
	static const size_t sizes[] = { DIGESTS_PIECE,
					COPY_PIPELINE_DIRECT - 1,
					COPY_PIPELINE_DIRECT,
					DIGESTS_PIECE + 1,
					PIECE + 1,
					2 * PIECE,
					1,
					COPY_PIPELINE_MEMORY + 3 * PIECE + 4097,
					100000 };
	struct digests *d = digests_new(DIGESTS_PIECE);
	struct copy_pipeline *p = copy_pipeline_new(NULL, NULL);
	int to[ARRAY_LEN(sizes)];
	char *data[ARRAY_LEN(sizes)];

	for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
		struct stat st;
		AUTO_CLOSE int from = -1;

		data[i] = make_data(sizes[i]);
		from = make_source(data[i], sizes[i], &st);
		to[i] = make_target(O_RDWR);
		CHECK(from >= 0 && to[i] >= 0);
		CHECK(copy_pipeline_file(p, d, from, to[i], &st, getuid(), getgid()) == 1);
		CHECK(ftruncate(from, 0) == 0); /* a process that has it open can still change it */
	}
	CHECK(copy_pipeline_end(p, NULL, NULL) == 0 && copy_pipeline_end(p, NULL, NULL) == 0);
	for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
		CHECK(arrived(to[i], data[i], sizes[i], d));
		close(to[i]);
		free(data[i]);
	}
	copy_pipeline_free(p);
	digests_free(d);
}

static void note(void *arg)
{
	struct stat st;
	int *fd = arg;

	/* The file must be complete when this is called. */
	*fd = fstat(*fd, &st) == 0 && st.st_size == 3 * (off_t)PIECE && st.st_mtim.tv_sec == 2000000 ? -2 : -3;
}

TEST(memory_is_kept_for_the_next_one_and_what_is_written_is_told)
{
	AUTO_FREE char *data = make_data(3 * PIECE);
	struct copy_pipeline_spare *spare = copy_pipeline_spare_new();
	struct stat st;
	AUTO_CLOSE int from = make_source(data, 3 * PIECE, &st);

	for (unsigned i = 0; i < 3; i++) {
		struct copy_pipeline *p = copy_pipeline_new(NULL, spare), *beside = copy_pipeline_new(NULL, spare);
		struct digests *d = digests_new(DIGESTS_PIECE);
		AUTO_CLOSE int to = make_target(O_RDWR), other = make_target(O_RDWR);
		int told = to;

		CHECK(copy_pipeline_file(p, d, from, to, &st, getuid(), getgid()) == 1);
		CHECK(copy_pipeline_file(beside, d, from, other, &st, getuid(), getgid()) == 1);
		CHECK(copy_pipeline_end(p, note, &told) == 0 && told == -2);
		CHECK(copy_pipeline_end(beside, NULL, NULL) == 0);
		CHECK(arrived(to, data, 3 * PIECE, d) && arrived(other, data, 3 * PIECE, d));
		copy_pipeline_free(p);
		copy_pipeline_free(beside);
		digests_free(d);
	}
	copy_pipeline_spare_free(spare);
	copy_pipeline_spare_free(NULL);
}

TEST(what_does_not_suit_is_left_to_others)
{
	AUTO_FREE char *data = make_data(2 * PIECE);
	struct digests *d = digests_new(DIGESTS_PIECE);
	struct copy_pipeline *p = copy_pipeline_new(NULL, NULL);
	struct stat st, is;
	AUTO_CLOSE int from = make_source(data, 2 * PIECE, &st), to = make_target(O_RDWR), named = make_target(O_RDWR);

	CHECK(copy_pipeline_file(NULL, d, from, to, &st, 0, 0) == 0 && copy_pipeline_end(NULL, NULL, NULL) == 0);
	CHECK(copy_pipeline_file(p, NULL, from, to, &st, 0, 0) == 0);
	CHECK(ftruncate(from, 8 * (off_t)PIECE) == 0 && fstat(from, &is) == 0 &&
	      copy_pipeline_file(p, d, from, to, &is, 0, 0) == 0);
	CHECK(ftruncate(from, 0) == 0 && fstat(from, &is) == 0 && copy_pipeline_file(p, d, from, to, &is, 0, 0) == 0);
	/* A write clears some attributes, so they would have to be set last, when the source may have changed. */
	CHECK(pwrite(named, data, 2 * PIECE, 0) == (ssize_t)(2 * PIECE) && fsetxattr(named, "user.x", "y", 1, 0) == 0 &&
	      fsync(named) == 0 && fstat(named, &is) == 0);
	CHECK(copy_pipeline_file(p, d, named, to, &is, 0, 0) == 0);
	CHECK(copy_pipeline_end(p, NULL, NULL) == 0 && fstat(to, &is) == 0 && !is.st_size &&
	      !(fcntl(to, F_GETFL) & O_DIRECT));
	copy_pipeline_free(p);
	digests_free(d);
}

TEST(a_write_that_fails_is_told_and_so_is_a_file_that_got_shorter)
{
	AUTO_FREE char *data = make_data(20 * PIECE);
	struct digests *d = digests_new(DIGESTS_PIECE);
	struct copy_pipeline *p = copy_pipeline_new(NULL, NULL);
	struct stat st;
	AUTO_CLOSE int from = make_source(data, 20 * PIECE, &st), to = make_target(O_RDWR), only = -1;
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
	only = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(from >= 0 && only >= 0);
	/* more than fits into memory: the error is found on the way */
	CHECK(copy_pipeline_file(p, d, from, only, &st, 0, 0) == -EBADF);
	CHECK(copy_pipeline_end(p, NULL, NULL) == -EBADF);
	copy_pipeline_free(p);
	digests_free(d);
	d = digests_new(DIGESTS_PIECE);
	p = copy_pipeline_new(NULL, NULL);
	CHECK(ftruncate(from, 2 * (off_t)PIECE) == 0 && copy_pipeline_file(p, d, from, to, &st, 0, 0) == -ESTALE);
	copy_pipeline_free(p);
	digests_free(d);
}

/* More bytes than there is room for, of sizes that never fill it evenly, and more files than pieces in flight. */
TEST(hundreds_of_files_go_round_and_round)
{
	enum { FILES = 400 };
	AUTO_FREE char *data = make_data(4 * COPY_PIPELINE_DIRECT);
	struct digests *d = digests_new(DIGESTS_PIECE);
	struct copy_pipeline *p = copy_pipeline_new(NULL, NULL);
	int to[FILES];

	for (unsigned i = 0; i < FILES; i++) {
		struct stat st;
		AUTO_CLOSE int from = make_source(data + i * 64, 1 + i * 1009 % 300000, &st);

		to[i] = make_target(O_RDWR);
		CHECK(from >= 0 && to[i] >= 0 && copy_pipeline_file(p, d, from, to[i], &st, getuid(), getgid()) == 1);
		CHECK(ftruncate(from, 0) == 0);
	}
	CHECK(copy_pipeline_end(p, NULL, NULL) == 0);
	for (unsigned i = 0; i < FILES; i++) {
		CHECK(arrived(to[i], data + i * 64, 1 + i * 1009 % 300000, d));
		close(to[i]);
	}
	copy_pipeline_free(p);
	digests_free(d);
}

TEST(who_gives_up_does_not_wait_for_the_rest)
{
	AUTO_FREE char *data = make_data(4 * PIECE);
	struct digests *d = digests_new(DIGESTS_PIECE);
	int stop = 0;
	struct copy_pipeline *p = copy_pipeline_new(&stop, NULL);
	struct stat st;
	AUTO_CLOSE int from = make_source(data, 4 * PIECE, &st), to = make_target(O_RDWR), other = make_target(O_RDWR);

	CHECK(copy_pipeline_file(p, d, from, to, &st, 0, 0) == 1);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK(copy_pipeline_file(p, d, from, other, &st, 0, 0) == -ECANCELED);
	copy_pipeline_free(p); /* with pieces that are read but not written, or written: both threads stop */
	digests_free(d);
	copy_pipeline_free(NULL);
}

TEST(one_processor_does_as_well_as_many)
{
	AUTO_FREE char *data = make_data(15 * PIECE);
	struct copy_pipeline_spare *spare = copy_pipeline_spare_new();
	cpu_set_t all, one;
	struct stat st;
	AUTO_CLOSE int from = make_source(data, 15 * PIECE, &st);

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	/* The threads have been asked to leave this pipeline, and there is no other. */
	for (unsigned i = 0; i < 3; i++) {
		struct copy_pipeline *p = copy_pipeline_new(NULL, spare);
		struct digests *d = digests_new(DIGESTS_PIECE);
		AUTO_CLOSE int to = make_target(O_RDWR);

		CHECK(sched_setaffinity(0, sizeof(one), i == 1 ? &one : &all) == 0);
		CHECK(copy_pipeline_file(p, d, from, to, &st, getuid(), getgid()) == 1);
		CHECK(copy_pipeline_end(p, NULL, NULL) == 0 && arrived(to, data, 15 * PIECE, d));
		copy_pipeline_free(p);
		digests_free(d);
	}
	copy_pipeline_spare_free(spare);
}
