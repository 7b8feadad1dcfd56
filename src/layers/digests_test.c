#include "layers/digests.h"
#include "base/base.h"
#include "base/blake3.h"
#include "base/test.h"
#include "layers/manifest.h"
#include "layers/tree.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)DIGESTS_LARGE)

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

TEST(only_what_was_added_is_known_and_only_so_much)
{
	struct digests *d = digests_new(DIGESTS_LARGE);
	uint8_t(*sum)[SHA256_SIZE] = digests_add(d, 7, 2 * PIECE + 1), found[SHA256_SIZE];

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

/* A hole and zeros have the same sum; one changed byte has another. */
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
		CHECK(digests_piece(a, 2 * PIECE, n, DIGESTS_LARGE, NULL, buf, of_a) == 0);
		CHECK(digests_piece(b, 2 * PIECE, n, DIGESTS_LARGE, NULL, buf, of_b) == 0);
		CHECK(!memcmp(of_a, of_b, sizeof(of_a)));
	}
	CHECK(pwrite(b, "y", 1, (off_t)PIECE + 5003) == 1);
	CHECK(digests_piece(b, 2 * PIECE, 1, DIGESTS_LARGE, NULL, buf, of_b) == 0 && memcmp(of_a, of_b, sizeof(of_a)));
}

TEST(pieces_in_memory_have_the_sums_they_have_in_the_file)
{
	const size_t size = 2 * DIGESTS_AT_ONCE * (size_t)DIGESTS_PIECE - 5;
	AUTO_CLOSE int fd = memfd_create("many", MFD_CLOEXEC);
	AUTO_FREE char *data = make_data(size), *buf = malloc(TREE_BUF);
	uint8_t got[2 * DIGESTS_AT_ONCE][SHA256_SIZE], read[2 * DIGESTS_AT_ONCE][SHA256_SIZE], want[SHA256_SIZE];

	CHECK(data && buf);
	memset(data + DIGESTS_PIECE, 0, DIGESTS_PIECE);
	CHECK(pwrite(fd, data, size, 0) == (ssize_t)size);
	digests_bytes(data, size, got);
	CHECK_EQ(digests_pieces(fd, size, 0, NULL, buf, read), DIGESTS_AT_ONCE);
	CHECK_EQ(digests_pieces(fd, size, TREE_BUF, NULL, buf, read + DIGESTS_AT_ONCE), DIGESTS_AT_ONCE);
	for (size_t i = 0; i < ARRAY_LEN(got); i++) {
		const size_t at = i * DIGESTS_PIECE, len = size - at < DIGESTS_PIECE ? size - at : DIGESTS_PIECE;

		CHECK(!memcmp(got[i], read[i], sizeof(read[i])) && digests_is_none(got[i]) == (i == 1));
		blake3_plain(data + at, len, want);
		CHECK(i == 1 || !memcmp(got[i], want, sizeof(want)));
	}
	CHECK(ftruncate(fd, 10) == 0 && digests_pieces(fd, size, 0, NULL, buf, read) == -ESTALE);
}

