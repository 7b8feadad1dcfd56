/*
 * Files on their way into a layer. Who calls only reads them, as long as there is room in memory; two threads sum
 * up and write what was read, past the page cache where the filesystem lets us: a layer is seldom read soon, and filling
 * the cache costs as much as all the rest. So a sandbox stands still for the reading, not for the disk.
 */
#pragma once
#include <stdint.h>
#include <sys/stat.h>

#include "layers/digests.h"

struct copy_pipeline;
struct copy_pipeline_spare;

#define COPY_PIPELINE_SUMS 16U /* taken in one go */
#define COPY_PIPELINE_PIECE (COPY_PIPELINE_SUMS * DIGESTS_PIECE) /* the most that is read in one go */
#define COPY_PIPELINE_MEMORY ((size_t)12U << 20) /* bytes that are read and not yet written, at most */
#define COPY_PIPELINE_FEW 16U /* files of up to DIGESTS_PIECE are written at once: to wake somebody up for them would take longer */
#define COPY_PIPELINE_DIRECT (256U << 10) /* bytes; smaller files are written through the cache, which takes them at once */

/*
 * One pipeline's memory and threads, kept for the next one: fresh pages cost as much time as what is read into them, and a
 * thread that is new may wait for milliseconds until it runs. The kernel may take the pages whenever it needs some. For
 * any number of threads; NULL when there is no memory, and then nothing is kept.
 */
struct copy_pipeline_spare *copy_pipeline_spare_new(void);
void copy_pipeline_spare_free(struct copy_pipeline_spare *s);

/* For one thread. NULL when there is no memory; all may be called with NULL. @stop as in struct tree_copy. */
struct copy_pipeline *copy_pipeline_new(const int *stop, struct copy_pipeline_spare *spare);
/* Gives up what is under way. Before what its digests are in is freed. */
void copy_pipeline_free(struct copy_pipeline *p);
/*
 * @from, open for reading and as @st says, which nobody changes until this returns, becomes the empty file @to, open for
 * reading and writing. 1: it will be, with @st's mode and times and as @uid's and @gid's, when copy_pipeline_end() says so, and
 * its sums will be in @d; @to may be closed. 0: not a file for it, nothing was done. -errno: as from a copy that failed.
 */
int copy_pipeline_file(struct copy_pipeline *p, struct digests *d, int from, int to, const struct stat *st, uint32_t uid, uint32_t gid);
/*
 * Until all is written and summed up; helps. 0, or what went wrong with any of them. May be called again. @written, if any,
 * is called when everything is written, by whichever thread and before the last sums are there; not when that failed.
 */
int copy_pipeline_end(struct copy_pipeline *p, void (*written)(void *arg), void *arg);
