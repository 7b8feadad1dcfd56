/*
 * What a program can ask the kernel for a mapping by madvise, as far as an image carries it. cloche-dump finds it by the
 * word in /proc/PID/smaps, the agent asks for it again. What is in neither this table nor vma.c's is no advice.
 */
#pragma once
#include "proto/memory.h"

#include <stdbool.h>

struct mem_advice {
	char word[3]; /* in VmFlags */
	uint32_t bit; /* of mem_vma.advice */
	int advice; /* MADV_*, by number: the C library does not have all of them */
	/* a program can detect that it is missing. The others only affect speed, and a kernel may lack them */
	bool must;
};

/* clang-format off */
static const struct mem_advice mem_advice[] = {
	{ "dc", MEM_VMA_DONTFORK, 10, true },	  { "wf", MEM_VMA_WIPEONFORK, 18, true },
	{ "hg", MEM_VMA_HUGEPAGE, 14, false },	  { "nh", MEM_VMA_NOHUGEPAGE, 15, false },
	{ "dd", MEM_VMA_DONTDUMP, 16, true },	  { "rr", MEM_VMA_RANDOM, 1, true },
	{ "sr", MEM_VMA_SEQUENTIAL, 2, true },	  { "mg", MEM_VMA_MERGEABLE, 12, false },
};
/* clang-format on */
#define MEM_ADVICES (sizeof(mem_advice) / sizeof(mem_advice[0]))

/* Every bit of them. */
static inline uint32_t mem_advices(void)
{
	uint32_t all = 0;

	for (unsigned i = 0; i < MEM_ADVICES; i++)
		all |= mem_advice[i].bit;
	return all;
}
