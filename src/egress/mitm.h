/*
 * A stream into which secrets are injected, or whose requests are inspected (a rule's +terminate). Egress is the server
 * for the sandbox (with a certificate of the sandbox's CA) and a client of the server (whose certificate is verified
 * first), and forwards request by request. HTTP/1.1 only.
 * Every request must be for that name. Where a value is injected, answers are searched for it (egress/scrub.h); others
 * pass unchanged.
 *
 * The stream (egress/stream.h) was accepted and permitted before, and owns this; the descriptors are here. All work is
 * done in the loop's events. Memory is bounded: each side is read only as far as the other one accepts data, and empty
 * buffers are freed. The program ignores SIGPIPE.
 */
#pragma once
#include "egress/inject.h"
#include "egress/loop.h"
#include "egress/trust.h"
#include "tls/ca.h"

struct mitm;

struct mitm_ops {
	/*
	 * Another request is about to pass (budgets; @first: also the audit's "secrets used"). NULL: fine; else why
	 * not, one line: the sandbox gets a 429.
	 */
	const char *(*request)(void *arg, bool first);
	/*
	 * How many of @want bytes may move now, in either direction; 0: none, mitm_go() is called when some may. NULL:
	 * all.
	 */
	size_t (*may)(void *arg, size_t want);
	/* Payload that moved: to the server, to the sandbox. false: enough, it is cut (and ->ended called). */
	bool (*moved)(void *arg, size_t out, size_t in);
	/* The last call: it is over, descriptors closed, memory about to go. @verdict: enum egress_verdict. */
	void (*ended)(void *arg, uint8_t verdict, const char *reason);
};

struct mitm_opts {
	struct loop *loop;
	int client; /* non-blocking, not in the loop; nothing read from it but ->first. Taken on success. */
	const void *first; /* bytes read already, of plain HTTP only (HEAD_MAX at most) */
	size_t first_len;
	const char *name;
	uint16_t port;
	bool tls; /* the sandbox speaks TLS */
	struct ca *ca; /* of the sandbox; NULL when not ->tls */
	const struct trust *trust; /* NULL: no server can be verified, which the sandbox gets as an error */
	struct inject *inject; /* a reference is taken */
	const struct mitm_ops *ops;
	void *arg;
};

int mitm_new(const struct mitm_opts *o, struct mitm **ret, struct err *e);
/* The server's connection, non-blocking and connected (taken); or -1 and why there is none: the sandbox gets a 502. */
void mitm_connected(struct mitm *m, int fd, const char *why);
void mitm_go(struct mitm *m); /* see ->may */
/* For the requests from now on: values were rotated. False: this stream cannot have them, cut it. */
bool mitm_set_inject(struct mitm *m, struct inject *in);
/* Bytes that it holds itself; @fd: its two sockets, the sandbox's first. */
size_t mitm_holds(const struct mitm *m, int fd[2]);
/* Cut now, with a reset, without ->ended. NULL is fine. */
void mitm_free(struct mitm *m);
