/* SHA-256 in plain C. */
#include "base/sha256.h"
#include "base/base.h"
#include "base/cpu.h"

/* clang-format off */
static const uint32_t sha256_k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
/* clang-format on */

static inline uint32_t ror(uint32_t x, unsigned n)
{
	return x >> n | x << (32 - n);
}

static uint32_t get(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/*
 * One round. The eight words of the state stay where they are, in registers, and each round gives them other names: moving
 * them costs more than all the rest.
 */
#define SHA256_ROUND(a, b, c, d, e, f, g, h, i)                                                                        \
	do {                                                                                                           \
		const uint32_t x = (h) + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + ((g) ^ ((e) & ((f) ^ (g)))) + (i);    \
		const uint32_t y = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + (((a) & (b)) | ((c) & ((a) | (b))));        \
                                                                                                                       \
		(d) += x;                                                                                              \
		(h) = x + y;                                                                                           \
	} while (0)

/* Eight of them: @p and @q have four sums of a word and a constant each. */
#define SHA256_EIGHT(p, q)                                                                                             \
	do {                                                                                                           \
		SHA256_ROUND(a, b, c, d, e, f, g, h, (p)[0]);                                                          \
		SHA256_ROUND(h, a, b, c, d, e, f, g, (p)[1]);                                                          \
		SHA256_ROUND(g, h, a, b, c, d, e, f, (p)[2]);                                                          \
		SHA256_ROUND(f, g, h, a, b, c, d, e, (p)[3]);                                                          \
		SHA256_ROUND(e, f, g, h, a, b, c, d, (q)[0]);                                                          \
		SHA256_ROUND(d, e, f, g, h, a, b, c, (q)[1]);                                                          \
		SHA256_ROUND(c, d, e, f, g, h, a, b, (q)[2]);                                                          \
		SHA256_ROUND(b, c, d, e, f, g, h, a, (q)[3]);                                                          \
	} while (0)

static void one(uint32_t state[8], const uint8_t *data)
{
	uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6],
		 h = state[7];
	uint32_t w[64];

	for (unsigned i = 0; i < 16; i++)
		w[i] = get(data + (size_t)i * 4);
	for (unsigned i = 16; i < 64; i++) {
		uint32_t x = w[i - 15], y = w[i - 2];

		w[i] = w[i - 16] + (ror(x, 7) ^ ror(x, 18) ^ x >> 3) + w[i - 7] + (ror(y, 17) ^ ror(y, 19) ^ y >> 10);
	}
	for (unsigned i = 0; i < 64; i++)
		w[i] += sha256_k[i];
	for (unsigned i = 0; i < 64; i += 8)
		SHA256_EIGHT(w + i, w + i + 4);
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
	state[5] += f;
	state[6] += g;
	state[7] += h;
}

static void blocks_plain(uint32_t state[8], const uint8_t *data, size_t n)
{
	for (; n; n--, data += SHA256_BLOCK)
		one(state, data);
}

#if defined(__x86_64__)
/* Without the compiler's own header, which is not there for every libc. */
typedef unsigned v4 __attribute__((vector_size(16)));
typedef int s4 __attribute__((vector_size(16))); /* what the instructions are declared with; sums must wrap */
typedef char v16 __attribute__((vector_size(16)));
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define ROUND __attribute__((target("sha,sse4.1,ssse3")))

