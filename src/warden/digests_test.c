#include "warden/digests.h"
#include "base/base.h"
#include "base/test.h"
#include "warden/tree.h"

#include <stdlib.h>
#include <sys/mman.h>
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

TEST(sums_of_what_is_in_memory_are_those_of_the_file)
{
	const size_t size = 3 * PIECE + 4097;
	AUTO_CLOSE int fd = memfd_create("digests", MFD_CLOEXEC);
	AUTO_FREE char *data = make_data(size), *buf = malloc(TREE_BUF);

	CHECK(data && buf && pwrite(fd, data, size, 0) == (ssize_t)size);
	for (size_t n = 0; n * PIECE < size; n++) {
		size_t at = n * PIECE, len = size - at < PIECE ? size - at : PIECE;
		uint8_t a[SHA256_SIZE], b[SHA256_SIZE];

		CHECK(digests_piece(fd, size, n, NULL, buf, a) == 0);
		digests_bytes(data + at, len, at, b);
		CHECK(!memcmp(a, b, sizeof(a)));
	}
}

TEST(only_what_was_added_is_known_and_only_so_much)
{
	struct digests *d = digests_new();
	uint8_t (*sum)[SHA256_SIZE] = digests_add(d, 7, 2 * PIECE + 1), found[SHA256_SIZE];

	CHECK(d && sum);
	memset(sum[2], 'x', sizeof(sum[2]));
	CHECK(digests_find(d, 7, 2 * PIECE + 1, 2, found) && found[0] == 'x');
	CHECK(!digests_find(d, 7, 2 * PIECE + 1, 3, found) && !digests_find(d, 7, 2 * PIECE, 1, found));
	CHECK(!digests_find(d, 8, 2 * PIECE + 1, 0, found) && !digests_find(NULL, 7, 2 * PIECE + 1, 0, found));
	CHECK(!digests_add(d, 9, DIGESTS_PIECES * (uint64_t)PIECE) && !digests_add(NULL, 9, PIECE));
	for (unsigned i = 1; i < DIGESTS_FILES; i++)
		CHECK(digests_add(d, 100 + i, PIECE));
	CHECK(!digests_add(d, 9, PIECE));
	digests_free(d);
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

TEST(two_pieces_at_once_have_the_sums_they_have_alone)
{
	static char data[2][70001];
	uint8_t want[2][SHA256_SIZE], got[2][SHA256_SIZE];

	for (size_t i = 0; i < sizeof(data[0]); i++) {
		data[0][i] = (char)(i * 2654435761U >> 13 | 1);
		data[1][i] = (char)(i * 40503U >> 5 | 1);
	}
	/* Dense; then with a block of zeros in one of them, which is a hole. */
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 2; i++)
			digests_bytes(data[i], sizeof(data[i]), 1000000 * (i + 1), want[i]);
		digests_bytes_two((const char *const[2]){ data[0], data[1] }, sizeof(data[0]),
				  (const uint64_t[2]){ 1000000, 2000000 }, (uint8_t *const[2]){ got[0], got[1] });
		CHECK(!memcmp(got, want, sizeof(want)) && memcmp(got[0], got[1], SHA256_SIZE));
		memset(data[1] + 8192, 0, 4096);
	}
}
