/* Where a file of numbers (numbers.h) has its list: in the first block, in which erofs has only its superblock. */
#pragma once
#include "base/base.h"
#include "layers/numbers.h"

#define LIST 2048U
#define LIST_MAGIC 0x736e6c63U

struct list {
	uint32_t magic, n;
	uint8_t uuid[16];
	uint64_t number[NUMBERS_MAX];
};

static inline const char *set_name(unsigned set, char name[static 16])
{
	snprintf(name, 16, "numbers%u", set);
	return name;
}
