/*
 * The limit of open files. By default the soft limit is 1,024. A program that needs more descriptors raises its own limit, as
 * servers do (redis, nginx, java), up to the hard one. Any other limit was chosen to bound: soft and hard are the same.
 */
#pragma once
#include <stdint.h>

#define NOFILE_USUAL 1024U
#define NOFILE_HARD 65536U

static inline uint64_t nofile_hard(uint64_t soft)
{
	return soft == NOFILE_USUAL ? NOFILE_HARD : soft;
}
