#include "base/sha256.h"
#include "base/base.h"

#define LEAST 7U /* fewer are done sooner by twos, with the CPU's own instructions */

#if defined(__x86_64__)
/*
 * Sixteen at once, a word of each in a register: on CPUs with AVX-512 nearly twice as fast as the instructions that are
 * there for one. Without the compiler's own header, which is not there for every libc.
 */
typedef unsigned v16 __attribute__((vector_size(64)));
typedef char bytes __attribute__((vector_size(64)));
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define EVEN 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define ODD 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#define WIDE __attribute__((target("avx512f,avx512bw")))
#define STEP WIDE static inline __attribute__((always_inline))
/* Any function of three bits, by its table. */
#define LOGIC(table, a, b, c)                                                                                          \
	({                                                                                                             \
		v16 x_ = (a);                                                                                          \
		__asm__("vpternlogd %3, %2, %1, %0" : "+v"(x_) : "v"(b), "v"(c), "i"(table));                          \
		x_;                                                                                                    \
	})
#define ROR(x, n) ((x) >> (n) | (x) << (32 - (n)))
#define XOR(a, b, c) LOGIC(0x96, a, b, c)
#define CHOOSE(a, b, c) LOGIC(0xca, a, b, c)
#define MOST(a, b, c) LOGIC(0xe8, a, b, c)

/* The words of a block are the other way round in memory. */
STEP void swap(v16 *x)
{
	const bytes b = (bytes)*x;

	*x = (v16)PICK(b, b, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12, 19, 18, 17, 16, 23, 22, 21, 20, 27, 26,
		       25, 24, 31, 30, 29, 28, 35, 34, 33, 32, 39, 38, 37, 36, 43, 42, 41, 40, 47, 46, 45, 44, 51, 50, 49,
		       48, 55, 54, 53, 52, 59, 58, 57, 56, 63, 62, 61, 60);
}

/* Sixteen blocks become the first words of all, the second words of all, ... */
STEP void transpose(v16 r[16])
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
	for (unsigned i = 0; i < 16; i++) {
		r[i] = t[i];
		swap(&r[i]);
	}
}

WIDE static void block_x86(v16 s[8], v16 w[16])
{
	v16 a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];

#pragma GCC unroll 4
	for (unsigned j = 0; j < 64; j += 16)
#pragma GCC unroll 16
		for (unsigned i = 0; i < 16; i++) {
			v16 x = w[(i + 1) & 15], y = w[(i + 14) & 15], t;

			if (j)
				w[i] += XOR(ROR(x, 7), ROR(x, 18), x >> 3) + w[(i + 9) & 15] +
					XOR(ROR(y, 17), ROR(y, 19), y >> 10);
			t = h + XOR(ROR(e, 6), ROR(e, 11), ROR(e, 25)) + CHOOSE(e, f, g) + (w[i] + sha256_k[j + i]);
			h = g;
			g = f;
			f = e;
			e = d + t;
			t += XOR(ROR(a, 2), ROR(a, 13), ROR(a, 22)) + MOST(a, b, c);
			d = c;
			c = b;
			b = a;
			a = t;
		}
	s[0] += a;
	s[1] += b;
	s[2] += c;
	s[3] += d;
	s[4] += e;
	s[5] += f;
	s[6] += g;
	s[7] += h;
}

/* @n blocks of each, from @at on. Whoever is missing is the first once more. */
WIDE static void wide_x86(struct sha256 *s, const void *const data[], unsigned count, size_t at, size_t n)
{
	v16 state[8], w[16];

	for (unsigned i = 0; i < 8; i++)
		for (unsigned k = 0; k < 16; k++)
			state[i][k] = s[k < count ? k : 0].state[i];
	for (; n; n--, at += SHA256_BLOCK) {
		for (unsigned k = 0; k < 16; k++)
			memcpy(&w[k], (const uint8_t *)data[k < count ? k : 0] + at, sizeof(w[k]));
		transpose(w);
		block_x86(state, w);
	}
	for (unsigned i = 0; i < 8; i++)
		for (unsigned k = 0; k < count; k++)
			s[k].state[i] = state[i][k];
}

/* The CPU has it, and the kernel keeps its registers. */
static bool ask_wide(void)
{
	const unsigned osxsave = 1U << 27, f = 1U << 16, bw = 1U << 30, kept = 0xe6;
	unsigned a = 0, b, c = 0, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (a < 7)
		return false;
	a = 1;
	c = 0;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (!(c & osxsave))
		return false;
	a = 7;
	c = 0;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (!(b & f) || !(b & bw))
		return false;
	__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
	return (a & kept) == kept;
}

static bool have_wide(void)
{
	static int have; /* 0: not asked */
	int h = __atomic_load_n(&have, __ATOMIC_RELAXED);

	if (!h) {
		h = ask_wide() ? 1 : -1;
		__atomic_store_n(&have, h, __ATOMIC_RELAXED);
	}
	return h > 0;
}
#endif

void sha256_add_many(struct sha256 *s, const void *const data[], unsigned n, size_t len)
{
	size_t done = 0;
	unsigned i = 0;

	assert(n <= SHA256_MANY);
#if defined(__x86_64__)
	if (n >= LEAST && have_wide()) {
		size_t head = (SHA256_BLOCK - s[0].len % SHA256_BLOCK) % SHA256_BLOCK;
		bool alike = head < len;

		for (unsigned k = 1; k < n; k++)
			alike = alike && s[k].len % SHA256_BLOCK == s[0].len % SHA256_BLOCK;
		if (alike) {
			size_t whole = (len - head) / SHA256_BLOCK;

			for (unsigned k = 0; k < n; k++)
				sha256_add(&s[k], data[k], head);
			wide_x86(s, data, n, head, whole);
			for (unsigned k = 0; k < n; k++)
				s[k].len += whole * SHA256_BLOCK;
			done = head + whole * SHA256_BLOCK;
		}
	}
#endif
	for (; i + 1 < n; i += 2)
		sha256_add_two(&s[i], (const uint8_t *)data[i] + done, &s[i + 1], (const uint8_t *)data[i + 1] + done, len - done);
	if (i < n)
		sha256_add(&s[i], (const uint8_t *)data[i] + done, len - done);
}
