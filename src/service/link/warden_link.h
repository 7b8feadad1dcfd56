/*
 * The link to the warden. Does not block: requests in order, answers in order. When the warden dies, the link comes
 * back by itself, and requests without an answer are sent again: every operation can be repeated.
 *
 * Requests that may take long (SEAL; DIFF, and CREATE of a sandbox based on layers) have connections of their own, so
 * that nothing else waits for them. These come and go with the first one: a comparison after the warden's death sees no
 * result of a request sent meanwhile.
 */
#pragma once
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "warden/msg.h"

struct warden_link;

struct warden_link_answer {
	const struct warden_rep *rep; /* good during the call */
	int *fds; /* taken by setting to -1; the rest is closed afterwards */
	size_t nfds;
};

/* @r is 0 or the warden's refusal. Called exactly once for each call, when the warden answers. */
typedef void warden_link_fn(void *arg, int r, const struct warden_link_answer *a, const struct err *e);

/*
 * @place: an O_PATH descriptor of its listening socket, the caller's. @back is called when the link is up (again),
 * before any request is repeated. The link exists until the process ends.
 */
int warden_link_new(uv_loop_t *loop, int place, void (*back)(void *arg), void *arg, struct warden_link **ret,
		    struct err *e);
/*
 * @spec only for WARDEN_CREATE. @fn may be NULL: the answer is dropped. Without memory for the request, a few
 * kilobytes, the process ends: every caller would have to undo what it began.
 */
void warden_link_call(struct warden_link *w, enum warden_op op, uint64_t handle, uint64_t arg,
		      const struct sandbox_spec *spec, warden_link_fn *fn, void *fn_arg);
/* GROUP; @ended: the number of one that has ended, or 0. */
void warden_link_group(struct warden_link *w, uint64_t handle, uint32_t uid, uint64_t ended, warden_link_fn *fn,
		       void *fn_arg);
/* DIFF, with the struct of warden/msg.h. The answer's descriptor is the stream. */
void warden_link_diff(struct warden_link *w, uint64_t handle, const struct sandbox_spec *spec,
		      const struct msg_diff *diff, warden_link_fn *fn, void *fn_arg);
/* NET; @arg 1: with new sockets, the answer's descriptors in the order of enum steer_socket. */
void warden_link_net(struct warden_link *w, uint64_t handle, uint64_t arg, const struct steer_rules *rules,
		     warden_link_fn *fn, void *fn_arg);
void warden_link_limits(struct warden_link *w, uint64_t handle, const struct spec_limits *l, warden_link_fn *fn,
			void *fn_arg);
/* WHO. SOCKET and DENIED are for warden_link_call(). */
void warden_link_who(struct warden_link *w, uint64_t handle, const struct warden_who *who, warden_link_fn *fn,
		     void *fn_arg);
/* SEAL, UNSEAL, LAYERS: @id is the layer's, NULL for none. */
void warden_link_call_layer(struct warden_link *w, enum warden_op op, uint64_t handle, uint64_t arg, const char *id,
			    warden_link_fn *fn, void *fn_arg);
/*
 * The same, before everything that waits: for finding out what is there after the link came back. Not asked again when
 * it breaks: -EPIPE, since all of it is to be found out anew.
 */
void warden_link_call_first(struct warden_link *w, enum warden_op op, uint64_t handle, uint64_t arg, warden_link_fn *fn,
			    void *fn_arg);
/* Whether everything that was asked has been answered. */
bool warden_link_idle(const struct warden_link *w);
/* After @back: what waits is held until this is called. */
void warden_link_go(struct warden_link *w);
