/*
 * A holder of one memory image: a process that has the image's pages in memory of its own, and of which the agents of
 * new sandboxes are copies. What they restore is then moved to its place instead of read, so that all copies share every
 * page that none of them has changed (docs/design/0012-anonymous-memory.md).
 *
 * The holder runs nothing but this program, never enters a sandbox, and what it reads of an image is data. The agent
 * that it makes is as one that the warden has started: in new namespaces, before its first step.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "agent/restore/restore.h"
#include "linux/cgroup.h"

/*
 * Pages that are adjacent in the process and are held together: neighbouring anonymous mappings, or one mapping of a
 * file.
 */
struct stash_block {
	uint64_t at, start, len; /* where they are held, where they belong */
	uint32_t first, n; /* mappings of the image */
	bool file; /* a private mapping of ->dev, ->ino */
	bool used; /* false: in this sandbox that is another file, so it is mapped and read as without us */
	dev_t dev;
	ino_t ino;
};

struct stash {
	uint64_t start, len; /* all of it; nothing that an image's process has is there */
	struct stash_block *block;
	uint32_t n;
	uint32_t *of; /* by mapping of the image: its block, or MEM_NONE */
	struct stat meta, pages[MEM_PAGE_FILES]; /* of what it was read from */
	uint32_t n_pages;
	uint64_t bytes;
	uint32_t groups; /* of the agent that a copy becomes: struct agent */
	char groups_at[CGROUP_WHERE_MAX];
	struct restore_vdso vdso[RESTORE_VDSO_MAX];
	unsigned n_vdso;
};

/* Reads the image. @host: a mount of the host's root, whose files are mapped where they are an image's, or -1. */
int stash_hold(int meta, const int *pages, uint32_t n_pages, int host, struct stash *ret, struct err *e);
/* The holder's life. Returns in a copy of it that is to become an agent. */
struct stash *stash_serve(int control);

/* In the agent, when the image's files are open: whether it is the one that is held, and which blocks can be used. */
bool stash_fits(struct stash *s, const struct restore *r, int meta, const int *pages);
/* The block that the mapping @vma of the image is moved with, or NULL. */
const struct stash_block *stash_find(const struct restore *r, uint32_t vma);
/* The agent needs it no more. */
void stash_drop(struct agent *a);
