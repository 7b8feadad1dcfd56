/*
 * Brings a layer in the making to the disk, beginning while it is copied. The whole filesystem holds what others have
 * written, and that may take long: few files are written one by one, and only many, or what cannot be opened (links,
 * nodes), that way.
 */
#pragma once
#include <stdbool.h>

#define FLUSH_FILES 32U /* and folders; with more, all at once is faster */
#define FLUSH_STEP (2U << 20) /* bytes of a file that are worth to begin with */

struct flush;

/* For one thread. NULL when there is no memory: then flush_wait() does all of it. */
struct flush *flush_new(void);
void flush_free(struct flush *f);
/* More of this file, open for writing, is there than when this was called last. All may be called with NULL. */
void flush_more(struct flush *f, int fd);
/* This file will not be written to any more; its attributes may still change. */
void flush_file_add(struct flush *f, int fd);
/* What is told until flush_leave() is in a folder, the one told then. */
void flush_enter(struct flush *f);
void flush_leave(struct flush *f, int fd);
/* Something that is not opened was made. */
void flush_other(struct flush *f);
/* A file that only gets other content: where it is, how long and in which folders can be made sure of now. Not ours. */
void flush_ahead(struct flush *f, int fd);
/* All was added, and folders are as they will be: they may go ahead. Files may still get content and attributes. */
void flush_copied(struct flush *f, int dir);
/* Everything is in @dir, for good. Begins with what takes long, aside. */
void flush_end(struct flush *f, int dir);
/* Until everything is on the disk, where flush_ordered() but for the commit: whatever has an fsync later brings it. */
int flush_wait(struct flush *f, int dir);
/* The same of one file. */
int flush_file(int fd);
/* The same, but for what it says of itself unless that is needed to read it. */
int flush_data(int fd);
/* If an fsync of a new file brings its name, and the folders above it that are new, too. */
bool flush_brings_folders(int fd);
/* If an fsync of anything on that filesystem commits all that was done there before, by whomever. */
bool flush_ordered(int fd);
