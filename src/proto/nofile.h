/*
 * The limit of open files. `nofile` is the soft limit of a process. A program that needs more descriptors than 1,024 raises its
 * own limit, as servers do (redis, nginx, java), up to the hard one. A soft limit below the usual 1,024 was chosen to bound: then
 * both are the same.
 */
#pragma once
#include <stdint.h>

#define NOFILE_USUAL 1024U
#define NOFILE_HARD 65536U

static inline uint64_t nofile_hard(uint64_t soft)
{
	return soft < NOFILE_USUAL || soft > NOFILE_HARD ? soft : NOFILE_HARD;
}
