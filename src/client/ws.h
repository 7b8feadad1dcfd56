/*
 * A WebSocket to the daemon: libcurl makes the connection (TLS and unix sockets included), llhttp reads the answer to
 * the handshake, wslay the frames. Never blocks but in ws_open().
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "client/conn.h"

#define WS_MESSAGE_MAX (8 * MIB)
#define WS_QUEUE_MAX (1 * MIB) /* past this, give it nothing more to send */

struct ws;

struct ws_calls {
	void (*binary)(void *arg, const uint8_t *data, size_t len);
	void (*text)(void *arg, const char *data, size_t len);
	bool (*full)(void *arg); /* true: read no more for now */
	size_t max; /* of a message; 0: WS_MESSAGE_MAX */
	void *arg;
};

int ws_open(struct conn *c, const char *path, const struct ws_calls *calls, struct ws **ret, struct err *e);
void ws_free(struct ws *w);
DEFINE_AUTO(struct ws, ws_free)

int ws_fd(const struct ws *w);
short ws_events(const struct ws *w); /* for poll(2) */
/* Reads and writes what it can. 1: open, 0: the other side closed it in order, -errno: the connection broke. */
int ws_turn(struct ws *w, struct err *e);
/* @head and @data are one message. */
int ws_binary(struct ws *w, const void *head, size_t head_len, const void *data, size_t len);
int ws_text(struct ws *w, const char *text);
size_t ws_queued(const struct ws *w);
