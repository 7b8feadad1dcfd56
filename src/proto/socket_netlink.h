/*
 * Netlink sockets that a memory image carries: those that know nothing but what can be asked of them. cloche-dump refuses others, and the
 * agent makes these by the same list.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

static inline bool socket_netlink_carried(uint32_t protocol)
{
	/* ROUTE, USERSOCK, SOCK_DIAG, KOBJECT_UEVENT, GENERIC */
	return protocol == 0 || protocol == 2 || protocol == 4 || protocol == 15 || protocol == 16;
}
