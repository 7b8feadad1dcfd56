/*
 * Connections into a sandbox, to servers that listen inside, on its loopback; and who may make them without a token of
 * the API: a port is public, or has a token of its own, or neither. These settings belong to one sandbox: forks and
 * sandboxes made from checkpoints do not get them.
 */
#pragma once
#include "service/sandbox/sandbox.h"

#define PORTS_MAX 64 /* of one sandbox, that are anything but private */
#define PORT_TOKEN_PREFIX "cloche_port_"

/* Who may use a port. */
struct port_view {
	uint16_t number;
	bool public, has_token; /* neither: private */
	uint64_t created_ns; /* 0: it was never anything but private */
};

struct port_request { /* NULL: stays as it is */
	const bool *public;
	const bool *token; /* true: a new one, and one from before ends */
};

struct port_view port_view(const struct sandbox *b, uint16_t number);
/* Those that are anything but private. Their number. */
unsigned ports_view(const struct sandbox *b, struct port_view ret[PORTS_MAX]);
/* Stored with the turn. With a new token its text is in @text, once; else that is "". */
int port_set(struct sandbox *b, const struct who *who, uint16_t number, const struct port_request *request,
	     char text[TOKEN_TEXT_MAX], struct port_view *ret, struct err *e);
int port_remove(struct sandbox *b, const struct who *who, uint16_t number,
		struct err *e); /* fine when it is not there */
bool port_token_is(const struct sandbox *b, uint16_t number, const char *text);
int ports_load(struct service *s, struct err *e); /* when sandboxes are */
void ports_free(struct sandbox *b);

/* What let a request in: a token of the API, the port's own, or that it is public. */
enum port_by { PORT_BY_API, PORT_BY_TOKEN, PORT_BY_PUBLIC };
/* For the audit log (`port.use`), those of a minute together. */
void port_used(struct sandbox *b, const struct who *who, uint16_t number, enum port_by by);
void port_uses_end(struct sandbox *b); /* what is left, now: it is about to be deleted */
void port_uses_tick(struct service *s, uint64_t now_ns); /* those whose minute is over */
void port_uses_free(struct sandbox *b);

struct port_dial;
/* @fd: connected, not blocking, the callee's; or -1 and why: ERR_LOST without a listener, ERR_TIMEOUT. */
typedef void port_dialed_fn(void *arg, int fd, const struct err *e);
/* 127.0.0.1, then ::1. The sandbox must be running. Not called from within; NULL is out of memory. */
struct port_dial *port_dial(struct sandbox *b, uint16_t number, port_dialed_fn *fn, void *arg);
void port_dial_cancel(struct port_dial *d); /* then it is not called any more */
