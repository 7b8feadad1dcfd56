/*
 * One connection of a sandbox. After accept(2) its target (the address it was made to, which may be the synthetic address
 * of a name, or what it asks a proxy for) is looked up in the policy. The server is connected while the first bytes are
 * inspected; they are held until they are known to be for that target. See docs/design/0010-egress.md.
 */
#pragma once
#include "egress/sandbox.h"
#include "egress/look.h"
#include "egress/mitm.h"
#include "egress/relay.h"
#include "egress/request.h"

enum stream_stage {
	STREAM_HTTP_PROXY, /* it says where to first */
	STREAM_SOCKS_GREET,
	STREAM_SOCKS_ASK,
	STREAM_AIMED, /* it has a target */
	STREAM_REFUSED, /* it waits for its end: see refuse.h */
};

enum stream_asked { STREAM_DIRECT, STREAM_CONNECT, STREAM_ABSOLUTE, STREAM_SOCKS }; /* how it said where to */

struct stream_http { /* of those that speak plain HTTP */
	struct request request;
	uint8_t first_len;
	char first[16]; /* what the server says to an Upgrade */
	bool at_head; /* what was looked at last was to be a request's head */
	bool ahead; /* a request came before anything was said to the one before */
	uint64_t answered; /* ->bytes_in when the last request was let through */
};

struct refused;
struct stream_retry;

struct stream_side { /* see room.c */
	uint32_t window, buffer, unsent; /* window 0: the kernel's */
	bool fixed; /* the buffer is */
};

struct stream {
	struct loop_fd a, b; /* the sandbox's side, the server's */
	struct relay_side client, server;
	struct relay_half out, in;
	struct sandbox *sandbox;
	struct stream *prev, *next;
	struct stream *ready_next, **ready_prev; /* NULL: not queued */
	struct loop_timer timer;
	struct resolve_query *query;
	struct upstream *upstream;
	struct stream_http *http;
	struct head_late *late; /* its first line has no end yet, and passes as it comes */
	struct stream_retry *retry; /* TLS, while the server may ask for a second ClientHello, or has (->retry_asked) */
	struct mitm *mitm;
	struct refused *refused;
	struct name *name; /* NULL: by address */
	uint64_t began, last; /* ns */
	uint64_t bytes_out, bytes_in;
	struct net_addr addr; /* the requested address, then the connected one */
	struct net_addr client_addr;
	uint16_t client_port, port, rule;
	uint8_t stage, asked;
	bool up; /* the server is connected */
	bool looking; /* at the first bytes */
	bool stopped; /* further bytes of the client are dropped */
	bool secrets; /* something was injected */
	bool retry_asked;
	bool nameless, ech; /* its ClientHello was: see stream_look.c */
	bool broke; /* the client did not end it, but broke off */
	uint32_t requests;
	struct stream_side side[2];
	uint64_t holds; /* bytes, at our last look */
};

#define STREAM_A_TURN (1024U * 1024U) /* bytes */

/* One that waits in the listener. False: none does. */
bool stream_accept(struct sandbox *b);
/* Its turn: moves what can be moved. */
void stream_turn(struct stream *s);
void stream_queue(struct stream *s);
/* Without an in-band answer; the report is made unless it was refused, which refuse.c does. */
void stream_end(struct stream *s, uint8_t verdict, const char *reason);
void stream_broke(struct stream *s); /* the client did: ends it */
/*
 * Of a stream that is refused, but has answers under way: lets them through. 1: the server has ended, and all it said is
 * with the client; 0: not yet; -1: one of the two broke off. At most RELAY_READ bytes a turn, *ret_n of them.
 */
int stream_drain(struct stream *s, size_t *ret_n);
/* The policy is another one: ends it when it would not begin any more. */
void stream_judge(struct stream *s);
/* The target is known (->name or ->addr, ->port): decides, resolves, connects. */
void stream_aim(struct stream *s);

/* stream_look.c: inspects the client's first bytes, or its requests. True: the bytes are forwarded (->out.pass). */
void stream_look(struct stream *s);
/* Why the policy does not let through what its ClientHello was. NULL: it does, or there was none. */
const char *stream_unsure(const struct stream *s);
void stream_requests(struct stream *s); /* those in ->out.buf */
void stream_late(struct stream *s); /* reads on while ->late */
void stream_answer(struct stream *s); /* the server's, to an Upgrade */
/* Charges a request; false: it was refused. */
bool stream_charge(struct stream *s);

/* stream_retry.c: TLS, from its first ClientHello on; ->retry while there may be a second one. */
struct hello;
void stream_retry_begin(struct stream *s, const struct hello *h);
void stream_retry(struct stream *s); /* the client's bytes */
bool stream_retry_server(struct stream *s); /* the server's first; false: too few of them are here */

/* stream_proxy.c */
void stream_ask(struct stream *s); /* reads the request of a proxy's client */
bool stream_granted(struct stream *s); /* answers the proxy's client: connected; false: the stream was freed */

/* stream_mitm.c: hands the stream over when something is injected there, or its rule says that TLS is terminated. */
bool stream_terminates(const struct stream *s); /* its rule does */
bool stream_wants_mitm(const struct stream *s, bool tls);
void stream_mitm(struct stream *s, bool tls);
