/*
 * Bytes from one socket to another. Small ones are copied, which is quicker for them; when several large reads come in
 * a row they are spliced through a pipe of a pool, which a stream has only while bytes are in it.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RELAY_READ (64U * 1024U)
#define RELAY_PIPES 64U /* kept */

struct relay { /* what all streams share */
	int pipe[RELAY_PIPES][2];
	uint32_t pipes;
	uint32_t open, most; /* pipes there are, and may be */
	char *bytes; /* RELAY_READ of them */
};

struct relay_half { /* zeroed with relay_half_init() */
	int pipe[2]; /* -1: none */
	uint32_t in_pipe, most; /* ->most: bytes that may be in it */
	uint32_t off, len; /* of ->buf: what waits to be written */
	uint32_t pass; /* how much of it may be */
	char *buf;
	uint8_t large; /* large reads in a row */
	bool eof, shut; /* the source has ended; the destination was shut down for writing */
	bool held; /* at most what relay_hold() asks for is read: the bytes are inspected first */
	bool broken; /* the destination takes no more: nothing is read any more */
};

/* A socket's side, and the events that epoll last reported. */
struct relay_side {
	int fd;
	bool in, out, hup;
};

enum relay_state { RELAY_IDLE, RELAY_MORE, RELAY_SRC_BROKE, RELAY_DST_BROKE };

int relay_init(struct relay *r);
void relay_done(struct relay *r);
void relay_half_init(struct relay_half *h);
void relay_half_done(struct relay *r, struct relay_half *h);

/*
 * Moves up to @most bytes, of which no more than @plain are read from the source (the rest waits in ->buf until ->pass
 * is set). *ret_read: bytes read. MORE: more bytes could move now.
 */
enum relay_state relay_pump(struct relay *r, struct relay_half *h, struct relay_side *src, struct relay_side *dst,
			    size_t most, uint64_t plain, size_t *ret_read);
/* Reads behind what ->buf holds, up to @max in all. > 0: so many came; 0: end; -EAGAIN, -ENOBUFS (full), -errno. */
ssize_t relay_hold(struct relay *r, struct relay_half *h, struct relay_side *src, size_t max);
/* Puts bytes behind what waits, as if read. -ENOMEM. */
int relay_put(struct relay_half *h, const void *data, size_t len);
