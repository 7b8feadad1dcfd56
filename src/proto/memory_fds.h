/*
 * How many descriptors an agent needs to restore an image. It has each file and object open once, above all numbers that the
 * processes use, since these get their tables from its own.
 */
#pragma once
#include "proto/memory.h"

#define MEM_FDS_LOWEST 192U /* above what the agent itself has open, or a frame brings */
#define MEM_FDS_SPARE 64U /* of its own, beside one for each file and object */

/* The lowest number above those of all processes. */
static inline uint32_t mem_fds_base(const struct mem_image *m)
{
	uint32_t top = MEM_FDS_LOWEST + 3 * m->n[MEM_S_EXEC];

	for (uint32_t i = 0; i < m->n[MEM_S_FD]; i++)
		if (m->fd[i].num >= top)
			top = m->fd[i].num + 1;
	for (uint32_t i = 0; i < m->n[MEM_S_WATCH]; i++)
		if (m->watch[i].fd_num >= top)
			top = m->watch[i].fd_num + 1;
	return top;
}

/* The limit that it needs, at least. */
static inline uint64_t mem_fds_needed(const struct mem_image *m)
{
	return (uint64_t)mem_fds_base(m) + m->n[MEM_S_FILE] + m->n[MEM_S_OBJECT] + 2ULL * m->n[MEM_S_NODE] +
	       MEM_FDS_SPARE;
}
