/* Sockets of an image on their way back. */
#pragma once
#include "agent/restore/restore.h"

#include <sys/socket.h>

struct restore_socket {
	struct mem_socket k;
	struct sockaddr_storage addr, peer;
	const uint8_t *options, *filter, *queue;
	uint64_t queue_len;
	const char *failed; /* the option that could not be set */
};

void restore_socket_read(const struct restore *r, const struct mem_object *o, struct restore_socket *ret);
/* What would have been in the way before: filter, options, blocking or not. */
int restore_socket_late(const struct restore *r, const struct mem_object *o, struct restore_socket *s, int fd);
/* unix.c: whether it is bound to a file, by open.c. */
bool restore_unix_has_file(const struct restore *r, const struct mem_object *o);
