/*
 * A stream into which something is injected, or whose requests are looked at (a rule's +terminate): we are the server to the sandbox (with a certificate of the sandbox's own
 * CA) and a client to the server (whose certificate is verified first), and pass on request by request. HTTP/1.1 only.
 * Every request must be for that name. Where a value is injected, answers are searched for it (egress/scrub.h); others
 * pass unchanged.
 *
 * The stream (egress/stream.h) has accepted and permitted it, and owns this; the descriptors are here. All goes on from
 * the loop's events. Memory is bounded, each side is read only as far as the other one takes; buffers are there only
 * while something is in them. SIGPIPE is ignored by the program.
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
	/* How many of @want bytes may move now, either way; 0: none, mitm_go() is called when some may. NULL: all. */
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
	const struct trust *trust; /* NULL: nobody can be trusted, and the sandbox is told so */
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
