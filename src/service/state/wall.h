/*
 * The wall clock, which can be set while we run. Times at which something is due (the end of a sandbox, its last use, the begin and
 * end of an exec) are kept as wall clock, since they are shown and outlive this process. When the clock is set by a second or
 * more, they move along with it: an hour that was not lived through ends nothing early and keeps nothing longer. Tokens are not
 * moved: their end is a date.
 */
#pragma once
#include <stdint.h>

struct service;

/* The time for whatever is kept of a sandbox or exec. */
uint64_t wall_now(struct service *s);
