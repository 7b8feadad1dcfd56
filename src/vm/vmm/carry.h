/*
 * An agent's socket, carried over a VM's serial port. Both ends run this: in the guest between the port and the agent,
 * on the host between the port and the agent's client. Frames pass unchanged; each descriptor that comes with one
 * becomes a channel (proto/mux.h), and the other end makes a descriptor of its kind for it. So neither the agent nor
 * its client notices the machine in between.
 *
 * EXITED never overtakes output: it waits until what the command had written was read here and written on the other
 * side.
 */
#pragma once
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"
#include "proto/mux.h"

#define CARRY_OUT (256U * 1024U)
/* Kept free for what answers the other end: its amount is bounded by the windows, not by us. */
#define CARRY_SPARE (64U * 1024U)
#define CARRY_HELD 512
#define CHAN_SPARE 128U /* numbers that connections leave to terminals */
#define CARRY_FRAME (FRAME_HEAD + FRAME_PAYLOAD_MAX)
#define CARRY_FDS (2 * FRAME_FDS_MAX)

enum carry_side { CARRY_HOST, CARRY_GUEST };

struct chan {
	bool used;
	bool tty;
	bool net; /* a connection: its end may be a reset */
	bool connecting; /* ->fd is not there yet */
	bool tell; /* once it is, or not: one byte to the other end, 0 or errno */
	bool sends, takes; /* data goes from ->fd to the port; from the port to ->fd */
	bool end_sent, end_got, stop_sent, closed_sent, closed_got;
	int fd;
	uint32_t credit; /* we may still send */
	uint32_t window; /* the other may still send */
	uint32_t owed; /* bytes written to ->fd for which no CREDIT was sent yet */
	uint8_t *buf; /* for ->fd: MUX_WINDOW bytes when there is one */
	size_t at, len;
	uint32_t exec; /* the frame's id that it came with */
	uint32_t place; /* among its descriptors */
	uint64_t due; /* so many bytes before its exec's EXITED may go */
	uint32_t rows, cols;
};

/* Whole frames for one side: bytes arrive in pieces, descriptors before them. */
struct carry_frames {
	uint8_t *data; /* CARRY_FRAME */
	size_t len;
	int fds[CARRY_FDS];
	uint32_t chan[CARRY_FDS]; /* that belongs to it */
	size_t nfds;
};

struct carry_held {
	uint8_t data[FRAME_HEAD + 64];
	size_t len;
	uint32_t exec;
	bool seen; /* by the hook, which said: */
	int taken;
};

/* A whole frame that passes, and its descriptors: in place, to be changed or taken. */
struct carry_frame {
	struct frame f;
	uint8_t *data; /* head and payload; ->f is decoded from it again when it was changed */
	int *fds;
	const uint32_t *chan; /* of ->fds, towards ->ctl: the channels behind them */
};
#define CARRY_TAKEN 1 /* it goes no further, and its descriptors are closed */
#define CARRY_LATER 2 /* not now: asked again at the next turn */

/* Callbacks for frames that pass. Each may be NULL; a negative result ends the carry, 0 lets the frame pass. */
struct carry_hooks {
	int (*from_ctl)(void *arg, struct carry_frame *f); /* may also be CARRY_TAKEN or _LATER */
	int (*to_ctl)(void *arg, struct carry_frame *f); /* may also be CARRY_TAKEN */
	/* Sends frames of its own to ->ctl, between others. 1: there is no room. */
	int (*own)(void *arg);
	/* Host: something runs inside, so that there is something to hear. */
	bool (*busy)(void *arg);
};

struct carry {
	enum carry_side side;
	/* the port does not block. ->ctl may be -1 at first: what is for it waits. With ->keeps or a kept: owned by those */
	int port, ctl;
	uint32_t epoch;
	uint32_t uid, gid; /* user and group that may open made pipes by name; UINT32_MAX: leave */
	bool keeps; /* host: the end of ->ctl, which is closed then, ends nothing. What is for it then goes nowhere */
	bool net; /* host: the guest's connections are made from here; without, they are refused */
	struct carry_hooks hooks;
	void *hook_arg;
	/* HELLO, START, ASK, STAT, FAILED, GROUP, STEER; guest: QUIESCE, GO_ON, RESUME before they take effect. Negative ends it. */
	int (*other)(void *arg, const struct mux *m);
	void *arg;
	struct chan *chan; /* MUX_CHANNELS; [0] is the control stream, without ->fd */
	uint8_t *in; /* from the port */
	size_t in_len;
	size_t skipped; /* of it, since the last message, as none began there */
	uint8_t *out; /* to the port */
	size_t out_at, out_len;
	struct carry_frames from, to; /* ->ctl */
	size_t from_said, to_sent; /* of the frame at their start */
	bool from_begun, to_seen; /* its descriptors have gone; the hook has seen it */
	struct carry_held held[CARRY_HELD];
	size_t nheld;
	uint32_t top; /* of ->chan: none is used from here on */
	/* Quiescence (still.c). */
	bool stop; /* host: QUIESCE is to be said, once no frame is half said */
	bool still; /* what is said waits; ->out up to ->out_stop still goes */
	bool quiet, resuming, resumed; /* host: the guest has sent QUIET; was sent RESUME; has answered RESUMED */
	int refused; /* host: why the guest cannot become quiet, as -errno */
	unsigned quiet_due; /* host: QUIETs that have to come */
	size_t out_stop;
	uint32_t settles; /* guest: how often the agent was waited for */
	uint32_t restored; /* host: what RESUMED said */
	/* Host: whether the guest still answers. */
	bool heard; /* since it was looked at last */
	uint64_t lost_ns; /* so long without an answer; a minute */
	uint64_t heard_ns, asked_ns, looked_ns; /* ->asked_ns: 0 when nothing is due */
};

