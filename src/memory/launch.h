/*
 * cloche-dump, as the warden's workers run it: one process per image of a sandbox's memory. It reads hostile processes,
 * so its messages are treated as hostile, too. docs/design/0007-memory.md describes the protocol.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/id.h"
#include "base/sha256.h"
#include "proto/memory.h"

/* Of the sandbox, all the caller's; nothing else of the warden's gets into the program. */
struct dump_source {
	int program; /* cloche-dump, open; -1: there is none here */
	int pidfd, table; /* of the agent */
	pid_t pid; /* likewise */
	int freezer; /* its control group's folder */
	int out; /* the folder for meta and pages */
	bool refuses_network; /* connections to the outside are a reason to refuse */
	uint64_t room; /* bytes left of its limit of memory; UINT64_MAX: none */
	bool sums; /* it reports the sum of its pages file, and starts to write that file to the disk */
	bool whole; /* an exec that has ended, and the agent has not noticed yet, is a conflict */
	int base; /* meta of the image it was restored from; without ancestors it means nothing */
	unsigned ancestors;
	char ancestor[MEM_PAGE_FILES][ID_SIZE];
	int pages[MEM_PAGE_FILES]; /* theirs */
};

struct dump {
	pid_t pid; /* 0: not running */
	int control; /* -1 likewise */
	bool sums; /* were asked for */
};

void dump_init(struct dump *d);
/* The calling thread must not end before the program does: it would go with it. */
int dump_start(const struct dump_source *s, struct dump *ret, struct err *e);
/*
 * Waits for @word. -ECANCELED when *@stop is set meanwhile; when it refuses, its own kind and text in @e: -EAGAIN for
 * what may be over in a moment (`conflict`), else -EOPNOTSUPP. ERR_INTERNAL for whatever else. It is to be ended then.
 */
int dump_wait(struct dump *d, const char *word, unsigned ms, const int *stop, struct err *e);
/* The same for its last word. @ret_sum: of the pages file, as memory_sum() takes it; written only when it was asked for. */
int dump_wait_done(struct dump *d, unsigned ms, const int *stop, uint8_t ret_sum[SHA256_SIZE], struct err *e);
int dump_say(struct dump *d, const char *word, struct err *e);
/* After this it holds no process any more: it ends by itself, and dump_end() may be called later. */
void dump_leave(struct dump *d);
/* Kills it, if it has not ended, and returns when it is gone: then it holds no process any more. */
void dump_end(struct dump *d);
