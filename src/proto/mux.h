/*
 * Messages over a VM's serial port, both ways: one byte stream that carries an agent's control stream and, as numbered
 * channels, the descriptors that travel with its frames (docs/design/0011-vm.md). Both sides treat the other's bytes as
 * hostile: no assertion depends on them.
 *
 *	magic u32 | epoch u32 | channel u32 | len u32 | type u8 | zero u8 x3 | check u32 | len bytes of payload
 *
 * The check covers the head. After an invalid head (a checkpoint or a restore fell into the middle of a message), the
 * next one is searched for from the following byte on. A message of another epoch was sent in another run and is
 * dropped.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUX_VERSION 1
#define MUX_MAGIC 0xC10C5E41U
#define MUX_HEAD 24
#define MUX_PAYLOAD_MAX (40U * 1024U)
#define MUX_BLOB_MAX (36 * 1024) /* a file that goes as one message */
#define MUX_DATA_MAX (32U * 1024U) /* of one DATA message: others get their turn */
#define MUX_CHANNELS 1024U /* 0 is the agent's control stream */
/* So much may be under way in one direction of a channel, before its reader says that it has read. */
#define MUX_WINDOW (128U * 1024U)

enum mux_type {
	MUX_HELLO = 1, /* guest: u32 version, u64 bytes of memory it has. Asks for START */
	MUX_START = 2, /* host: struct mux_start and what the sandbox is to be (engine/spec.h), once */
	MUX_OPEN = 3, /* a descriptor of the next frame: u32 enum mux_kind, with BLOB its bytes */
	MUX_DATA = 4,
	MUX_CREDIT = 5, /* u32: so many bytes of the channel were read, and may be sent again */
	MUX_END = 6, /* the sender has no more data for this channel */
	MUX_STOP = 7, /* the sender reads no more data of this channel */
	MUX_CLOSED = 8, /* the sender's last word on this channel. Both have said it: its number is free */
	MUX_SIZE = 9, /* u32 rows, u32 columns of the terminal behind the channel */
	MUX_ASK = 10, /* host: u32 enum mux_ask */
	MUX_STAT = 11, /* guest: struct mux_stat, the answer, or its last word */
	MUX_FAILED = 12, /* guest: what could not be done, text. Then it ends */
	/*
	 * Quiescence for a checkpoint. Host: QUIESCE, and then nothing. Guest: freezes its sandbox, then QUIET, u32 errno
	 * (0: it is frozen), and then nothing. After that no byte is in transit.
	 */
	MUX_QUIESCE = 13,
	MUX_QUIET = 14,
	MUX_GO_ON = 15, /* host: u64 what time it is, in ns: in the same machine, as if nothing had been */
	MUX_RESUME = 16, /* host: in another, struct mux_resume. Of any epoch; the new one begins behind it */
	MUX_RESUMED = 17, /* guest: u32 FRAME_RESTORED_*, what was made anew. The sandbox continues */
	MUX_GROUP = 18, /* host: u32 key of an exec group (what its descriptor said), u32 enum mux_group */
	MUX_RESET = 19, /* the connection behind the channel was refused or cut; END and STOP follow */
	/* host: the way out. Nothing: there is none; or struct steer_rules (linux/steer.h): what may be let through to the host */
	MUX_STEER = 20,
	/* guest: what its kernel refused by those rules, up to MUX_DENIED_MAX x (a struct mux_net as in OPEN, u32 how often) */
	MUX_DENIED = 21,
};
#define MUX_TYPE_LAST MUX_DENIED

/* What the receiver's process is to get. */
enum mux_kind {
	MUX_READ = 1, /* something to read from: a pipe */
	MUX_WRITE = 2, /* something to write to: a pipe */
	MUX_BOTH = 3, /* a stream socket */
	MUX_TTY = 4, /* a terminal's master */
	MUX_BLOB = 5, /* a file with these bytes; no channel stays */
	/* guest: a connection to the outside, struct mux_net: the host makes it. Belongs to no frame */
	MUX_NET = 6,
};

enum mux_group {
	MUX_GROUP_KILL = 1, /* all that is in it */
	MUX_GROUP_END = 2, /* it is not needed any more */
};

enum mux_ask {
	MUX_ASK_STAT = 1,
};

