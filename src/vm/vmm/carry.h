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
/* Bytes of the buffer kept free for answers to the other end, whose amount is bounded by the windows. */
#define CARRY_SPARE (64U * 1024U)
#define CARRY_HELD 512
#define CHAN_SPARE 128U /* channel numbers that connections must leave free for terminals */
#define CARRY_FRAME (FRAME_HEAD + FRAME_PAYLOAD_MAX)
#define CARRY_FDS (2 * FRAME_FDS_MAX)

enum carry_side { CARRY_HOST, CARRY_GUEST };

struct chan {
	bool used;
	bool tty;
	bool net; /* it is a connection, which may end by a reset */
	bool connecting; /* ->fd is still being connected */
	bool tell; /* when connecting has succeeded or failed, send one byte to the other end: 0 or errno */
	bool sends, takes; /* data goes from ->fd to the port; from the port to ->fd */
	bool end_sent, end_got, stop_sent, closed_sent, closed_got;
	int fd;
	uint32_t credit; /* bytes that we may still send */
	uint32_t window; /* bytes that the other end may still send */
	uint32_t owed; /* bytes written to ->fd for which no CREDIT was sent yet */
	uint8_t *buf; /* data that waits to be written to ->fd: MUX_WINDOW bytes, or NULL */
	size_t at, len;
	uint32_t exec; /* id of the frame that it came with */
	uint32_t place; /* its place among the descriptors of that frame */
	uint64_t due; /* bytes that must be written before EXITED of its exec is passed on */
	uint32_t rows, cols;
};

/* Whole frames for one side: bytes arrive in pieces, descriptors before them. */
struct carry_frames {
	uint8_t *data; /* CARRY_FRAME */
	size_t len;
	int fds[CARRY_FDS];
	uint32_t chan[CARRY_FDS]; /* the channel of each descriptor */
	size_t nfds;
};

struct carry_held {
	uint8_t data[FRAME_HEAD + 64];
	size_t len;
	uint32_t exec;
	bool seen; /* the hook has seen it, and returned ->taken */
	int taken;
};

/* A whole frame that passes, and its descriptors. A hook may change it in place, or take it. */
struct carry_frame {
	struct frame f;
	uint8_t *data; /* head and payload, of which ->f is the decoded form; it is decoded again after the hook */
	int *fds;
	const uint32_t *chan; /* towards ->ctl: the channels of ->fds */
};
#define CARRY_TAKEN 1 /* the frame is not passed on, and its descriptors are closed */
#define CARRY_LATER 2 /* the hook is called again in the next turn */

/* Callbacks for frames that pass. Each may be NULL; a negative result ends the carry, 0 lets the frame pass. */
struct carry_hooks {
	int (*from_ctl)(void *arg, struct carry_frame *f); /* may also be CARRY_TAKEN or _LATER */
	int (*to_ctl)(void *arg, struct carry_frame *f); /* may also be CARRY_TAKEN */
	/* Sends additional frames to ->ctl. 1: there is no room. */
	int (*own)(void *arg);
	/* Host: whether something runs inside, so that the guest should report regularly. */
	bool (*busy)(void *arg);
};

struct carry {
	enum carry_side side;
	/*
	 * ->port does not block. ->ctl may be -1 at first, then frames for it wait. ->ctl is owned by the carry with
	 * ->keeps, or by a struct kept
	 */
	int port, ctl;
	uint32_t epoch;
	/* owner of the pipes that are made, so that programs can open them by name; UINT32_MAX: unchanged */
	uint32_t uid, gid;
	bool keeps; /* host: when the client closes ->ctl, the carry continues, and drops frames for it */
	bool net; /* host: connections of the guest are made here; otherwise they are refused */
	struct carry_hooks hooks;
	void *hook_arg;
	/*
	 * Called for HELLO, START, ASK, STAT, FAILED, GROUP and STEER; in the guest also for QUIESCE, GO_ON and RESUME,
	 * before they take effect. A negative result ends the carry.
	 */
	int (*other)(void *arg, const struct mux *m);
	void *arg;
	struct chan *chan; /* MUX_CHANNELS of them; [0] is the control stream and has no ->fd */
	uint8_t *in; /* bytes that were read from the port */
	size_t in_len;
	size_t skipped; /* bytes skipped since the last message, because no message began there */
	uint8_t *out; /* bytes to be written to the port */
	size_t out_at, out_len;
	struct carry_frames from, to; /* frames from ->ctl, and to it */
	size_t from_said, to_sent; /* bytes already sent of the first frame in ->from, and in ->to */
	bool from_begun, to_seen; /* the first frame's descriptors were sent; the hook has seen it */
	struct carry_held held[CARRY_HELD];
	size_t nheld;
	uint32_t top; /* channels from this number on are unused */
	/* Quiescence (still.c). */
	bool stop; /* host: send QUIESCE as soon as no frame is partly sent */
	bool still; /* new messages wait; only the first ->out_stop bytes of ->out are still written */
	bool quiet, resuming, resumed; /* host: the guest has sent QUIET; it was sent RESUME; it has answered RESUMED */
	int refused; /* host: why the guest cannot become quiet, as -errno */
	unsigned quiet_due; /* host: number of QUIET messages still to come */
	size_t out_stop;
	uint32_t settles; /* guest: counts carry_settle() calls, to number our PINGs */
	uint32_t restored; /* host: the content of RESUMED */
	/* Host: whether the guest still answers. */
	bool heard; /* it has sent something since the last check */
	uint64_t lost_ns; /* time without an answer after which the guest is lost; a minute by default */
	/* times of the last message, question and check; ->asked_ns is 0 if no answer is due */
	uint64_t heard_ns, asked_ns, looked_ns;
};

