/*
 * A connection to the daemon that becomes another protocol's: libcurl makes it (TLS and unix sockets included), llhttp
 * reads the answer. What follows is read and written with curl_easy_recv() and curl_easy_send(), which never block.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "client/conn.h"

struct upgrade_spec {
	const char *path, *protocol;
	const char *headers; /* more of them, each with its line end; or NULL */
};

struct upgrade {
	CURL *easy;
	int fd; /* for poll(2) */
	struct buf early; /* what came in one piece with the answer */
	char accept[64]; /* what Sec-WebSocket-Accept said, or "" */
};

/* Waits for the answer, for some seconds. On failure there is nothing to be done away with. */
int upgrade_open(struct conn *c, const struct upgrade_spec *s, struct upgrade *ret, struct err *e);
void upgrade_done(struct upgrade *u); /* fine when it was zeroed */
int upgrade_shut(struct upgrade *u); /* ends our direction; reading continues */
