/*
 * What has to be changed on a socket of the source for a moment, to read it: where the next look into its queue begins
 * (SO_PEEK_OFF), or how much a TCP socket has room for. A process of its own does it and undoes it, also when cloche-dump is killed in between. It keeps the one
 * right over the sandbox's network that cloche-dump gives up.
 */
#pragma once
#include <sys/types.h>

#include "base/err.h"

struct socket_guard {
	int fd; /* -1: none */
	pid_t pid;
};

enum socket_guard_what { GUARD_PEEK = 'p', GUARD_ROOM = 'r', GUARD_UNDO = 'u', GUARD_FILE = 'f', GUARD_CRED = 'c' };

/*
 * Call it before privileges are given up. The guard is among the processes of the sandbox (@agent), so that the kernel
 * gives it their numbers as they are seen inside.
 */
int socket_guard_start(struct socket_guard *g, int agent_pidfd, struct err *e);
/*
 * GUARD_CRED changes nothing, and returns the number of SO_PEERCRED. -errno when the change is not possible. Changes
 * are undone by socket_guard_undo(), or when cloche-dump ends.
 */
int socket_guard_change(struct socket_guard *g, enum socket_guard_what what, int fd);
int socket_guard_undo(struct socket_guard *g);
/* Likewise for GUARD_PEEK on @fd. -EOWNERDEAD: the guard is gone, and we have set it back ourselves. */
int socket_guard_undo_peek(struct socket_guard *g, int fd);
/*
 * The file of a unix socket with a path (O_PATH), also one that was removed. Needs rights over its network namespace,
 * which only the guard has.
 */
int socket_guard_file(struct socket_guard *g, int fd);
/* It is not needed any more: it undoes everything and ends, which socket_guard_stop() waits for. */
void socket_guard_end(struct socket_guard *g);
/* Likewise, and waits for that. */
void socket_guard_stop(struct socket_guard *g);
