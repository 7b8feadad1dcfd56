/* Whole trees of files, as layers are made of: copied, summed up, removed. Safe on what somebody hostile has made. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/sha256.h"

struct digests;
struct flush;
struct copy_pipeline;

struct tree_copy {
	uint32_t uid_base; /* ids from here on become 0, 1, ... */
	int beside; /* a folder, where "links" is made when a file has several names: they find it there */
	int *links; /* that folder once it is made, the caller's to close; else -1 */
	const int *stop; /* atomic: not 0 any more means to give up with -ECANCELED */
	char *buf; /* TREE_BUF bytes */
	struct flush *flush; /* is told of all that is made, or NULL */
	struct copy_pipeline *pipeline; /* takes large files, or NULL: copy_pipeline_end() comes behind all copies */
	struct digests *digests; /* gets their sums, or NULL */
	bool heirs; /* the folder may give rights to what is made in it */
	char *odd; /* TREE_ODD bytes, or NULL: the file, when its extended attributes are too large (-ERANGE) */
};

#define TREE_BUF (512U << 10)
#define TREE_ODD 160U
#define TREE_IDS 65536U

/*
 * Copies what is in @from into the empty folder @to (both open for reading), and the folder's own attributes: data with
 * its holes, owners, modes, times, names of one file, extended attributes that mean something elsewhere. Nodes are made,
 * never opened. Nobody may change @from meanwhile; who does so all the same can only make it fail.
 */
int tree_copy(const struct tree_copy *c, int from, int to);
/* Nothing is in it, and nothing is to be said of it that a new one of root (@uid_base) would not have. */
bool tree_is_bare(int dir, uint32_t uid_base);

/*
 * Brings what is in the layer's tree @from below what is in @to already, as overlay would show the two: what is there
 * hides what comes, and what @from hides stays hidden from what is below both. Both are in overlay's own form.
 */
int tree_join(const struct tree_copy *c, int from, int to);
/*
 * After joining: whiteouts may be in folders that nothing is below. Overlay looks for them there, instead of showing
 * them as names without anything behind, when a folder says that it may have been copied up.
 */
int tree_mark_whiteouts(int dir, const int *stop);

struct tree_facts {
	uint64_t entries; /* of any kind */
	uint64_t files; /* regular ones, each once */
	uint64_t size; /* of those */
};

/*
 * Adds everything about the tree at @dir that a sandbox could see to @s, in an order that depends on names only. Data
 * that is zeros is the same as a hole. Files are the sums of their pieces (digests.h), which may be known: of DIGESTS_PIECE,
 * each with its number, without those that are nothing but zeros; or, with ->large, of DIGESTS_LARGE, one after the other, and what
 * is in them when they are no larger than one.
 */
struct tree_sum {
	const int *stop;
	char *buf; /* TREE_BUF bytes */
	const struct digests *known;
	bool large;
	bool lone; /* that a file has several names means nothing: they are not in this tree */
};
int tree_sum(const struct tree_sum *how, int dir, struct sha256 *s, struct tree_facts *ret);
/* A new one of ours, empty, open for reading: *ret. */
int tree_make_folder(int dir, const char *name, int *ret);
/* With all that is in it. 0 also when there is none. */
int tree_remove(int parent, const char *name);
