/*
 * The files by which a sandbox sees its memory and load, in /proc/meminfo and /proc/loadavg. They are in its writable layer, and
 * written anew while it runs, so that a reader never waits: by what looks at the sandbox (engine/kernel_memory/show.h).
 * docs/design/0014-what-programs-see.md has the choice.
 */
#pragma once
#include <stddef.h>

#define SHOWN_APART "shown" /* a folder in memory, in a writable layer on a disk, which has the texts then */
#define SHOWN_NO_LOAD "0.00 0.00 0.00 1/1 1\n"

/*
 * Opens meminfo and loadavg for writing. Both -1 if they cannot be opened, or are on a disk: a write there may block, and the
 * thread that writes serves all sandboxes. @writable: the folder of the writable layer, or -1.
 */
void shown_live(int writable, int ret[2]);
/* Writes a whole text over the one that is there. 0 or -errno. */
int shown_rewrite(int fd, const char *text, size_t n);
int shown_write(int writable, const char *name, const char *text, size_t n);
