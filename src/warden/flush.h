/*
 * Brings a layer in the making to the disk, beginning while it is copied. The whole filesystem holds what others have
 * written, and that may take long: few files are written one by one, and only many, or what can not be opened (links,
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
/* This file or folder will not be written to any more; its attributes may still change. */
void flush_add(struct flush *f, int fd);
/* Something that is not opened was made. */
void flush_other(struct flush *f);
/* Everything is in @dir. Begins with what takes long, aside. */
void flush_end(struct flush *f, int dir);
/* After something made later than all of it was made sure of (fsync). Until everything is on the disk. */
int flush_wait(struct flush *f, int dir);
/* If on that filesystem folders need no fsync of their own when something made later had one. */
bool flush_ordered(int fd);
