/*
 * What a process runs while it becomes another one: a list of system calls, made from code and data at an address that
 * is free in both, since everything else is replaced. The code (blob.c) is copied out of the agent; it has no data of
 * its own, knows nothing of images, and calls nothing.
 */
#pragma once
#include <stdint.h>

enum blob_want {
	BLOB_FIRST = 0, /* the result is the first argument: mmap at a fixed place */
	BLOB_SECOND = 1, /* the second: shmat at a fixed place */
	BLOB_FIFTH = 4, /* the fifth: mremap to a fixed place */
	BLOB_SIXTH = 5, /* the sixth, which the call does not have: bytes that were to be read */
	BLOB_OK, /* no error */
	BLOB_ANY,
	BLOB_SAME, /* no call: the u32 at the first argument is the second */
	BLOB_SPAWN, /* clone3 of a thread that continues with the list at ->a[2] */
};

struct blob_op {
	uint32_t nr; /* system call */
	uint16_t want; /* enum blob_want */
	uint16_t what; /* enum restore_what: the step to report if this fails */
	uint64_t a[6];
};

/* Shared by the agent and everything it restores. */
struct blob_shared {
	uint32_t phase; /* futex: the agent starts the next phase */
	uint32_t arrived; /* futex: processes that wait for the next phase */
	uint32_t ready; /* futex: threads that only have to be given their registers */
	uint32_t hold; /* futex that is never woken */
	uint32_t failed; /* 0, or 1: the first that fails sets it and fills in the rest, then 2 */
	uint32_t what, proc, detail;
	int32_t error;
	uint32_t undone; /* processes that have their adjustments of semaphores again: sysv.c */
	uint32_t mapped, helped; /* futexes: the agent may begin to help; it has: help.c */
	uint64_t child_signal; /* SIGCHLD alone, and no time to wait for it: trace.c */
	uint64_t no_time[2];
};

struct blob_list {
	struct blob_shared *shared;
	const struct blob_op *op;
	uint64_t n;
	uint32_t proc; /* index, for the failure */
	uint32_t zero;
};

/* Does not return: at the end of the list it waits until a tracer gives it other registers. */
void blob_run(const struct blob_list *l) __attribute__((noreturn));
/* Where the code is. */
extern const uint8_t __start_cloche_blob[], __stop_cloche_blob[];
