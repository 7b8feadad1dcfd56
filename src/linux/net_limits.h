/*
 * Settings of a network namespace that limit what its sockets can hold, also when nothing watches them. The sizes of new
 * connections' buffers are what programs on loopback need to be as fast as without limits.
 */
#pragma once

/*
 * In the network namespace the calling thread is in; needs its CAP_NET_ADMIN. What this kernel has no such setting for, or does
 * not let us write, is left as it is: nothing depends on it alone. The latter is logged once.
 */
void net_limits_set(void);
