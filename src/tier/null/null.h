/* The null tier: no isolation at all, to measure the daemon alone. Built with -Dnull_tier=true only. */
#pragma once
#include <stdint.h>

#include "engine/tier.h"

#define NULL_USER 65534U /* user of the commands */

extern const struct tier_ops null_tier;

/*
 * A sandbox of this tier: a process that starts commands. @sock: frames of the agent's protocol; @ctl: a SOCK_SEQPACKET
 * socket, each message the number of a group to end. Called in a child of the warden, which has other threads: makes
 * system calls, and takes no lock.
 */
_Noreturn void null_agent(int sock, int ctl);
