/* The capabilities that cloche-warden keeps, and the one function that gives up all others. */
#pragma once
#include <linux/capability.h>
#include <stdint.h>

#include "base/err.h"

/* docs/design/0002-warden.md says what each is for. */
#define PRIVILEGES                                                                                                     \
	((1ULL << CAP_CHOWN) | (1ULL << CAP_DAC_OVERRIDE) | (1ULL << CAP_FOWNER) | (1ULL << CAP_FSETID) |              \
	 (1ULL << CAP_KILL) | (1ULL << CAP_SETGID) | (1ULL << CAP_SETUID) | (1ULL << CAP_NET_ADMIN) |                  \
	 (1ULL << CAP_NET_BIND_SERVICE) | (1ULL << CAP_SYS_PTRACE) | (1ULL << CAP_SYS_ADMIN) | (1ULL << CAP_MKNOD) |   \
	 (1ULL << CAP_SETFCAP) | (1ULL << CAP_DAC_READ_SEARCH) | (1ULL << CAP_CHECKPOINT_RESTORE) |                    \
	 (1ULL << CAP_SYS_NICE))
/* Kept if available: without it processes inside could lower their own oom_score_adj (base/score.h). */
#define PRIVILEGES_IF_ANY (1ULL << CAP_SYS_RESOURCE)

/*
 * Sets the bounding set, groups, ids, capabilities, no_new_privs, not dumpable; then reads them back from the kernel.
 * To be called before any other thread exists: each thread has its own. After a failure the process must end.
 */
int privileges_drop(struct err *e);
