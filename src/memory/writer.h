/*
 * The pages file, written and summed up by a thread beside the one that reads the processes: pages are written to the
 * disk while others are still being read. Buffers that were written are used again first, so that few are ever touched.
 *
 * The thread has no capabilities, and the same filter as the rest of the program.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"

#define WRITER_BUFFER (2U << 20) /* bytes of one */

struct writer;

/* While threads can still be made. */
int writer_new(struct writer **ret, struct err *e);
/* Call it before the first writer_put(): requests the sum of the file, and an early start of writing it to the disk. */
int writer_sum(struct writer *w, struct err *e);
/* About so much will come: the thread gets memory for it while it has nothing to write. */
void writer_expect(struct writer *w, uint64_t bytes);
/* An empty one, WRITER_BUFFER bytes. Waits when all are on their way. -errno of what went wrong with earlier ones. */
int writer_buffer(struct writer *w, uint8_t **ret);
/* Appends the first @len bytes of that buffer to @fd, and takes it back. */
void writer_put(struct writer *w, int fd, uint8_t *buffer, size_t len);
/* Whether no buffer waits to be written: a buffer that is not full yet may then be put as well. */
bool writer_idle(struct writer *w);
/* Waits until all of it is written. @ret_sum as in a manifest (base/piece.h); set only after writer_sum(). */
int writer_end(struct writer *w, uint8_t ret_sum[SHA256_SIZE]);
