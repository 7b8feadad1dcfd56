/*
 * The socket options that a memory image carries. cloche-dump reads every option of this table and refuses what differs
 * from a new socket and cannot be set; the agent sets what was written down, by the same table.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define SOCKET_OPTION_MAX 32U /* bytes of a value */

enum socket_option_flag {
	SOCKET_LATE = 1, /* set when the socket is bound, connected and has its queue */
	SOCKET_IDLE = 2, /* means something only before the socket is connected: later the kernel changes it */
	SOCKET_HALVED = 4, /* the kernel doubles what is set */
	SOCKET_REFUSED = 8, /* can be read but not set again: refused where it differs from a new socket */
	SOCKET_SNDBUF = 16, /* belongs to the program only when SO_BUF_LOCK says so */
	SOCKET_RCVBUF = 32,
	SOCKET_DGRAM = 64, /* means nothing to streams, where the kernel has other values of its own */
};

struct socket_option {
	int level, name;
	uint32_t flags;
	const char *text;
};

extern const struct socket_option socket_options[];
extern const size_t socket_options_n;

/* NULL: the table does not have it. */
const struct socket_option *socket_option_find(uint32_t level, uint32_t name);
/* One record of a list: u32 level, u32 name, u32 len, bytes. */
int socket_option_add(struct buf *b, const struct socket_option *o, const void *value, size_t len);
/* Whether @len bytes at @list are such records, each of an option that can be set. */
bool socket_option_list_ok(const uint8_t *list, size_t len);
bool socket_option_listed(const uint8_t *list, size_t len, uint32_t level, uint32_t name);
/* Sets those of the list that are LATE, or those that are not (@late 0). 0, or -errno with the option in @ret_failed. */
int socket_option_set(int fd, const uint8_t *list, size_t len, uint32_t late, const char **ret_failed);
/* One option, as the list would. */
int socket_option_put(int fd, const struct socket_option *o, const void *value, size_t len);
