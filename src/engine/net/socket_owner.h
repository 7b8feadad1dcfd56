/* Which process below a sandbox's first has a socket: for telling people, so a guess that is bounded in work will do. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/sandbox/sandbox.h"

/*
 * ->pid of *@ret stays 0 when none is found; false: since that took too long. What a command calls itself is hostile:
 * only printable bytes pass.
 */
bool socket_owner_find(pid_t first, uint64_t inode, struct socket_owner *ret);
