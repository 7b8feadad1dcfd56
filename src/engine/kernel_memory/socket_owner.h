/*
 * Which process below a sandbox's first one has a socket. Only for messages to users, so the search is bounded in work
 * and may miss it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WARDEN_COMMAND 128
struct socket_owner {
	uint32_t pid; /* inside; 0 = none was found: it has ended, or there are too many to search */
	uint32_t zero;
	char command[WARDEN_COMMAND]; /* its arguments, as far as they fit; printable */
};

/*
 * ->pid of *@ret stays 0 when none is found; false: since that took too long. What a command calls itself is hostile:
 * only printable bytes pass.
 */
bool socket_owner_find(pid_t first, uint64_t inode, struct socket_owner *ret);
