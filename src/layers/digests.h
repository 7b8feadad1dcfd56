/*
 * The sums of large files' pieces, and what is known of them while a layer is made: they are half of the work of sealing,
 * and taken while the files are copied (copy_pipeline.h). What is not found here is summed up by who asks (tree_sum).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

#define DIGESTS_PIECE (64U << 10) /* files are summed up by these */
#define DIGESTS_LARGE (1U << 20) /* and machines' disks that are larger by these */
#define DIGESTS_FILES (1U << 16)
#define DIGESTS_PIECES (1U << 20) /* of all files */

struct digests;

/*
 * What is in a file: runs of blocks that are not zeros, where each begins, what is in it, how long it is. Zeros are the
 * same as a hole. @buf is of TREE_BUF bytes.
 */
int digests_sum(struct sha256 *s, int fd, uint64_t size, const int *stop, char *buf);
/* The same, of piece @n of a file of @size, each of @piece. */
int digests_piece(int fd, uint64_t size, uint64_t n, uint32_t piece, const int *stop, char *buf,
		  uint8_t ret[SHA256_SIZE]);
/*
 * The BLAKE3 of each piece of DIGESTS_PIECE from @at on that is there, zeros for one that is nothing else: TREE_BUF in all,
 * or to the end. How many.
 */
int digests_pieces(int fd, uint64_t size, uint64_t at, const int *stop, char *buf, uint8_t (*ret)[SHA256_SIZE]);
#define DIGESTS_AT_ONCE 8U /* of those in TREE_BUF */
/* Where something is that is not a hole, at @at or later: @end when nowhere before it. */
int64_t digests_data(int fd, uint64_t at, uint64_t end);

/* The same as digests_pieces(), of what is in memory, and begins where a piece does. */
void digests_bytes(const char *data, size_t len, uint8_t (*ret)[SHA256_SIZE]);
/* If that is the sum of nothing but zeros. */
bool digests_is_none(const uint8_t sum[SHA256_SIZE]);

/* For one thread, and pieces of that size. NULL when there is no memory. All may be called with NULL. */
struct digests *digests_new(uint32_t piece);
void digests_free(struct digests *d);
/*
 * Room for the sums of the pieces of a file that has no extended attributes, to be filled in until somebody looks. NULL when
 * there is none.
 */
uint8_t (*digests_add(struct digests *d, uint64_t ino, uint64_t size))[SHA256_SIZE];
/* False when it is not known. */
bool digests_find(const struct digests *d, uint64_t ino, uint64_t size, uint64_t n, uint8_t ret[SHA256_SIZE]);
