/* New processes in new namespaces. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/sys.h"

#define NS_STACK_SIZE 16384

/*
 * clone3 with a function on its own stack, for CLONE_VM children: the child runs @fn(@arg) and exits with its result;
 * it must only make raw system calls. Returns the pid or -errno.
 */
long ns_clone(struct clone_args *a, int (*fn)(void *), void *arg);

/* Lets @pid's user namespace map ids 0..@count-1 to @base and up, in both maps. */
int ns_map_ids(pid_t pid, uint32_t inside, uint32_t base, uint32_t count, struct err *e);

/* A descriptor of @pid's user namespace, or -errno. @pidfd is the same process. */
int ns_open_user(pid_t pid, int pidfd);
/* Likewise of its mount namespace. */
int ns_open_mnt(pid_t pid, int pidfd);

/*
 * Whether bytes were sent in the current network namespace: then it may hold connections that still close, with their
 * ports, and its counters are not zero. When in doubt, yes.
 */
bool ns_net_used(void);
/* Brings the loopback interface of the current network namespace up. */
int ns_loopback_up(void);
