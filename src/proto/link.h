/* The host's end of an agent's socket: whole frames out, hostile bytes in. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/frame.h"

#define LINK_BUFFER 4096 /* an agent's frames are small; one that is not is an attack */

struct link {
	int sock; /* not owned */
	uint8_t data[LINK_BUFFER];
	size_t len, used;
	int fds[4];
	size_t nfds;
};

void link_init(struct link *l, int sock);
void link_done(struct link *l);

/*
 * The next frame: 1 with *ret (good until the next call), 0 when none has arrived whole and @wait_ms passed, -EPIPE when
 * the agent is gone, -EBADMSG when it talks nonsense. Descriptors that came with it are in ret_fd (first one, else -1),
 * owned by the caller.
 */
int link_next(struct link *l, int wait_ms, struct frame *ret, int *ret_fd);
int link_send(struct link *l, enum frame_type type, uint32_t id, const uint8_t *payload, size_t len, const int *fds,
	      size_t nfds);
int link_signal(struct link *l, uint32_t id, int sig, enum frame_scope scope);
/* Turns a FAILED frame into an error. */
int link_error(const struct frame *f, const char *what, struct err *e, struct frame_failed *ret);
