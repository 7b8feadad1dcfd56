/*
 * The memory part of a layer: <id>/mem/meta and <id>/mem/pages (proto/memory.h), written by cloche-dump. The warden
 * reads the head of meta, and what was cut, and no more.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "layers/manifest.h"
#include "proto/frame.h"
#include "proto/memory.h"

/* What RESTORE carries descriptors for: meta, pages files, then one per exec. */
#define MEMORY_EXECS_MAX FRAME_RESTORE_GROUPS_MAX

/* What was cut, for who asked: the first of them, and how many there are in all. Part of the protocol (msg.h). */
#define MEMORY_CUTS 32U
struct memory_cuts {
	uint32_t n, told;
	struct mem_cut cut[MEMORY_CUTS];
};

/* Of @meta, against itself and the size of the own @pages. -EBADMSG with the reason. */
int memory_head(int meta, int pages, struct mem_head *ret, struct err *e);
/* From @meta with the head @h. -EBADMSG with the reason. */
int memory_cuts(int meta, const struct mem_head *h, struct memory_cuts *ret, struct err *e);
/* Opens "meta" or "pages" in the layer's folder @dir, read-only. */
int memory_open(int dir, const char *name);
/* Whether its processes fit into @limit bytes (0: no limit), all of their pages being their own. -ENOMEM with both sizes. */
int memory_fits(const struct mem_head *h, uint64_t limit, struct err *e);
/* Fills the sizes and sums of the layer in @dir, as ->version has them; zeros when it has no memory. */
int memory_sum(int dir, const int *stop, struct manifest *m);
/* The same of one in the making whose pages file has the sum @pages. */
int memory_sum_meta(int dir, const int *stop, const uint8_t pages[SHA256_SIZE], struct manifest *m);
