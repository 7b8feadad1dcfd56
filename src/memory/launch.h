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

/*
 * What the program gets of a sandbox. Descriptors stay the caller's, and no other of the warden's gets into the
 * program.
 */
struct dump_source {
	int program; /* cloche-dump, open; -1: not installed */
	int pidfd, table; /* the agent's pidfd, and its table of execs */
	pid_t pid; /* the agent's id */
	int freezer; /* the folder of the sandbox's freezer group */
	int out; /* the folder that the image is written to */
	bool refuses_network; /* connections to the outside are a reason to refuse */
	uint64_t room; /* bytes left of its memory limit; UINT64_MAX: no limit */
	bool sums; /* the program reports the sum of the pages file, and starts to write that file to the disk */
	bool whole; /* an exec that has ended, and the agent has not noticed yet, is a conflict */
	int base; /* the meta file of the image that the sandbox was restored from; used only with ancestors */
	unsigned ancestors;
	char ancestor[MEM_PAGE_FILES][ID_SIZE];
	int pages[MEM_PAGE_FILES]; /* the pages files of ->ancestor */
};

struct dump {
	pid_t pid; /* 0: not running */
	int control; /* the socket to it; -1: not running */
	bool sums; /* sums were requested */
};

void dump_init(struct dump *d);
/* Starts the program. It ends with the calling thread, which therefore must not end before it. */
int dump_start(const struct dump_source *s, struct dump *ret, struct err *e);
/*
 * Waits until the program says @word. -ECANCELED: *@stop was set meanwhile. If the program refuses, @e has its error:
 * -EAGAIN for a `conflict`, which may be over in a moment, else -EOPNOTSUPP. Any other failure is ERR_INTERNAL. After a
 * failure call dump_end().
 */
int dump_wait(struct dump *d, const char *word, unsigned ms, const int *stop, struct err *e);
/*
 * Waits for its last word. @ret_sum: the sum of the pages file, as of memory_sum(); written only if sums were
 * requested.
 */
int dump_wait_done(struct dump *d, unsigned ms, const int *stop, uint8_t ret_sum[SHA256_SIZE], struct err *e);
int dump_say(struct dump *d, const char *word, struct err *e);
/* Call it when the program has released all processes: it ends by itself, and dump_end() may follow later. */
void dump_leave(struct dump *d);
/* Kills the program if it still runs, and waits for its end. Then it holds no process any more. */
void dump_end(struct dump *d);
