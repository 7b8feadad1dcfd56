#include "memory/writer.h"
#include "base/base.h"
#include "base/piece.h"
#include "base/sys.h"
#include "base/test.h"

#include <sys/mman.h>
#include <unistd.h>

static struct writer *made[16]; /* a program has one, and ends with it */
static unsigned n_made;

static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)(at / 4096 * 7);
}

/* As a manifest has it, of what is in the file. */
static void sum_of(int fd, uint64_t len, uint8_t ret[SHA256_SIZE])
{
	static uint8_t piece[PIECE_SIZE];
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, &len, sizeof(len));
	for (uint64_t at = 0; at < len; at += PIECE_SIZE) {
		const size_t n = len - at < PIECE_SIZE ? len - at : PIECE_SIZE;

		if (pread(fd, piece, n, (off_t)at) != (ssize_t)n)
			abort();
		for (size_t i = 0; i < n; i += 4096)
			if (piece[i] != byte_at(at + i))
				abort();
		piece_sum(piece, n, sum);
		sha256_add(&s, sum, sizeof(sum));
	}
	sha256_end(&s, ret);
}

/* Buffers of these lengths, one behind the other, none of which is waited for. */
static void check(const size_t *len, size_t n)
{
	const int fd = sys_memfd_create("pages", MFD_CLOEXEC);
	uint8_t sum[SHA256_SIZE], want[SHA256_SIZE];
	struct writer *w = NULL;
	struct err e = { 0 };
	uint64_t at = 0;

	CHECK(fd >= 0);
	CHECK_EQ(writer_new(&w, &e), 0);
	made[n_made++ % ARRAY_LEN(made)] = w;
	CHECK_EQ(writer_sum(w, &e), 0);
	for (size_t i = 0; i < n; i++) {
		uint8_t *data = NULL;

		CHECK_EQ(writer_buffer(w, &data), 0);
		for (size_t k = 0; k < len[i]; k += 4096)
			memset(data + k, byte_at(at + k), 4096);
		at += len[i];
		writer_put(w, fd, data, len[i]);
	}
	CHECK_EQ(writer_end(w, sum), 0);
	sum_of(fd, at, want);
	CHECK(!memcmp(sum, want, sizeof(sum)));
	close(fd);
}

TEST(the_sum_is_that_of_the_file_whoever_has_taken_it)
{
	static const size_t whole[] = { WRITER_BUFFER, PIECE_SIZE, WRITER_BUFFER, 4 * PIECE_SIZE };
	static const size_t mixed[] = { 2 * PIECE_SIZE, 4096,  4 * PIECE_SIZE, PIECE_SIZE - 4096,
					8 * PIECE_SIZE, 12288, 4096,	       PIECE_SIZE };
	static const size_t few[] = { 4096 };

	check(whole, ARRAY_LEN(whole));
	check(mixed, ARRAY_LEN(mixed));
	check(few, ARRAY_LEN(few));
}
