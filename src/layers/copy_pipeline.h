/*
 * Copies files into a layer. The calling thread only reads, as long as there is room in memory; two threads sum up and
 * write what was read, past the page cache where the filesystem allows it: a layer is rarely read soon, and filling the
 * cache costs as much as all the rest. So a sandbox is frozen for the reading, not for the disk.
 */
#pragma once
#include <stdint.h>
#include <sys/stat.h>

#include "layers/digests.h"

struct copy_pipeline;
struct copy_pipeline_spare;

#define COPY_PIPELINE_SUMS 16U /* pieces that are read in one go */
#define COPY_PIPELINE_PIECE (COPY_PIPELINE_SUMS * DIGESTS_PIECE) /* the most that is read in one go */
#define COPY_PIPELINE_MEMORY ((size_t)12U << 20) /* bytes that are read and not yet written, at most */
/* files of up to DIGESTS_PIECE are written at once: waking up a thread for them would take longer */
#define COPY_PIPELINE_FEW 16U
/* bytes; smaller files are written through the cache, which is faster for them */
#define COPY_PIPELINE_DIRECT (256U << 10)

/*
 * The memory and threads of one pipeline, kept for the next one: fresh pages cost as much time as reading into them,
 * and a new thread may wait for milliseconds until it runs. The kernel may take the pages whenever it needs some. For
 * any number of threads; NULL when there is no memory, and then nothing is kept.
 */
struct copy_pipeline_spare *copy_pipeline_spare_new(void);
void copy_pipeline_spare_free(struct copy_pipeline_spare *s);

/* For one thread. NULL when there is no memory; all functions accept NULL. @stop as in struct tree_copy. */
struct copy_pipeline *copy_pipeline_new(const int *stop, struct copy_pipeline_spare *spare);
/* Gives up what is under way. To be called before the struct digests is freed. */
void copy_pipeline_free(struct copy_pipeline *p);
/*
 * Copies @from, open for reading and unchanged since @st until this returns, into the empty file @to, open for reading
 * and writing. 1: when copy_pipeline_end() succeeds, @to has the content, @st's mode and times, owner @uid and @gid,
 * and its sums are in @d; @to may be closed. 0: the pipeline does not take this file, and nothing was done. -errno: as
 * from a copy that failed.
 */
int copy_pipeline_file(struct copy_pipeline *p, struct digests *d, int from, int to, const struct stat *st,
		       uint32_t uid, uint32_t gid);
/*
 * Waits until all files are written and summed up, and takes part in that. 0, or the first error. May be called again.
 * @written, if any, is called when everything is written, by any of the threads and before the last sums are there; not
 * after an error.
 */
int copy_pipeline_end(struct copy_pipeline *p, void (*written)(void *arg), void *arg);