ROUND static v4 load(const void *p)
{
	v4 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

ROUND static v4 load_swapped(const void *p)
{
	v16 v;

	memcpy(&v, p, sizeof(v));
	return (v4)PICK(v, v, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
}

/* The SHA instructions take the eight words as ABEF and CDGH. */
struct lane {
	v4 abef, cdgh, abef_was, cdgh_was, w[4];
};

ROUND static inline __attribute__((always_inline)) void lane_load(struct lane *l, const uint32_t state[8])
{
	v4 abcd = load(state), efgh = load(state + 4);

	l->abef = PICK(efgh, abcd, 1, 0, 5, 4);
	l->cdgh = PICK(efgh, abcd, 3, 2, 7, 6);
}

ROUND static inline __attribute__((always_inline)) void lane_store(const struct lane *l, uint32_t state[8])
{
	v4 abcd = PICK(l->abef, l->cdgh, 3, 2, 7, 6), efgh = PICK(l->abef, l->cdgh, 1, 0, 5, 4);

	memcpy(state, &abcd, sizeof(abcd));
	memcpy(state + 4, &efgh, sizeof(efgh));
}

/* Four rounds: @i of sixteen. */
ROUND static inline __attribute__((always_inline)) void lane_rounds(struct lane *l, const uint8_t *data, unsigned i)
{
	v4 k;

	if (i < 4) {
		l->w[i] = load_swapped(data + (size_t)i * 16);
	} else {
		/* w[i & 3] holds the words of sixteen rounds ago. */
		v4 next = (v4)__builtin_ia32_sha256msg1((s4)l->w[i & 3], (s4)l->w[(i + 1) & 3]);

		next += PICK(l->w[(i + 2) & 3], l->w[(i + 3) & 3], 1, 2, 3, 4);
		l->w[i & 3] = (v4)__builtin_ia32_sha256msg2((s4)next, (s4)l->w[(i + 3) & 3]);
	}
	k = l->w[i & 3] + load(sha256_k + (size_t)i * 4);
	l->cdgh = (v4)__builtin_ia32_sha256rnds2((s4)l->cdgh, (s4)l->abef, (s4)k);
	l->abef = (v4)__builtin_ia32_sha256rnds2((s4)l->abef, (s4)l->cdgh, (s4)PICK(k, k, 2, 3, 0, 1));
}

ROUND static inline __attribute__((always_inline)) void lane_begin(struct lane *l)
{
	l->abef_was = l->abef;
	l->cdgh_was = l->cdgh;
}

ROUND static inline __attribute__((always_inline)) void lane_end(struct lane *l)
{
	l->abef += l->abef_was;
	l->cdgh += l->cdgh_was;
}

ROUND static void blocks_x86(uint32_t state[8], const uint8_t *data, size_t n)
{
	struct lane l;

	lane_load(&l, state);
	for (; n; n--, data += SHA256_BLOCK) {
		lane_begin(&l);
#pragma GCC unroll 16
		for (unsigned i = 0; i < 16; i++)
			lane_rounds(&l, data, i);
		lane_end(&l);
	}
	lane_store(&l, state);
}

/*
 * Without SHA instructions: the words of two blocks are made at once, four of each in one register, while the first block's
 * rounds go on with those that are made.
 */
typedef unsigned v8 __attribute__((vector_size(32)));
typedef char v32 __attribute__((vector_size(32)));
#define WIDE __attribute__((target("avx2,bmi2")))
#define V8_ROR(x, n) ((x) >> (n) | (x) << (32 - (n)))

WIDE static inline __attribute__((always_inline)) v8 wide_load(const uint8_t *first, const uint8_t *second)
{
	v32 v;

	memcpy(&v, first, 16);
	memcpy((char *)&v + 16, second, 16);
	return (v8)PICK(v, v, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12, 19, 18, 17, 16, 23, 22, 21, 20, 27,
			26, 25, 24, 31, 30, 29, 28);
}

/* The four words of each block that come after sixteen: the first two of them are needed for the others. */
WIDE static inline __attribute__((always_inline)) v8 wide_next(const v8 w[4])
{
	const v8 old = PICK(w[0], w[1], 1, 2, 3, 8, 5, 6, 7, 12), none = { 0 };
	v8 x = w[0] + (V8_ROR(old, 7) ^ V8_ROR(old, 18) ^ old >> 3) + PICK(w[2], w[3], 1, 2, 3, 8, 5, 6, 7, 12), y;

	y = PICK(w[3], w[3], 2, 3, 2, 3, 6, 7, 6, 7);
	y = V8_ROR(y, 17) ^ V8_ROR(y, 19) ^ y >> 10;
	x += PICK(y, none, 0, 1, 8, 8, 4, 5, 8, 8);
	y = PICK(x, x, 0, 1, 0, 1, 4, 5, 4, 5);
	y = V8_ROR(y, 17) ^ V8_ROR(y, 19) ^ y >> 10;
	return x + PICK(y, none, 8, 8, 2, 3, 8, 8, 6, 7);
}

WIDE static inline __attribute__((always_inline)) v8 wide_sum(v8 w, unsigned i)
{
	v4 k = load(sha256_k + (size_t)i * 4);

	return w + PICK(k, k, 0, 1, 2, 3, 0, 1, 2, 3);
}

WIDE static void two(uint32_t state[8], const uint8_t *data, const uint8_t *after)
{
	uint32_t sum[16][8] __attribute__((aligned(32)));
	v8 w[4], sums;

	for (unsigned i = 0; i < 4; i++) {
		w[i] = wide_load(data + (size_t)i * 16, after + (size_t)i * 16);
		sums = wide_sum(w[i], i);
		memcpy(sum[i], &sums, sizeof(sums));
	}
	for (unsigned block = 0; block < 2; block++) {
		uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5],
			 g = state[6], h = state[7];

#pragma GCC unroll 8
		for (unsigned i = 0; i < 16; i += 2) {
			for (unsigned k = i + 4; !block && k < i + 6 && k < 16; k++) {
				w[k % 4] = wide_next(
					(const v8[]){ w[k % 4], w[(k + 1) % 4], w[(k + 2) % 4], w[(k + 3) % 4] });
				sums = wide_sum(w[k % 4], k);
				memcpy(sum[k], &sums, sizeof(sums));
			}
			SHA256_EIGHT(sum[i] + (size_t)block * 4, sum[i + 1] + (size_t)block * 4);
		}
		state[0] += a;
		state[1] += b;
		state[2] += c;
		state[3] += d;
		state[4] += e;
		state[5] += f;
		state[6] += g;
		state[7] += h;
	}
}

static void blocks_wide(uint32_t state[8], const uint8_t *data, size_t n)
{
	for (; n > 1; n -= 2, data += (size_t)2 * SHA256_BLOCK)
		two(state, data, data + SHA256_BLOCK);
	if (n)
		one(state, data);
}

/* a: how many there are, for the first. */
static void cpuid(unsigned leaf, unsigned *a, unsigned *b, unsigned *c)
{
	unsigned d;

	*a = leaf;
	*c = 0;
	__asm__ volatile("cpuid" : "+a"(*a), "=b"(*b), "+c"(*c), "=d"(d));
}

static bool have_x86(void)
{
	const unsigned ssse3 = 1U << 9, sse41 = 1U << 19, sha = 1U << 29;
	unsigned a, b, c;

	cpuid(0, &a, &b, &c);
	if (a < 7)
		return false;
	cpuid(1, &a, &b, &c);
	if (!(c & ssse3) || !(c & sse41))
		return false;
	cpuid(7, &a, &b, &c);
	return b & sha;
}

static bool have_wide(void)
{
	const unsigned saved = 1U << 27, avx = 1U << 28, avx2 = 1U << 5, bmi2 = 1U << 8;
	unsigned a, b, c, d;

	cpuid(0, &a, &b, &c);
	if (a < 7)
		return false;
	cpuid(1, &a, &b, &c);
	if (!(c & saved) || !(c & avx))
		return false;
	__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0)); /* whether the kernel keeps the wide registers */
	if ((a & 6) != 6)
		return false;
	cpuid(7, &a, &b, &c);
	return b & avx2 && b & bmi2;
}
#endif

