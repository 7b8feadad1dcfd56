/*
 * Included by blake3.c, once for each width: LANES inputs that are alike, a word of each in one V. NAME() is what its
 * functions are called, TARGET what the CPU must have.
 */
#define ROR(x, n) ((x) >> (n) | (x) << (32 - (n)))
#define MIX(a, b, c, d, x, y)                                                                                          \
	do {                                                                                                           \
		v[a] += v[b] + (x);                                                                                    \
		v[d] = ROR(v[d] ^ v[a], 16);                                                                           \
		v[c] += v[d];                                                                                          \
		v[b] = ROR(v[b] ^ v[c], 12);                                                                           \
		v[a] += v[b] + (y);                                                                                    \
		v[d] = ROR(v[d] ^ v[a], 8);                                                                            \
		v[c] += v[d];                                                                                          \
		v[b] = ROR(v[b] ^ v[c], 7);                                                                            \
	} while (0)

/* Columns, then diagonals; which word of the block goes where is another one in each round. */
TARGET static void NAME(compress)(V cv[8], const V m[16], V counter, uint32_t len, uint32_t flags)
{
	const V none = { 0 };
	V v[16] = { cv[0],
		    cv[1],
		    cv[2],
		    cv[3],
		    cv[4],
		    cv[5],
		    cv[6],
		    cv[7],
		    none + blake3_iv[0],
		    none + blake3_iv[1],
		    none + blake3_iv[2],
		    none + blake3_iv[3],
		    counter,
		    none,
		    none + len,
		    none + flags };

#pragma GCC unroll 7
	for (unsigned r = 0; r < 7; r++) {
		const uint8_t *s = blake3_order[r];

		MIX(0, 4, 8, 12, m[s[0]], m[s[1]]);
		MIX(1, 5, 9, 13, m[s[2]], m[s[3]]);
		MIX(2, 6, 10, 14, m[s[4]], m[s[5]]);
		MIX(3, 7, 11, 15, m[s[6]], m[s[7]]);
		MIX(0, 5, 10, 15, m[s[8]], m[s[9]]);
		MIX(1, 6, 11, 12, m[s[10]], m[s[11]]);
		MIX(2, 7, 8, 13, m[s[12]], m[s[13]]);
		MIX(3, 4, 9, 14, m[s[14]], m[s[15]]);
	}
#pragma GCC unroll 8
	for (unsigned i = 0; i < 8; i++)
		cv[i] = v[i] ^ v[i + 8];
}

/* A block of each input, @stride apart: the first words of all, the second words of all, ... */
TARGET static inline __attribute__((always_inline)) void NAME(load)(V m[16], const uint8_t *from, size_t stride,
								    size_t count)
{
#if LANES == 16
	for (size_t k = 0; k < LANES; k++)
		memcpy(&m[k], from + (k < count ? k : 0) * stride, BLOCK);
	transpose(m);
#else
	for (size_t k = 0; k < LANES; k++) {
		uint32_t word[16];

		memcpy(word, from + (k < count ? k : 0) * stride, BLOCK);
#pragma GCC unroll 16
		for (unsigned i = 0; i < 16; i++)
			m[i][k] = word[i];
	}
#endif
}

/* @count inputs of @n whole blocks: chunks, of which the first has that number, or parents. */
TARGET static void NAME(many)(const uint8_t *from, size_t stride, size_t count, unsigned n, uint32_t counter,
			      uint32_t flags, uint32_t (*ret)[8])
{
	V cv[8], m[16], number = { 0 };

	if (n > 1) {
		memcpy(&number, blake3_numbers, sizeof(number));
		number += counter;
	}
	for (unsigned i = 0; i < 8; i++)
		cv[i] = (V){ 0 } + blake3_iv[i];
	for (unsigned b = 0; b < n; b++) {
		const uint32_t ends = n == 1 ? 0 : b == 0 ? START : b == n - 1 ? END : 0;

		/* Of the next ones: each is too short for the CPU to see where it goes. */
		for (size_t k = 0; k < LANES && n > 1; k++)
			__builtin_prefetch(from + (LANES + k) * stride + (size_t)b * BLOCK);
		NAME(load)(m, from + (size_t)b * BLOCK, stride, count);
		NAME(compress)(cv, m, number, BLOCK, flags | ends);
	}
#if LANES == 16
	memset(m, 0, sizeof(m));
	memcpy(m, cv, sizeof(cv));
	transpose(m);
	for (size_t k = 0; k < count; k++)
		memcpy(ret[k], &m[k], sizeof(ret[k]));
#else
	for (size_t k = 0; k < count; k++)
		for (unsigned i = 0; i < 8; i++)
			ret[k][i] = cv[i][k];
#endif
}
#undef MIX
#undef ROR
