/*
 * Files on their way into a layer. Who calls only reads them, as long as there is room in memory; two threads sum
 * up and write what was read, past the page cache where the filesystem lets us: a layer is seldom read soon, and filling
 * the cache costs as much as all the rest. So a sandbox stands still for the reading, not for the disk.
 */
#pragma once
#include <stdint.h>
#include <sys/stat.h>

#include "layers/digests.h"

struct pump;
struct pump_spare;

#define PUMP_SUMS 16U /* taken in one go */
#define PUMP_PIECE (PUMP_SUMS * DIGESTS_PIECE) /* the most that is read in one go */
#define PUMP_MEMORY ((size_t)12U << 20) /* bytes that are read and not yet written, at most */
#define PUMP_FEW 16U /* files of up to DIGESTS_PIECE are written at once: to wake somebody up for them would take longer */
#define PUMP_DIRECT (256U << 10) /* bytes; smaller files are written through the cache, which takes them at once */

/*
 * One pump's memory and threads, kept for the next one: fresh pages cost as much time as what is read into them, and a
 * thread that is new may wait for milliseconds until it runs. The kernel may take the pages whenever it needs some. For
 * any number of threads; NULL when there is no memory, and then nothing is kept.
 */
struct pump_spare *pump_spare_new(void);
void pump_spare_free(struct pump_spare *s);

/* For one thread. NULL when there is no memory; all may be called with NULL. @stop as in struct tree_copy. */
struct pump *pump_new(const int *stop, struct pump_spare *spare);
/* Gives up what is under way. Before what its digests are in is freed. */
void pump_free(struct pump *p);
/*
 * @from, open for reading and as @st says, which nobody changes until this returns, becomes the empty file @to, open for
 * reading and writing. 1: it will be, with @st's mode and times and as @uid's and @gid's, when pump_end() says so, and
 * its sums will be in @d; @to may be closed. 0: not a file for it, nothing was done. -errno: as from a copy that failed.
 */
int pump_file(struct pump *p, struct digests *d, int from, int to, const struct stat *st, uint32_t uid, uint32_t gid);
/*
 * Until all is written and summed up; helps. 0, or what went wrong with any of them. May be called again. @written, if any,
 * is called when everything is written, by whichever thread and before the last sums are there; not when that failed.
 */
int pump_end(struct pump *p, void (*written)(void *arg), void *arg);
