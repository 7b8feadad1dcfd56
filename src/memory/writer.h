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

#define WRITER_BUFFER (2U << 20) /* bytes of a buffer */

struct writer;

/* Starts the thread. Call it before confine(), which forbids new threads. */
int writer_new(struct writer **ret, struct err *e);
/* Call it before the first writer_put(): requests the sum of the file, and an early start of writing it to the disk. */
int writer_sum(struct writer *w, struct err *e);
/* Announces about how many bytes will come. The thread prepares memory for them while it has nothing to write. */
void writer_expect(struct writer *w, uint64_t bytes);
/*
 * Returns an empty buffer of WRITER_BUFFER bytes, and waits for one if all wait to be written. -errno: writing an
 * earlier one has failed.
 */
int writer_buffer(struct writer *w, uint8_t **ret);
/* Appends the first @len bytes of that buffer to @fd, and takes it back. */
void writer_put(struct writer *w, int fd, uint8_t *buffer, size_t len);
/* Whether no buffer waits to be written: a buffer that is not full yet may then be put as well. */
bool writer_idle(struct writer *w);
/*
 * Waits until all buffers are written. @ret_sum: the sum of the file, as in a manifest (base/piece.h); set only after
 * writer_sum().
 */
int writer_end(struct writer *w, uint8_t ret_sum[SHA256_SIZE]);
