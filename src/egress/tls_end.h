/* One of the two connections of a terminated stream: plain or TLS, and never waiting. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "egress/loop.h"

typedef struct ssl_st SSL;

struct tls_end {
	struct loop_fd f; /* ->fd -1: none (yet) */
	SSL *ssl; /* NULL: plain */
	bool ready; /* handshake done, or none needed */
	bool eof; /* it says no more */
	bool torn; /* and did not say so in TLS: what came may lack its end */
	bool shut; /* we say no more */
	size_t owed; /* bytes of a write that TLS requires to be repeated: no fewer */
};

/* Takes @fd, and @ssl when not NULL (in its accept or connect state). 0, or -errno: nothing is taken. */
int tls_end_open(struct tls_end *s, struct loop *l, int fd, SSL *ssl);
/* @reset: the peer shall see that it was not the end. */
void tls_end_close(struct tls_end *s, struct loop *l, bool reset);
int tls_end_shake(struct tls_end *s); /* 1: done now; 0: not yet (or long ago); -EPROTO; -EPIPE: the peer went */
/* Bytes; 0: the end, ->eof is set (and ->torn); -EAGAIN; -errno. */
ssize_t tls_end_read(struct tls_end *s, void *data, size_t len);
/* Bytes, -EAGAIN, -errno. After -EAGAIN @data has to begin with all that it was then; perhaps more of it is written than
 * @len. */
ssize_t tls_end_write(struct tls_end *s, const void *data, size_t len);
void tls_end_shut(struct tls_end *s);
