/* Sockets that clients come to: what was asked for, opened; or what systemd has opened already. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"
#include "daemon/daemon.h"

#define LISTEN_BACKLOG 4096

struct listen_addr {
	bool is_unix;
	char host[112]; /* of TCP: an address, or a name that is looked up when it is opened */
	char port[8];
	const char *path; /* of unix: within the text that was parsed */
};

/* "HOST:PORT", "[V6]:PORT", "unix:/path". Opens nothing, resolves no names. */
int listen_parse(const char *text, struct listen_addr *ret, struct err *e);

/* A listening, non-blocking socket. */
int listen_open(const char *text, struct err *e);

struct listen_unix_opts {
	int type; /* SOCK_STREAM, SOCK_SEQPACKET */
	int mode; /* of the file */
	bool ours; /* no other process can have made the path: whatever is there is removed */
};
/*
 * Listens on @name in the folder @dirfd; the folder's path may have any length. The file belongs to the caller's file
 * system uid. A socket without a listener is replaced; anything else at that place is ERR_CONFLICT.
 */
int listen_unix_at(int dirfd, const char *name, const struct listen_unix_opts *o, struct err *e);

/* Whether only this machine reaches it: a unix socket, or a loopback address. */
bool listen_is_local(const char *text);

/* Where it really listens, in the form of listen_parse(): port 0 has become a port. */
int listen_text(int fd, char *text, size_t size, struct err *e);
/* "http://127.0.0.1:7070" of "127.0.0.1:7070"; "unix:/path" stays. */
void listen_url(const char *text, bool tls, char *url, size_t size);

/* How many sockets systemd passed to this process (0: none), from fd 3 on; forgets that it did. */
int listen_activated(void);
/* Whether it is a listening stream socket; makes it close-on-exec and non-blocking. */
int listen_adopt(int fd, struct err *e);