struct mux {
	uint8_t type;
	uint32_t epoch, channel, len;
	const uint8_t *payload; /* inside the decoded buffer */
};

/*
 * Decodes the message at the start of @data: its whole length, or 0 when more bytes are needed, or -EBADMSG: no message
 * begins here. mux_skip() then returns how many bytes to skip before the next try, at least 1.
 */
long mux_decode(const uint8_t *data, size_t len, struct mux *ret);
size_t mux_skip(const uint8_t *data, size_t len);
/* Writes a head for a payload of @len into @out (MUX_HEAD bytes). */
void mux_head(uint8_t *out, enum mux_type type, uint32_t epoch, uint32_t channel, uint32_t len);

/* Numbers of a payload. */
static inline void mux_put_u32(uint8_t out[4], uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		out[i] = (uint8_t)(v >> (8 * i));
}

static inline uint32_t mux_u32(const uint8_t in[4])
{
	return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

/* Before the sandbox's spec in START. */
struct mux_start {
	uint64_t real_ns; /* the time now */
	uint8_t seed[32]; /* for the guest's random numbers */
	uint32_t spec_len;
};
#define MUX_START_LEN (8 + 32 + 4)
void mux_start_encode(const struct mux_start *s, uint8_t out[MUX_START_LEN]);
int mux_start_decode(const struct mux *m, struct mux_start *ret, const uint8_t **ret_spec); /* 0 or -EBADMSG */

/* The identity of a virtual machine that continues from another one's state. */
struct mux_resume {
	uint32_t epoch; /* epoch of the messages that follow, in both directions */
	uint32_t flags; /* MUX_RESUME_* */
	uint64_t real_ns; /* the time now */
	uint8_t seed[32]; /* for the guest's random numbers */
	uint8_t generation[16];
	char hostname[64]; /* NUL-ended; "": as it was */
};
#define MUX_RESUME_DROP 1U /* all processes but the agent are ended first */
#define MUX_RESUME_FRESH 2U /* its files were another's: new machine-id and generation */
#define MUX_RESUME_SECRETS 4U /* it will be given files of secrets: a place in memory for them is needed */
#define MUX_RESUME_LEN (4 + 4 + 8 + 32 + 16 + 64)
void mux_resume_encode(const struct mux_resume *x, uint8_t out[MUX_RESUME_LEN]);
int mux_resume_decode(const struct mux *m, struct mux_resume *ret); /* 0 or -EBADMSG */

/* Where to. */
struct mux_net {
	uint32_t family; /* 4 or 6 */
	uint32_t port; /* 1-65535 */
	uint8_t addr[16]; /* IPv4 in the first four, the rest zero */
};
#define MUX_NET_LEN (4 + 4 + 4 + 16) /* with the kind before it */
void mux_net_encode(const struct mux_net *x, uint8_t out[MUX_NET_LEN]);
int mux_net_decode(const struct mux *m, struct mux_net *ret); /* 0 or -EBADMSG */
#define MUX_DENIED_MAX 32U
#define MUX_DENIED_LEN (MUX_NET_LEN + 4)

/* What the guest says of itself: nothing of it is trusted, and nothing is decided by it but words. */
#define MUX_STAT_FIELDS(X)                                                                                             \
	X(memory)                                                                                                      \
	X(memory_peak)                                                                                                 \
	X(memory_files)                                                                                                \
	X(oom_kills)                                                                                                   \
	X(pids)                                                                                                        \
	X(pids_peak)                                                                                                   \
	X(pids_refused)                                                                                                \
	X(cpu_usec)                                                                                                    \
	X(io_bytes)                                                                                                    \
	X(disk_used)                                                                                                   \
	X(disk_size)                                                                                                   \
	X(inodes_used)                                                                                                 \
	X(inodes_size)
struct mux_stat {
#define X(name) uint64_t name;
	MUX_STAT_FIELDS(X)
#undef X
};
#define MUX_STAT_LEN sizeof(struct mux_stat) /* each a u64, in order */
void mux_stat_encode(const struct mux_stat *s, uint8_t out[MUX_STAT_LEN]);
int mux_stat_decode(const struct mux *m, struct mux_stat *ret); /* 0 or -EBADMSG */
