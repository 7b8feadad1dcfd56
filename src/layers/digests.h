/*
 * The sums of large files' pieces, collected while a layer is made: summing up is half of the work of sealing, and is
 * done while the files are copied (copy_pipeline.h). The reader of a missing sum computes it itself (tree_sum).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/piece.h"
#include "base/sha256.h"

#define DIGESTS_PIECE PIECE_SIZE /* files are summed up in pieces of this size */
#define DIGESTS_LARGE (1U << 20) /* and machines' disks larger than this in pieces of this size */
#define DIGESTS_FILES (1U << 16)
#define DIGESTS_PIECES (1U << 20) /* in all files together */

struct digests;

/*
 * Adds the content of a file to @s: runs of blocks that are not zeros, each with its start, bytes and length. Zeros are
 * the same as a hole. @buf has TREE_BUF bytes.
 */
int digests_sum(struct sha256 *s, int fd, uint64_t size, const int *stop, char *buf);
/* The same of piece number @n of a file of @size bytes, in pieces of @piece bytes. */
int digests_piece(int fd, uint64_t size, uint64_t n, uint32_t piece, const int *stop, char *buf,
		  uint8_t ret[SHA256_SIZE]);
/*
 * The BLAKE3 of each piece of DIGESTS_PIECE from @at on, up to TREE_BUF bytes or the end; zeros for a piece of zeros.
 * Returns how many pieces.
 */
int digests_pieces(int fd, uint64_t size, uint64_t at, const int *stop, char *buf, uint8_t (*ret)[SHA256_SIZE]);
#define DIGESTS_AT_ONCE 8U /* pieces in TREE_BUF */
/* The offset of the next data at @at or later; @end when there is none before it. */
int64_t digests_data(int fd, uint64_t at, uint64_t end);

/* The same as digests_pieces() for bytes in memory, which begin at a piece's start. */
void digests_bytes(const char *data, size_t len, uint8_t (*ret)[SHA256_SIZE]);
/* Whether @sum says that the piece holds only zeros. */
bool digests_is_none(const uint8_t sum[SHA256_SIZE]);

/* For one thread, with pieces of that size. NULL when there is no memory. All functions accept NULL. */
struct digests *digests_new(uint32_t piece);
void digests_free(struct digests *d);
/*
 * Room for the sums of the pieces of a file without extended attributes, to be filled in before the first
 * digests_find(). NULL when there is none.
 */
uint8_t (*digests_add(struct digests *d, uint64_t ino, uint64_t size))[SHA256_SIZE];
/* False when the sum is not known. */
bool digests_find(const struct digests *d, uint64_t ino, uint64_t size, uint64_t n, uint8_t ret[SHA256_SIZE]);