/* 0 or -ENOMEM. */
int carry_init(struct carry *c, enum carry_side side, int port, int ctl, uint32_t epoch);
void carry_done(struct carry *c);
/* Sends a message. -ENOBUFS: the other end does not read. */
int carry_say(struct carry *c, enum mux_type type, uint32_t channel, const void *payload, size_t len);
/* Guest: sends a whole small frame to the host, as if it had come from ->ctl. */
int carry_tell(struct carry *c, const uint8_t *frame, size_t len);
/*
 * Waits at most @ms for events, also of @extra (whose revents are filled in), and handles them. 0; -EPIPE: the port was
 * closed; -ECONNRESET: ->ctl was closed; -EBADMSG: the other end has sent an invalid message; -ETIMEDOUT (host): the
 * guest did not answer for a minute; or the negative result of ->other or a hook.
 */
int carry_turn(struct carry *c, struct pollfd *extra, size_t nextra, int ms);
/*
 * Guest: waits until the agent has handled all frames that it was sent. -ETIMEDOUT: not within @ms; -ENOBUFS: its
 * answers fill the buffer, and the host has to read them first; -ECONNRESET: the agent is gone.
 */
int carry_settle(struct carry *c, unsigned ms);
/* Whether all messages were written to the port. */
bool carry_flushed(const struct carry *c);

/* still.c. For the host; vm/vmm/kept.h has the order of calls. */
int carry_quiesce(struct carry *c);
/*
 * 1: no byte is in transit, and none will be until carry_go_on(). 0: not yet. Negative: the guest cannot become quiet.
 */
int carry_quiet(const struct carry *c);
/* Lets the same machine continue, also one that never became quiet. */
int carry_go_on(struct carry *c);
bool carry_resumed(const struct carry *c, uint32_t *ret_restored);
/* Closes the connection to ->ctl. Whole frames that it has sent before are still served. */
void carry_hang_up(struct carry *c);

/* Between the files of the carry. pass.c: */
int pass_to_port(struct carry *c);
int pass_to_ctl(struct carry *c); /* 1: there is no room */
int read_ctl(struct carry *c);
/* Reads from ->ctl as long as there is data and room. (One read ends after a frame that came with descriptors.) */
int read_ctl_rest(struct carry *c);
int credit_control(struct carry *c);
int take_control(struct carry *c, const struct mux *m);

/* still.c */
int still_begin(struct carry *c); /* host: sends QUIESCE when that is possible */
int still_take(struct carry *c, const struct mux *m);
/* Sends this message first, then all messages that waited, in ->epoch. */
int still_end(struct carry *c, enum mux_type type, const void *payload, size_t len);

/* chan.c. Opens a channel for @fd, which it takes over: the descriptor number @place of its frame. */
int chan_open_local(struct carry *c, int fd, uint32_t exec, uint32_t place);
int chan_kind(int fd, enum mux_kind *ret); /* the kind of channel for @fd; -EOPNOTSUPP: it cannot be carried */
/* *ret_fd: a descriptor for the next frame in ->to; -1: none */
int chan_open_remote(struct carry *c, const struct mux *m, int *ret_fd);
/*
 * Guest: opens a channel for @fd, a connection of a process of the sandbox to @to. Takes over @fd. -EMFILE: there are
 * too many channels.
 */
int chan_open_net(struct carry *c, int fd, const struct mux_net *to);
/*
 * Host: a connection that the guest's kernel has refused is tried here, too, and refused in the same manner, so that
 * egress sees and records it like any other.
 */
int chan_denied(const struct carry *c, const struct mux *m);
/*
 * Gives channel @n the descriptor @fd once that is connected, and sends the other end one byte then. Takes over @fd,
 * also on failure.
 */
int chan_connect(struct carry *c, uint32_t n, int fd);
/* Host: the channel whose connection uses the local port @port, IPv4 or IPv6; 0: none. */
uint32_t chan_at_port(const struct carry *c, uint16_t port);
int chan_reset(struct carry *c, uint32_t n); /* resets a connection: both ends close at once */
size_t chan_numbers(const struct carry *c); /* free channel numbers of this end */
int chan_message(struct carry *c, const struct mux *m);
/* Whether the channel has to be polled now, and for which events. */
bool chan_poll(const struct carry *c, const struct chan *x, short *ret);
int chan_serve(struct carry *c, uint32_t n, short revents);
void chan_free(struct chan *x);
/* Makes both ends for a channel that was loaded from a state: ends[0] is the carry's. */
int chan_ends(const struct carry *c, const struct chan *x, uint32_t n, int ends[2]);
/* Sends the sizes of terminals that have changed. True: there are terminals, to be checked again later. */
bool chan_sizes(struct carry *c);
/* Bytes of channel data that may be written to the port now. */
size_t carry_room(const struct carry *c);
