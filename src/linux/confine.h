/*
 * For our own programs that do one thing for the warden: gives up what root has, in one call and one order, before they look at
 * the first byte that a stranger has made.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONFINE_NOBODY 65534U /* a user id that owns nothing */
#define CONFINE_ANY ~0U

/*
 * A system call that is allowed if one of its entries says so: the bits of @mask in argument @arg are @value and, if it is not
 * CONFINE_ANY, argument @zero is 0.
 */
struct confine_call {
	int nr;
	unsigned arg;
	uint32_t mask, value;
	unsigned zero;
};

struct confine {
	uint64_t keep; /* capabilities */
	uid_t user;
	uint64_t memory; /* bytes of addresses; 0: any */
	const int *calls; /* that are allowed, whatever their arguments */
	size_t ncalls;
	const struct confine_call *checked;
	size_t nchecked;
	int refuse; /* errno that other calls return; 0: they end the process */
};

/*
 * Fills in the calls of programs that work on files, and run others that do: no sockets, mounts, namespaces, signals, tracing.
 * Other calls return ENOSYS.
 */
void confine_file_programs(struct confine *c);
/* 0 or -errno: then the process must end. Its death signal is SIGKILL. */
int confine_self(const struct confine *c);
