/* BLAKE3 in plain C, several parts of an input at once. */
#include "base/blake3.h"
#include "base/base.h"
#include "base/cpu.h"

#define BLOCK 64U
#define CHUNK 1024U
enum { START = 1, END = 2, PARENT = 4, ROOT = 8 };

static const uint32_t blake3_iv[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
				       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
/* Each is the one before, permuted. */
static const uint8_t blake3_order[7][16] = {
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	{ 2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8 },
	{ 3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1 },
	{ 10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6 },
	{ 12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4 },
	{ 9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7 },
	{ 11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13 },
};

static const uint32_t blake3_numbers[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

#define LANES 4
#define V v4
#define NAME(x) x##_4
#define TARGET
typedef uint32_t v4 __attribute__((vector_size(16)));
#include "base/blake3_lanes.h"
#undef LANES
#undef V
#undef NAME
#undef TARGET

#if defined(__x86_64__)
#define LANES 8
#define V v8
#define NAME(x) x##_8
#define TARGET __attribute__((target("avx2")))
typedef uint32_t v8 __attribute__((vector_size(32)));
#include "base/blake3_lanes.h"
#undef LANES
#undef V
#undef NAME
#undef TARGET

#define LANES 16
#define V v16
#define NAME(x) x##_16
#define TARGET __attribute__((target("avx512f,avx512bw")))
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define EVEN 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define ODD 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
typedef uint32_t v16 __attribute__((vector_size(64)));

/* Sixteen blocks become the first words of all, the second words of all, ... */
TARGET static inline __attribute__((always_inline)) void transpose(v16 r[16])
{
	v16 t[16];

#pragma GCC unroll 8
	for (unsigned i = 0; i < 16; i += 2) {
		t[i] = PICK(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
		t[i + 1] = PICK(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
	}
#pragma GCC unroll 4
	for (unsigned i = 0; i < 16; i += 4) {
		r[i] = PICK(t[i], t[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
		r[i + 1] = PICK(t[i], t[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
		r[i + 2] = PICK(t[i + 1], t[i + 3], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
		r[i + 3] = PICK(t[i + 1], t[i + 3], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
	}
	/* r[4k + j] has, in its l-th quarter, word 4l + j of blocks 4k to 4k + 3. */
#pragma GCC unroll 4
	for (unsigned j = 0; j < 4; j++) {
		v16 a = PICK(r[j], r[4 + j], EVEN), b = PICK(r[j], r[4 + j], ODD);
		v16 c = PICK(r[8 + j], r[12 + j], EVEN), d = PICK(r[8 + j], r[12 + j], ODD);

		t[j] = PICK(a, c, EVEN);
		t[8 + j] = PICK(a, c, ODD);
		t[4 + j] = PICK(b, d, EVEN);
		t[12 + j] = PICK(b, d, ODD);
	}
#pragma GCC unroll 16
	for (unsigned i = 0; i < 16; i++)
		r[i] = t[i];
}

#include "base/blake3_lanes.h"

/* How many at once: the CPU has the instructions, and the kernel keeps the registers. */
static unsigned ask(void)
{
	const unsigned osxsave = 1U << 27, avx2 = 1U << 5, avx512 = 1U << 16 | 1U << 30;
	unsigned a = 0, b, c = 0, d, kept;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (a < 7)
		return 4;
	a = 1;
	c = 0;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (!(c & osxsave))
		return 4;
	a = 7;
	c = 0;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	__asm__ volatile("xgetbv" : "=a"(kept), "=d"(d) : "c"(0));
	if ((b & avx512) == avx512 && (kept & 0xe6) == 0xe6)
		return 16;
	return b & avx2 && (kept & 6) == 6 ? 8 : 4;
}

static unsigned lanes(void)
{
	/* In a virtual machine each question takes a way out of it: asked once. Any thread finds the same. */
	static unsigned have; /* 0: not asked */
	unsigned n = __atomic_load_n(&have, __ATOMIC_RELAXED);

	if (!n) {
		n = cpu_use() == CPU_PLAIN ? 4 : ask();
		__atomic_store_n(&have, n, __ATOMIC_RELAXED);
	}
	return n;
}
#else
static unsigned lanes(void)
{
	return 4;
}
#endif

static void many(unsigned width, const uint8_t *from, size_t stride, size_t count, unsigned n, uint32_t flags,
		 uint32_t (*ret)[8])
{
	for (size_t k = 0; k < count; k += width) {
		const size_t some = count - k < width ? count - k : width;
		const uint8_t *at = from + k * stride;

#if defined(__x86_64__)
		if (width == 16) {
			many_16(at, stride, some, n, (uint32_t)k, flags, ret + k);
			continue;
		}
		if (width == 8) {
			many_8(at, stride, some, n, (uint32_t)k, flags, ret + k);
			continue;
		}
#endif
		many_4(at, stride, some, n, (uint32_t)k, flags, ret + k);
	}
}

/* A chunk that is not whole, or the only one. */
static void one(const uint8_t *from, size_t len, uint32_t counter, uint32_t flags, uint32_t ret[8])
{
	v4 cv[8], m[16];
	const v4 none = { 0 };
	size_t at = 0;

	for (unsigned i = 0; i < 8; i++)
		cv[i] = none + blake3_iv[i];
	do {
		const size_t n = len - at < BLOCK ? len - at : BLOCK;
		const bool last = at + n == len;
		uint8_t block[BLOCK] = { 0 };

		if (n)
			memcpy(block, from + at, n);
		load_4(m, block, 0, 1);
		compress_4(cv, m, none + counter, (uint32_t)n, (at ? 0U : START) | (last ? END | flags : 0U));
		at += n;
	} while (at < len);
	for (unsigned i = 0; i < 8; i++)
		ret[i] = cv[i][0];
}

static void sum(unsigned width, const uint8_t *data, size_t len, uint8_t ret[BLAKE3_SIZE])
{
	uint32_t cv[BLAKE3_MOST / CHUNK][8];
	size_t whole = len / CHUNK, n = whole + !!(len % CHUNK);

	static_assert(sizeof(cv[0]) == BLAKE3_SIZE && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
		      "words as they are in memory");
	assert(len <= BLAKE3_MOST);
	if (n <= 1) {
		one(data, len, 0, ROOT, cv[0]);
	} else {
		many(width, data, CHUNK, whole, CHUNK / BLOCK, 0, cv);
		if (n > whole)
			one(data + whole * CHUNK, len - whole * CHUNK, (uint32_t)whole, 0, cv[whole]);
	}
	/* Each pair of chaining values becomes one. The last of an odd number moves up unchanged. */
	for (; n > 1; n = n / 2 + n % 2) {
		many(width, (const uint8_t *)cv, BLOCK, n / 2, 1, n == 2 ? PARENT | ROOT : PARENT, cv);
		if (n % 2)
			memcpy(cv[n / 2], cv[n - 1], sizeof(cv[0]));
	}
	memcpy(ret, cv[0], BLAKE3_SIZE);
}

void blake3(const void *data, size_t len, uint8_t ret[BLAKE3_SIZE])
{
	sum(lanes(), data, len, ret);
}

void blake3_plain(const void *data, size_t len, uint8_t ret[BLAKE3_SIZE])
{
	sum(4, data, len, ret);
}