/* A layer's folder with a small file, and a large one with a hole in it. */
static int make_layer(char *path, const char *data, size_t size)
{
	int dir = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, fd;

	if (dir < 0 || mkdirat(dir, "fs", 0700) < 0 || mkdirat(dir, "fs/u", 0700) < 0)
		return -1;
	fd = openat(dir, "fs/u/f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || pwrite(fd, data, size, 0) != (ssize_t)size || pwrite(fd, "x", 1, 9 * (off_t)PIECE) != 1)
		return -1;
	close(fd);
	fd = openat(dir, "fs/u/small", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || pwrite(fd, data, 10, 0) != 10)
		return -1;
	close(fd);
	return dir;
}

TEST(layers_of_containers_and_of_machines_are_compared_each_in_their_own_way)
{
	const size_t size = 2 * PIECE + 4097;
	AUTO_FREE char *data = make_data(size), *zeros = calloc(1, 3 * PIECE);
	char path[] = "/var/tmp/cloche-digests-test-XXXXXX";
	AUTO_CLOSE int dir = make_layer(path, data, size), fd = -1;
	static const uint32_t versions[] = { MANIFEST_VERSION_VM, MANIFEST_VERSION };
	struct manifest m[ARRAY_LEN(versions)] = { 0 };
	struct timespec times[2] = { { 1, 0 }, { 1, 0 } };

	CHECK(dir >= 0 && (fd = openat(dir, "fs/u/f", O_RDWR | O_CLOEXEC)) >= 0 && futimens(fd, times) == 0);
	for (size_t v = 0; v < ARRAY_LEN(versions); v++) {
		m[v].version = versions[v];
		CHECK_EQ(manifest_sum(dir, NULL, NULL, &m[v]), 0);
		CHECK(m[v].files == 2 && (!v || memcmp(m[v].sum, m[v - 1].sum, SHA256_SIZE)));
	}
	/* Filling a hole with zeros keeps the sum; moving data by a piece, or changing one byte, does not. */
	CHECK(pwrite(fd, zeros, 3 * PIECE, 4 * (off_t)PIECE) == (ssize_t)(3 * PIECE) && futimens(fd, times) == 0);
	for (size_t v = 0; v < ARRAY_LEN(versions); v++)
		CHECK_EQ(manifest_verify(dir, NULL, &m[v]), 0);
	CHECK(pwrite(fd, "", 1, 9 * (off_t)PIECE) == 1 && pwrite(fd, "x", 1, 9 * (off_t)PIECE - DIGESTS_PIECE) == 1);
	CHECK(futimens(fd, times) == 0);
	for (size_t v = 0; v < ARRAY_LEN(versions); v++)
		CHECK_EQ(manifest_verify(dir, NULL, &m[v]), -EBADMSG);
	CHECK(tree_remove(AT_FDCWD, path) == 0);
}

/* Both files are larger than one thread's share, and their pages more than one step takes. */
TEST(memory_of_containers_and_of_machines_is_compared_each_in_its_own_way)
{
	const off_t size = (300LL << 20) + 4096, at[] = { 0, DIGESTS_PIECE - 1, 100LL << 20, 256LL << 20, size - 1 };
	char path[] = "/var/tmp/cloche-digests-test-XXXXXX";
	AUTO_FREE char *data = make_data(PIECE);
	AUTO_CLOSE int dir = make_layer(path, data, PIECE), meta = -1, pages = -1;
	struct manifest vm = { .version = MANIFEST_VERSION_VM }, m = { .version = MANIFEST_VERSION };

	CHECK(dir >= 0 && mkdirat(dir, "mem", 0700) == 0);
	meta = openat(dir, "mem/meta", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	pages = openat(dir, "mem/pages", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(pwrite(meta, data, PIECE, 0) == (ssize_t)PIECE && ftruncate(pages, size) == 0);
	for (size_t i = 0; i < ARRAY_LEN(at); i++)
		CHECK(pwrite(pages, "x", 1, at[i]) == 1);
	CHECK_EQ(manifest_sum(dir, NULL, NULL, &m), 0);
	CHECK(m.meta == PIECE && m.pages == (uint64_t)size);
	CHECK_EQ(manifest_verify(dir, NULL, &m), 0);
	for (size_t i = 0; i < ARRAY_LEN(at); i++) {
		CHECK(pwrite(pages, "y", 1, at[i]) == 1);
		CHECK_EQ(manifest_verify(dir, NULL, &m), -EBADMSG);
		CHECK(pwrite(pages, "x", 1, at[i]) == 1);
	}
	/* Moving data by a piece, a longer file and a shorter one change the sum. */
	CHECK(pwrite(pages, "", 1, 100LL << 20) == 1 && pwrite(pages, "x", 1, (100LL << 20) + DIGESTS_PIECE) == 1);
	CHECK_EQ(manifest_verify(dir, NULL, &m), -EBADMSG);
	CHECK(pwrite(pages, "", 1, (100LL << 20) + DIGESTS_PIECE) == 1 && pwrite(pages, "x", 1, 100LL << 20) == 1);
	CHECK_EQ(manifest_verify(dir, NULL, &m), 0);
	CHECK(ftruncate(pages, size + DIGESTS_PIECE) == 0);
	CHECK_EQ(manifest_verify(dir, NULL, &m), -EBADMSG);
	CHECK(ftruncate(pages, PIECE) == 0);
	CHECK_EQ(manifest_verify(dir, NULL, &m), -EBADMSG);
	CHECK(manifest_sum(dir, NULL, NULL, &vm) == 0 && manifest_verify(dir, NULL, &vm) == 0 && vm.pages == PIECE);
	CHECK(pwrite(pages, "y", 1, 5) == 1);
	CHECK_EQ(manifest_verify(dir, NULL, &vm), -EBADMSG);
	CHECK(tree_remove(AT_FDCWD, path) == 0);
}

TEST(a_manifest_of_another_version_is_none)
{
	char path[] = "/var/tmp/cloche-digests-test-XXXXXX";
	AUTO_CLOSE int dir = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, fd = -1;

	CHECK(dir >= 0 && (fd = manifest_make(dir)) >= 0);
	for (uint32_t version = 0; version <= MANIFEST_VERSION + 1; version++) {
		struct manifest m = { .version = version, .id = "0123456789abcdef0123456789" }, is;
		const bool known = version == MANIFEST_VERSION || version == MANIFEST_VERSION_VM;

		manifest_seal(&m);
		CHECK_EQ(manifest_write(fd, &m), 0);
		CHECK_EQ(manifest_read(dir, m.id, &is), known ? 0 : -EBADMSG);
		m.version |= MANIFEST_UNSETTLED;
		manifest_seal(&m);
		CHECK_EQ(manifest_write(fd, &m), 0);
		CHECK_EQ(manifest_read(dir, m.id, &is), version == MANIFEST_VERSION ? 0 : -EBADMSG);
	}
	CHECK(tree_remove(AT_FDCWD, path) == 0);
}
