/*
 * The sums of large files' pieces, and what is known of them while a layer is made: they are half of the work of sealing,
 * and taken while the files are copied (pump.h). What is not found here is summed up by who asks (tree_sum).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

#define DIGESTS_PIECE (1U << 20) /* files larger than one are summed up by pieces */
#define DIGESTS_FILES 64U
#define DIGESTS_PIECES (64U << 10) /* of all files */

struct digests;

/*
 * What is in a file: runs of blocks that are not zeros, where each begins, what is in it, how long it is. Zeros are the
 * same as a hole. @buf is of TREE_BUF bytes.
 */
int digests_sum(struct sha256 *s, int fd, uint64_t size, const int *stop, char *buf);
/* The same, of piece @n of a file of @size. */
int digests_piece(int fd, uint64_t size, uint64_t n, const int *stop, char *buf, uint8_t ret[SHA256_SIZE]);

/* The same, of a piece that is in memory, and begins at @at of its file. */
void digests_bytes(const char *data, size_t len, uint64_t at, uint8_t ret[SHA256_SIZE]);
/* The same, of two pieces of one length: sooner than one after the other. */
void digests_bytes_two(const char *const data[2], size_t len, const uint64_t at[2], uint8_t *const ret[2]);

/* For one thread. NULL when there is no memory. All may be called with NULL. */
struct digests *digests_new(void);
void digests_free(struct digests *d);
/* Room for the sums of a file's pieces, to be filled in until somebody looks. NULL when there is none. */
uint8_t (*digests_add(struct digests *d, uint64_t ino, uint64_t size))[SHA256_SIZE];
/* False when it is not known. */
bool digests_find(const struct digests *d, uint64_t ino, uint64_t size, uint64_t n, uint8_t ret[SHA256_SIZE]);