void sha256_init_plain(struct sha256 *s)
{
	*s = (struct sha256){
		.state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
			   0x5be0cd19 },
		.blocks = blocks_plain,
	};
}

void sha256_init(struct sha256 *s)
{
	sha256_init_plain(s);
#if defined(__x86_64__)
	/* In a virtual machine each question takes a way out of it: asked once. Any thread finds the same. */
	static int have; /* 0: not asked */
	int h = __atomic_load_n(&have, __ATOMIC_RELAXED);

	if (!h) {
		const enum cpu_use use = cpu_use();

		h = use == CPU_PLAIN ? 1 : use == CPU_ALL && have_x86() ? 3 : have_wide() ? 2 : 1;
		__atomic_store_n(&have, h, __ATOMIC_RELAXED);
	}
	if (h > 1)
		s->blocks = h == 3 ? blocks_x86 : blocks_wide;
#endif
}

void sha256_add(struct sha256 *s, const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t have = s->len % SHA256_BLOCK;

	s->len += len;
	if (have) {
		size_t n = SHA256_BLOCK - have < len ? SHA256_BLOCK - have : len;

		memcpy(s->part + have, p, n);
		p += n;
		len -= n;
		if (have + n < SHA256_BLOCK)
			return;
		s->blocks(s->state, s->part, 1);
	}
	s->blocks(s->state, p, len / SHA256_BLOCK);
	memcpy(s->part, p + len / SHA256_BLOCK * SHA256_BLOCK, len % SHA256_BLOCK);
}

void sha256_end(struct sha256 *s, uint8_t ret[SHA256_SIZE])
{
	static const uint8_t pad[SHA256_BLOCK] = { 0x80 };
	uint64_t bits = s->len * 8;
	uint8_t tail[8];

	for (unsigned i = 0; i < 8; i++)
		tail[i] = (uint8_t)(bits >> (56 - 8 * i));
	sha256_add(s, pad, 1 + (SHA256_BLOCK + 55 - s->len % SHA256_BLOCK) % SHA256_BLOCK);
	sha256_add(s, tail, sizeof(tail));
	for (unsigned i = 0; i < SHA256_SIZE; i++)
		ret[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}
