/* The way to one sandbox's agent, without waiting: frames out (queued when it does not read), hostile frames in. */
#pragma once
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "proto/frame.h"

struct agent_link_frame; /* waiting to be sent */

#define ALINK_FDS 4

struct agent_link {
	uv_poll_t *poll; /* NULL: closed */
	int sock;
	uint8_t data[4096]; /* an agent's frames are small; one that is not is an attack */
	size_t len;
	int fds[ALINK_FDS];
	size_t nfds;
	int events; /* that are waited for */
	bool short_read; /* the last one did not fill the buffer */
	struct agent_link_frame *first, **last;
	size_t queued;
	/*
	 * @fds came with the frame: taken by setting to -1, the rest is closed afterwards. r < 0: the agent is gone
	 * (-EPIPE) or has sent an invalid frame (-EBADMSG), and the link is closed. May close the link.
	 */
	void (*fn)(void *arg, int r, const struct frame *f, int *fds, size_t nfds);
	void *arg;
};

/* Takes @sock on success. */
int agent_link_open(struct agent_link *l, uv_loop_t *loop, int sock,
		    void (*fn)(void *, int, const struct frame *, int *, size_t), void *arg, struct err *e);
void agent_link_close(struct agent_link *l);
/* Hands out what has come so far. Not from within a callback of @l, which may be closed afterwards. */
void agent_link_read(struct agent_link *l);
/* Whether the agent has read all that was sent to it. */
bool agent_link_is_read(const struct agent_link *l);
/* @to, which is closed, is what @from was, for another @arg. Not from within a callback of @from. */
void agent_link_move(struct agent_link *to, struct agent_link *from, void *arg);
/* RELEASE for each of them, at most RELEASES_MAX, at once. */
#define RELEASES_MAX 16
void agent_link_release(struct agent_link *l, const uint32_t *ids, size_t n);
/*
 * Copies the payload; descriptors are duplicated only when the frame must wait, and stay the caller's. -EPIPE, -ENOBUFS
 * past 4 MiB queued.
 */
int agent_link_send(struct agent_link *l, enum frame_type type, uint32_t id, const void *payload, size_t len,
		    const int *fds, size_t nfds);
