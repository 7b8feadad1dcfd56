/* Operations on whole trees of files that layers consist of: copy, sum up, remove. Safe on hostile trees. */
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
	int beside; /* a folder in which "links" is made when a file has several names, to find it by the next name */
	int *links; /* the folder "links" once it is made, the caller's to close; else -1 */
	const int *stop; /* atomic: once not 0, gives up with -ECANCELED */
	char *buf; /* TREE_BUF bytes */
	struct flush *flush; /* gets all files that are made, or NULL */
	struct copy_pipeline *pipeline; /* copies large files, or NULL: copy_pipeline_end() must follow all copies */
	struct digests *digests; /* gets the sums of large files, or NULL */
	bool heirs; /* the folder may have an access list that new files inherit */
	/* TREE_ODD bytes, or NULL: gets the path of a file whose extended attributes are too large (-ERANGE) */
	char *odd;
};

#define TREE_BUF (512U << 10)
#define TREE_ODD 160U
#define TREE_IDS 65536U

/*
 * Copies the content of @from into the empty file @to (both open for reading), and the folder's own attributes: data
 * with its holes, owners, modes, times, hard links, extended attributes that are valid elsewhere. Nodes are made, never
 * opened. @from must not change meanwhile; if it does, the copy can only fail.
 */
int tree_copy(const struct tree_copy *c, int from, int to);
/* Whether a folder is empty and has the attributes of a new folder of root (@uid_base). */
bool tree_is_bare(int dir, uint32_t uid_base);

/*
 * Adds the layer's tree @from below the content of @to, as overlay would show the two: existing files hide those of
 * @from, and what @from hides stays hidden in layers below both. Both are in overlay's own format.
 */
int tree_join(const struct tree_copy *c, int from, int to);
/*
 * After joining: whiteouts may be in folders that have no lower folder. Overlay only handles whiteouts there, instead
 * of showing them as names of missing files, if the folder is marked as possibly copied up.
 */
int tree_mark_whiteouts(int dir, const int *stop);

struct tree_facts {
	uint64_t entries; /* files of any type */
	uint64_t files; /* regular files, each once */
	uint64_t size; /* bytes of those */
};

/*
 * Adds everything about the tree at @dir that a sandbox could see to @s, in an order that depends on names only. Zeros
 * are the same as a hole. Files are represented by the sums of their pieces (digests.h), which may be known: pieces of
 * DIGESTS_PIECE, each with its number, except those of zeros; or, with ->large, pieces of DIGESTS_LARGE in sequence,
 * and the content itself if it is no larger than one.
 */
struct tree_sum {
	const int *stop;
	char *buf; /* TREE_BUF bytes */
	const struct digests *known;
	bool large;
	bool lone; /* hard links are ignored: the other names are not in this tree */
};
int tree_sum(const struct tree_sum *how, int dir, struct sha256 *s, struct tree_facts *ret);
/* Makes a new folder of root, empty, open for reading: *ret. */
int tree_make_folder(int dir, const char *name, int *ret);
/* Removes a folder with all its content. 0 also when there is none. */
int tree_remove(int parent, const char *name);