/* 0 or -ENOMEM. */
int carry_init(struct carry *c, enum carry_side side, int port, int ctl, uint32_t epoch);
void carry_done(struct carry *c);
/* A message of its own; -ENOBUFS when the other end does not read. */
int carry_say(struct carry *c, enum mux_type type, uint32_t channel, const void *payload, size_t len);
/* Guest: a whole small frame of our own to the host, as if it came from ->ctl. */
int carry_tell(struct carry *c, const uint8_t *frame, size_t len);
/*
 * Waits at most @ms for events, also of @extra (its revents are filled), and does what can be done. 0, or: -EPIPE the
 * port has closed, -ECONNRESET ->ctl has, -EBADMSG the other end has sent an invalid message, -ETIMEDOUT (host) it has
 * not answered for a minute, or what ->other or a hook returned.
 */
int carry_turn(struct carry *c, struct pollfd *extra, size_t nextra, int ms);
/*
 * Guest: waits until the agent has handled all frames that it was sent. -ETIMEDOUT after @ms, -ENOBUFS: its answers
 * fill the buffer, and the host has to read them first, -ECONNRESET: it is gone.
 */
int carry_settle(struct carry *c, unsigned ms);
/* Whether all that was said has gone into the port. */
bool carry_flushed(const struct carry *c);

/* still.c, host: see vm/vmm/kept.h for their order. */
int carry_quiesce(struct carry *c);
/* 1: no byte is in transit, and none will be until carry_go_on(). 0: not yet. Negative: the guest cannot. */
int carry_quiet(const struct carry *c);
/* In the same machine; also when it never became quiet. */
int carry_go_on(struct carry *c);
bool carry_resumed(const struct carry *c, uint32_t *ret_restored);
/* ->ctl is left: what it sent whole is still served. */
void carry_hang_up(struct carry *c);

/* Inside. pass.c: */
int pass_to_port(struct carry *c);
int pass_to_ctl(struct carry *c); /* 1: there is no room */
int read_ctl(struct carry *c);
/* All that is there, as far as there is room: one read ends behind each frame that came with descriptors. */
int read_ctl_rest(struct carry *c);
int credit_control(struct carry *c);
int take_control(struct carry *c, const struct mux *m);

/* still.c */
int still_begin(struct carry *c); /* host: says QUIESCE when it is time to */
int still_take(struct carry *c, const struct mux *m);
/* As the first thing that goes from now on, and then all that waited, in epoch ->epoch. */
int still_end(struct carry *c, enum mux_type type, const void *payload, size_t len);

/* chan.c. Takes @fd, the @place-th of its frame. */
int chan_open_local(struct carry *c, int fd, uint32_t exec, uint32_t place);
int chan_kind(int fd, enum mux_kind *ret); /* what it would be; -EOPNOTSUPP: nothing that can be carried */
int chan_open_remote(struct carry *c, const struct mux *m, int *ret_fd); /* for ->to's next frame; -1: none */
/*
 * Guest: carries @fd, a connection that a process of the sandbox makes to @to. Takes @fd. -EMFILE: there are too
 * many.
 */
int chan_open_net(struct carry *c, int fd, const struct mux_net *to);
/*
 * Host: a connection that the guest's kernel has refused is tried here, too, and refused in the same manner, so that
 * egress sees and records it like any other.
 */
int chan_denied(const struct carry *c, const struct mux *m);
/*
 * @fd replaces the descriptor of channel @n, once it is connected; the other end gets one byte then. Takes @fd, also on
 * -errno.
 */
int chan_connect(struct carry *c, uint32_t n, int fd);
/* Host: whose end here has that port, of either family; 0: none. */
uint32_t chan_at_port(const struct carry *c, uint16_t port);
int chan_reset(struct carry *c, uint32_t n); /* of a connection: both ends are over at once */
size_t chan_numbers(const struct carry *c); /* of ours that are free */
int chan_message(struct carry *c, const struct mux *m);
/* Whether it is to be polled now, and for what. */
bool chan_poll(const struct carry *c, const struct chan *x, short *ret);
int chan_serve(struct carry *c, uint32_t n, short revents);
void chan_free(struct chan *x);
/* Both ends of what @x is, for a loaded one: ends[0] is the carry's. */
int chan_ends(const struct carry *c, const struct chan *x, uint32_t n, int ends[2]);
/* The terminals' sizes, where they have changed. True: there are some to be looked at again in a while. */
bool chan_sizes(struct carry *c);
/* So much data of our own may go into the port now. */
size_t carry_room(const struct carry *c);
