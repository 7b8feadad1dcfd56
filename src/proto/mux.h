/*
 * Messages over a VM's serial port, both ways: one byte stream that carries an agent's control stream and, as numbered
 * channels, the descriptors that travel with its frames (docs/design/0011-vm.md). Both sides treat the other's bytes as
 * hostile: nothing here asserts on them.
 *
 *	magic u32 | epoch u32 | channel u32 | len u32 | type u8 | zero u8 x3 | check u32 | len bytes of payload
 *
 * The check covers the head. A head that is none (a checkpoint or a restore fell into the middle of a message) is
 * searched for from the next byte on; what belongs to another epoch was meant for another run and is left out.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUX_VERSION 1
#define MUX_MAGIC 0xC10C5E41U
#define MUX_HEAD 24
#define MUX_PAYLOAD_MAX (40U * 1024U)
#define MUX_DATA_MAX (16U * 1024U) /* of one DATA message: others get their turn */
#define MUX_CHANNELS 256U /* 0 is the agent's control stream */
/* So much may be under way in one direction of a channel, before its reader says that it has read. */
#define MUX_WINDOW (64U * 1024U)

enum mux_type {
	MUX_HELLO = 1, /* guest: u32 version, u64 bytes of memory it has. Asks for START */
	MUX_START = 2, /* host: struct mux_start and what the sandbox is to be (warden/spec.h), once */
	MUX_OPEN = 3, /* a descriptor of the next frame: u32 enum mux_kind, with BLOB its bytes */
	MUX_DATA = 4,
	MUX_CREDIT = 5, /* u32: so many bytes of the channel were read, and may be sent again */
	MUX_END = 6, /* the sender has no more data for this channel */
	MUX_STOP = 7, /* the sender wants no more data of this channel */
	MUX_CLOSED = 8, /* the sender's last word on this channel. Both have said it: its number is free */
	MUX_SIZE = 9, /* u32 rows, u32 columns of the terminal behind the channel */
	MUX_ASK = 10, /* host: u32 enum mux_ask */
	MUX_STAT = 11, /* guest: struct mux_stat, the answer, or its last word */
	MUX_FAILED = 12, /* guest: what could not be done, text. Then it ends */
};

/* What the receiver's process is to get. */
enum mux_kind {
	MUX_READ = 1, /* something to read from: a pipe */
	MUX_WRITE = 2, /* something to write to: a pipe */
	MUX_BOTH = 3, /* a stream socket */
	MUX_TTY = 4, /* a terminal's master */
	MUX_BLOB = 5, /* a file with these bytes; no channel stays */
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
 * begins here. mux_skip() then tells how many bytes to leave out before the next try, at least 1.
 */
long mux_decode(const uint8_t *data, size_t len, struct mux *ret);
size_t mux_skip(const uint8_t *data, size_t len);
/* Writes a head for a payload of @len into @out (MUX_HEAD bytes). */
void mux_head(uint8_t *out, enum mux_type type, uint32_t epoch, uint32_t channel, uint32_t len);

/* Before the sandbox's spec in START. */
struct mux_start {
	uint64_t real_ns; /* the time now */
	uint8_t seed[32]; /* for the guest's random numbers */
	uint32_t spec_len;
};
#define MUX_START_LEN (8 + 32 + 4)
void mux_start_encode(const struct mux_start *s, uint8_t out[MUX_START_LEN]);
int mux_start_decode(const struct mux *m, struct mux_start *ret, const uint8_t **ret_spec); /* 0 or -EBADMSG */

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
