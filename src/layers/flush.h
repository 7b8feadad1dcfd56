/*
 * Brings a layer in the making to the disk, beginning while it is copied. Syncing the whole filesystem also waits for
 * what other processes have written, which may take long: few files are synced one by one. Only many files, or those
 * that cannot be opened (links, nodes), are synced that way.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define FLUSH_FILES 32U /* files and folders; above this, syncing all at once is faster */
#define FLUSH_STEP (2U << 20) /* bytes of a file from which an early start is worth it */

#define FLUSH_IOCTL _IOW('f', 43, uint32_t) /* EXT4_IOC_CHECKPOINT: used to find out whether ext4 has a journal */

struct flush;

/* For one thread. NULL when there is no memory: then flush_wait() does all of it. */
struct flush *flush_new(void);
void flush_free(struct flush *f);
/* Reports that this file, open for writing, has grown. All functions accept NULL. */
void flush_more(struct flush *f, int fd);
/* Adds a file that will not be written to any more; its attributes may still change. */
void flush_file_add(struct flush *f, int fd);
/* What is added until flush_leave() is in a folder, which is added by that call. */
void flush_enter(struct flush *f);
void flush_leave(struct flush *f, int fd);
/* Reports that something was made that cannot be opened. */
void flush_other(struct flush *f);
/* Adds a file that only gets other content: its place, size and folders can be synced now. @fd stays the caller's. */
void flush_ahead(struct flush *f, int fd);
/* All was added, and the folders are final: they may be synced early. Files may still get content and attributes. */
void flush_copied(struct flush *f, int dir);
/* Everything is in @dir, and final. Starts the slow part in a thread. */
void flush_end(struct flush *f, int dir);
/* Waits until everything is on the disk; if flush_ordered(), all but the commit, which any later fsync brings. */
int flush_wait(struct flush *f, int dir);
/* The same for one file. */
int flush_file(int fd);
/* The same, without metadata that is not needed to read the file. */
int flush_data(int fd);
/* Whether an fsync of a new file also brings its name, and the new folders above it. */
bool flush_brings_folders(int fd);
/* Whether an fsync of any file on that filesystem commits all changes made there before, by any process. */
bool flush_ordered(int fd);
