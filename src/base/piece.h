/* Sums of large files: of each piece by itself, so that several are taken at once, in any order, by any program. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

#define PIECE_SIZE (64U << 10)

/* The BLAKE3 of one piece, @len bytes, at most PIECE_SIZE and not 0; zeros when there is nothing else in it. */
void piece_sum(const void *data, size_t len, uint8_t ret[SHA256_SIZE]);
