/*
 * The memory part of a layer: <id>/mem/meta and <id>/mem/pages (proto/memory.h), written by cloche-dump. The warden
 * reads only the head of meta, and the list of cuts.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "layers/manifest.h"
#include "proto/frame.h"
#include "proto/memory.h"

/* The number of descriptors in RESTORE: meta, pages files, then one per exec. */
#define MEMORY_EXECS_MAX FRAME_RESTORE_GROUPS_MAX

/*
 * Connections that were cut, for the caller: the first of them, and how many there are in all. Part of the protocol
 * (msg.h).
 */
#define MEMORY_CUTS 32U
struct memory_cuts {
	uint32_t n, told;
	struct mem_cut cut[MEMORY_CUTS];
};

/* Reads and checks the head of @meta; @pages is the layer's own pages file, for its size. -EBADMSG with the reason. */
int memory_head(int meta, int pages, struct mem_head *ret, struct err *e);
/* From @meta with the head @h. -EBADMSG with the reason. */
int memory_cuts(int meta, const struct mem_head *h, struct memory_cuts *ret, struct err *e);
/* Checks a list that came from another process: 0, or -EPROTO. */
int memory_cuts_ok(const struct memory_cuts *c);
/* Opens "meta" or "pages" in the layer's folder @dir, read-only. */
int memory_open(int dir, const char *name);
/* A regular file below the layer's folder @dir, without following links. */
int layer_open_file(int dir, const char *path);
/*
 * Whether its processes fit into @limit bytes (0: no limit) when each has its own copy of all pages. -ENOMEM with both
 * sizes.
 */
int memory_fits(const struct mem_head *h, uint64_t limit, struct err *e);
/* Sets the sizes and sums of the memory in @dir, as ->version requires; zeros when it has none. */
int memory_sum(int dir, const int *stop, struct manifest *m);
/* The same for a layer in the making whose pages file has the sum @pages. */
int memory_sum_meta(int dir, const int *stop, const uint8_t pages[SHA256_SIZE], struct manifest *m);
