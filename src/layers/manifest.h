/* What a layer says of itself: one fixed-size record beside its files. If the two differ the layer is refused. */
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"
#include "engine/spec.h"

struct digests;

/* Files and memory are summed up by the BLAKE3 of their pieces of DIGESTS_PIECE. */
#define MANIFEST_VERSION 7U
#define MANIFEST_UNSETTLED 0x80000000U /* a bit of ->version: not on the disk for good, and in place of its memory's sums is what settle.c says */
/* Of a machine, whose disks are large and mostly holes: files by the SHA-256 of pieces of DIGESTS_LARGE, memory by that of the whole. */
#define MANIFEST_VERSION_VM 3U
#define MANIFEST_ID 32 /* an id, filled up with zeros */

struct manifest {
	char magic[8];
	uint32_t version;
	uint32_t flags; /* SPEC_READ_ONLY, SPEC_SYSTEM_*, SPEC_VM of the sandbox it is of; LATER: as long as nobody had come */
	char id[MANIFEST_ID];
	char parent[MANIFEST_ID]; /* the layer it stands on; zeros: the image itself */
	char image[SPEC_PATH];
	uint64_t tenant;
	uint64_t made; /* ns since 1970 */
	uint64_t entries, files, size; /* as tree_facts */
	uint32_t depth; /* layers it takes, with this one */
	uint32_t trees; /* bits of layer_trees[] */
	uint8_t sum[SHA256_SIZE]; /* of the files */
	uint64_t meta, pages; /* sizes of what is in mem; ->meta 0: no memory */
	uint8_t meta_sum[SHA256_SIZE], pages_sum[SHA256_SIZE];
	uint8_t self[SHA256_SIZE]; /* of all above */
};
static_assert(sizeof(struct manifest) == 528, "no padding");

/* Folders of the writable layer that users can change, by their names there (engine/rootfs/writable.h). */
#define LAYER_TREES 5
extern const char *const layer_trees[LAYER_TREES];

/* Fills magic and ->self. */
void manifest_seal(struct manifest *m);
/* Makes the file "manifest" in @dir, as long as it will be, without anything in it yet. A descriptor. */
int manifest_make(int dir);
/* What is to be in that file, as far on the disk as flush_data() brings it. */
int manifest_write(int fd, const struct manifest *m);
/* -EBADMSG when it is not one of these two, or not of @id. */
int manifest_read(int dir, const char *id, struct manifest *ret);
static inline bool manifest_unsettled(const struct manifest *m)
{
	return m->version & MANIFEST_UNSETTLED;
}
/* Walks @dir/fs: fills entries, files, size, trees and ->sum as ->version has it. */
int manifest_sum_files(int dir, const int *stop, const struct digests *known, struct manifest *m);
/* And @dir/mem. */
int manifest_sum(int dir, const int *stop, const struct digests *known, struct manifest *m);
/* -EBADMSG when the files are not those that @m speaks of. */
int manifest_verify(int dir, const int *stop, const struct manifest *m);
