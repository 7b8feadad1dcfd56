/* A layer's manifest: one fixed-size record beside its files. A layer that does not match it is refused. */
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"
#include "engine/spec.h"

struct digests;

/* Files and memory have the BLAKE3 of their pieces of DIGESTS_PIECE. */
#define MANIFEST_VERSION 7U
/* a bit of ->version: not yet safe on the disk, and marks (settle_mark.h) in place of its memory's sums */
#define MANIFEST_UNSETTLED 0x80000000U
/*
 * Of a machine, whose disks are large and mostly holes: files have the SHA-256 of pieces of DIGESTS_LARGE, memory that
 * of the whole.
 */
#define MANIFEST_VERSION_VM 3U
#define MANIFEST_ID 32 /* an id, padded with zeros */

struct manifest {
	char magic[8];
	uint32_t version;
	/*
	 * SPEC_READ_ONLY, SPEC_SYSTEM_*, SPEC_TIERS of its sandbox; SPEC_SYSTEM_LATER unless /usr had become writable
	 */
	uint32_t flags;
	char id[MANIFEST_ID];
	char parent[MANIFEST_ID]; /* the layer it is based on; zeros: the image itself */
	char image[SPEC_PATH];
	uint64_t tenant;
	uint64_t made; /* ns since 1970 */
	uint64_t entries, files, size; /* as tree_facts */
	uint32_t depth; /* length of its chain, with this one */
	uint32_t trees; /* bits of layer_trees[] */
	uint8_t sum[SHA256_SIZE]; /* of the files */
	uint64_t meta, pages; /* sizes of the files in mem; ->meta 0: no memory */
	uint8_t meta_sum[SHA256_SIZE], pages_sum[SHA256_SIZE];
	uint8_t self[SHA256_SIZE]; /* of all fields above */
};
static_assert(sizeof(struct manifest) == 528, "no padding");

/* Folders of the writable layer that users can change, by their names there (engine/rootfs/writable.h). */
#define LAYER_TREES 5
extern const char *const layer_trees[LAYER_TREES];

extern const char manifest_magic[8];
/* Computes ->self. */
void manifest_self(const struct manifest *m, uint8_t ret[SHA256_SIZE]);
/* Sets magic and ->self. */
void manifest_seal(struct manifest *m);
/* Makes the file "manifest" in @dir, with its final size but no content yet. Returns a descriptor. */
int manifest_make(int dir);
/* Writes that file, as far onto the disk as flush_data() does. */
int manifest_write(int fd, const struct manifest *m);
/* -EBADMSG when the version is unknown, or it is not of @id. */
int manifest_read(int dir, const char *id, struct manifest *ret);
/*
 * Whether @m has the same id, parent, image and other given fields as @given: the process that filled in the rest must
 * not change them. 0 or -EPROTO.
 */
int manifest_is_made_of(const struct manifest *m, const struct manifest *given);
/* Whether it holds the disks of a virtual machine instead of files. */
static inline bool manifest_of_machine(const struct manifest *m)
{
	return m->version == MANIFEST_VERSION_VM;
}
static inline bool manifest_unsettled(const struct manifest *m)
{
	return m->version & MANIFEST_UNSETTLED;
}
/* Walks @dir/fs: sets entries, files, size, trees and ->sum as ->version requires. */
int manifest_sum_files(int dir, const int *stop, const struct digests *known, struct manifest *m);
/* The same, and @dir/mem. */
int manifest_sum(int dir, const int *stop, const struct digests *known, struct manifest *m);
/* -EBADMSG when the files do not match @m. */
int manifest_verify(int dir, const int *stop, const struct manifest *m);
