#include "warden/digests.h"
#include "base/base.h"
#include "base/test.h"
#include "warden/tree.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)DIGESTS_PIECE)

/* Noise with zeros: whole blocks, parts of blocks, across a piece's end. */
static char *make_data(size_t len)
{
	char *p = malloc(len);

	for (size_t i = 0; p && i < len; i++)
		p[i] = (char)(i * 2654435761U >> 13 | 1);
	for (size_t at = 100000; p && at + 20000 < len; at += PIECE / 2 - 9000)
		memset(p + at, 0, 20000);
	return p;
}

static bool agrees(size_t size, size_t step)
{
	AUTO_CLOSE int fd = memfd_create("digests", MFD_CLOEXEC);
	AUTO_FREE char *data = make_data(size), *buf = malloc(TREE_BUF);
	struct digests *d = digests_new(NULL);
	bool same = true, known = size > PIECE;
	struct stat st;

	if (fd < 0 || !data || !buf || !d || fstat(fd, &st) < 0)
		return false;
	digests_file(d, fd, size);
	for (size_t at = 0; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;

		same = same && pwrite(fd, data + at, n, (off_t)at) == (ssize_t)n;
		digests_more(d, at + n);
	}
	digests_end(d, buf);
	for (size_t n = 0; n * PIECE < size; n++) {
		uint8_t is[SHA256_SIZE], found[SHA256_SIZE];

		same = same && digests_piece(fd, size, n, NULL, buf, is) == 0 &&
		       digests_find(d, st.st_ino, size, n, found) == known &&
		       (!known || !memcmp(is, found, sizeof(is)));
		same = same && !digests_find(d, st.st_ino + 1, size, n, found) &&
		       !digests_find(d, st.st_ino, size + 1, n, found);
	}
	digests_free(d);
	return same;
}

TEST(sums_taken_meanwhile_are_those_taken_afterwards)
{
	static const size_t sizes[] = { PIECE, PIECE + 1, 2 * PIECE, 5 * PIECE + 4097 };

	for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
		CHECK(agrees(sizes[i], 512 << 10));
		CHECK(agrees(sizes[i], 70001));
	}
}

TEST(a_file_that_was_not_finished_is_not_known)
{
	AUTO_CLOSE int fd = memfd_create("digests", MFD_CLOEXEC);
	AUTO_FREE char *buf = malloc(TREE_BUF);
	struct digests *d = digests_new(NULL);
	uint8_t sum[SHA256_SIZE];
	struct stat st;

	CHECK(d && buf && ftruncate(fd, 3 * (off_t)PIECE) == 0 && fstat(fd, &st) == 0);
	digests_file(d, fd, 3 * PIECE);
	digests_more(d, 2 * PIECE - 1);
	digests_file(d, fd, 0); /* another: nothing is said of the first any more */
	digests_more(d, 3 * PIECE);
	digests_end(d, buf);
	CHECK(digests_find(d, st.st_ino, 3 * PIECE, 0, sum));
	CHECK(!digests_find(d, st.st_ino, 3 * PIECE, 1, sum) && !digests_find(d, st.st_ino, 3 * PIECE, 2, sum));
	digests_free(d);
	digests_free(digests_new(NULL));
	digests_free(NULL);
}

/* A hole and zeros are the same, and one byte makes another sum. */
TEST(zeros_are_holes)
{
	AUTO_CLOSE int a = memfd_create("a", MFD_CLOEXEC), b = memfd_create("b", MFD_CLOEXEC);
	AUTO_FREE char *data = calloc(1, 2 * PIECE), *buf = malloc(TREE_BUF);
	uint8_t of_a[SHA256_SIZE], of_b[SHA256_SIZE];

	CHECK(data && buf);
	memset(data + PIECE + 5000, 'x', 10);
	CHECK(pwrite(a, data, 2 * PIECE, 0) == (ssize_t)(2 * PIECE));
	CHECK(ftruncate(b, 2 * (off_t)PIECE) == 0 && pwrite(b, "xxxxxxxxxx", 10, (off_t)PIECE + 5000) == 10);
	for (unsigned n = 0; n < 2; n++) {
		CHECK(digests_piece(a, 2 * PIECE, n, NULL, buf, of_a) == 0);
		CHECK(digests_piece(b, 2 * PIECE, n, NULL, buf, of_b) == 0);
		CHECK(!memcmp(of_a, of_b, sizeof(of_a)));
	}
	CHECK(pwrite(b, "y", 1, (off_t)PIECE + 5003) == 1);
	CHECK(digests_piece(b, 2 * PIECE, 1, NULL, buf, of_b) == 0 && memcmp(of_a, of_b, sizeof(of_a)));
}
