/* The content of an unsettled layer's manifest (settle.h) in place of the sum of a file. */
#pragma once
#include <assert.h>
#include <stdint.h>

#include "base/sha256.h"

/* The file's identity, and the time of its last change. */
struct mark {
	uint64_t boot, ino, seconds, nanoseconds;
};
static_assert(sizeof(struct mark) == SHA256_SIZE, "it takes a sum's place");

/* A number of the current boot, which differs from that of any other boot. */
int mark_boot(uint64_t *ret);
