/*
 * Between cloche-egress and its owner (the API process, or `cloche run`): messages over a SOCK_SEQPACKET socket, one
 * per packet. docs/design/0010-egress.md describes the design; this header is the contract. Numbers are little-endian
 * (proto/wire.h), strings as wire_put_str writes them. Nothing here allocates; decoded pointers point into the packet.
 * Neither side trusts the other's bytes: an invalid packet ends the connection, not the process.
 *
 *	version u8 | type u8 | zero u16 | seq u32 | payload
 *
 * On connect egress sends HELLO, one HAVE for each sandbox of which it holds the sockets, and HAVE with sandbox 0 at the end.
 * The owner then sends CONFIG, SANDBOX for each existing sandbox, and KEEP: sandboxes not named since are closed. There is
 * one owner at a time: a new connection ends the one before.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"

#define EGRESS_VERSION 2
#define EGRESS_HEAD 8
#define EGRESS_MSG_MAX (128U * 1024U)
#define EGRESS_RULES_MAX 256U
#define EGRESS_NAMES_MAX 4096U /* synthetic addresses of one sandbox; of which EGRESS_BATCH fit into one NAMES */
#define EGRESS_INJECTS_MAX 16U
#define EGRESS_BATCH 256U
#define EGRESS_TEXT_MAX 256U /* reasons, commands */

enum egress_type {
	/* owner → egress */
	EGRESS_CONFIG = 1, /* struct egress_config */
	/* struct egress_sandbox; with EGRESS_SOCKETS descriptors, or none when egress has them: the policy changes */
	EGRESS_SANDBOX,
	/* sandbox: streams are reset, sockets closed; a last COUNTS and the ends of its streams come, then GONE */
	EGRESS_GONE,
	EGRESS_KEEP, /* no payload: see above */
	EGRESS_THEY, /* struct egress_they: the process that EGRESS_WHO asked for, with its seq */
	/* struct egress_names: synthetic addresses that a sandbox had before; sent after its first SANDBOX */
	EGRESS_NAMES,
	EGRESS_TELL, /* sandbox: egress reports all that happened until now, then sends EGRESS_TOLD with this seq */
	/* egress → owner */
	EGRESS_HELLO = 32, /* arg: number of reports that were lost since the last HELLO, for lack of a reader */
	EGRESS_HAVE, /* sandbox */
	EGRESS_STREAM, /* struct egress_stream: one has ended, or was refused */
	EGRESS_LOOKUP, /* struct egress_stream: a name was refused; port 0 */
	EGRESS_NAMED, /* struct egress_names: new synthetic addresses, to be kept with the sandbox */
	EGRESS_COUNTS, /* struct egress_counts: at most four times a second, when they changed */
	/* struct egress_who: which process has this connection? Answered by THEY within a second, or never */
	EGRESS_WHO,
	/* sandbox; seq of the SANDBOX: its policy is in force, or refused (arg: errno) and the sandbox gone, if it was there; behind all NAMED so far */
	EGRESS_DONE,
	EGRESS_SEEN, /* struct egress_stream, in mode observe: a permitted stream, and the rule that would permit it */
	/*
	 * sandbox; seq of the last EGRESS_TELL; answers earlier ones, too. Sent when the processes of all refusals are
	 * known
	 */
	EGRESS_TOLD,
};

/* The descriptors of a SANDBOX, in this order: made by the warden inside the sandbox's network namespace (linux/steer.h). */
enum egress_socket { EGRESS_TCP, EGRESS_DNS_UDP, EGRESS_DNS_TCP, EGRESS_SOCKETS };

enum egress_mode {
	EGRESS_NONE, /* every stream and name is refused */
	EGRESS_ALLOW, /* what a rule names */
	EGRESS_OPEN, /* the public internet */
	/* what the outer rules of CONFIG allow; streams and names are reported with the rule they need */
	EGRESS_OBSERVE,
};

/* 0 = none. Of one sandbox, or of a tree of forks together. */
struct egress_budget {
	uint64_t bytes_out, bytes_in;
	uint64_t connections; /* ever */
	uint64_t bandwidth; /* bytes a second, in both directions together */
	uint64_t dns; /* queries, ever */
	uint32_t concurrent;
	uint32_t requests; /* HTTP requests, or streams that are none, a minute and name */
};

struct egress_counts {
	uint64_t sandbox;
	uint64_t bytes_out, bytes_in, connections, refused, dns, dns_refused;
	uint32_t concurrent;
};

enum egress_inject_kind { EGRESS_HEADER = 1, EGRESS_BASIC, EGRESS_QUERY };

/* One value for one destination. It is never written to a log, and never sent to another server. */
struct egress_inject {
	uint8_t kind;
	/*
	 * only sent over TLS, after the server's certificate was verified; false: plain HTTP, if an administrator
	 * allows it
	 */
	bool tls;
	uint16_t port;
	const char *host; /* a name, exact */
	const char *field; /* the header's or parameter's name; of BASIC the user */
	const char *value; /* as sent: "Bearer abc" */
	const char *secret; /* its name, for the audit */
	uint32_t bare, bare_len; /* what of ->value must not come back in an answer: "abc". Length 0: all of it */
};

struct egress_sandbox {
	uint64_t sandbox; /* the owner's number for it, never 0 and never used again */
	uint64_t tree; /* which tree of forks it is of, never 0 */
	uint64_t tenant; /* the sandbox's tenant; 0: there are no tenants */
	char id[ID_SIZE]; /* for people */
	uint8_t mode;
	uint32_t rules; /* texts of proto/net_rule.h, sets resolved; EGRESS_RULES_MAX at most */
	uint32_t privates; /* rules of addresses that are not public and an administrator lets it reach */
	uint32_t injects;
	const char *rule[EGRESS_RULES_MAX];
	const char *private[EGRESS_RULES_MAX];
	struct egress_inject inject[EGRESS_INJECTS_MAX];
	struct egress_budget budget, tree_budget;
	struct egress_counts counts; /* what it and, in tree_counts, its tree had used before: egress adds to that */
	struct egress_counts tree_counts; /* used when egress does not know the tree yet */
	const char *ca_cert, *ca_key; /* PEM, "" when no TLS is terminated */
};

struct egress_config {
	/* "1.2.3.4", "[::1]:5353", several with a space between; "" = the host's /etc/resolv.conf */
	const char *resolver;
	uint32_t hosts; /* "name address": the administrator's own answers, before any resolver */
	const char *host[EGRESS_RULES_MAX];
	uint32_t outer; /* rules for mode observe; none: as open */
	const char *rule[EGRESS_RULES_MAX];
	const char *ca_file; /* what the servers' certificates are verified with, "" = the system's */
};

struct egress_names { /* index i is 198.18.1.0 + i, and fd63:6c6f:6368:65::1:0 + i */
	uint64_t sandbox;
	uint32_t n;
	struct {
		uint32_t index;
		const char *name;
	} name[EGRESS_BATCH];
};

enum egress_verdict {
	EGRESS_V_OK, /* both sides have ended it */
	EGRESS_V_CUT, /* by us: policy changed, budget used up, sandbox gone */
	EGRESS_V_FAILED, /* the server could not be reached, or broke off */
	EGRESS_V_DENIED, /* refused by the policy */
	EGRESS_V_BUDGET, /* refused by a budget */
};

struct egress_stream {
	uint64_t sandbox;
	uint64_t out, in; /* bytes */
	uint64_t usec; /* it lasted */
	uint8_t verdict;
	uint8_t family; /* of ->addr: 4, 6, 0 = none */
	uint16_t port;
	uint8_t addr[16]; /* connected to, or asked for */
	uint32_t pid; /* inside; 0 = not known */
	uint32_t requests; /* HTTP requests seen */
	uint32_t times; /* how often the same was refused since the last report; else 1 */
	const char *name; /* "" = by address */
	/* that let it through; of a refusal the one that would ("api.example.com:443"), or "" when none can */
	const char *rule;
	const char *reason; /* of everything but OK: one line */
	const char *command; /* "" = not known */
	const char *secrets; /* names of those injected, a space between */
};

struct egress_who {
	uint64_t sandbox;
	uint8_t family; /* of the client's socket */
	bool udp; /* it sent a datagram, and has no connection */
	uint16_t client_port, port;
	uint8_t client[16], addr[16];
};

struct egress_they {
	uint64_t sandbox;
	uint32_t pid;
	const char *command;
};

struct egress_msg {
	uint8_t type;
	uint32_t seq;
	uint64_t sandbox, arg; /* of those that have no struct of their own */
	const uint8_t *payload;
	size_t len;
};

/* 0, or -EBADMSG. Each struct has its own below. */
int egress_decode(const uint8_t *data, size_t len, struct egress_msg *ret);
/* Whole packets: their length, or -EMSGSIZE. */
long egress_plain_encode(enum egress_type type, uint32_t seq, uint64_t sandbox, uint64_t arg, uint8_t *out,
			 size_t size);
long egress_config_encode(const struct egress_config *c, uint8_t *out, size_t size);
int egress_config_decode(const struct egress_msg *m, struct egress_config *ret);
long egress_sandbox_encode(const struct egress_sandbox *b, uint32_t seq, uint8_t *out, size_t size);
int egress_sandbox_decode(const struct egress_msg *m, struct egress_sandbox *ret);
long egress_names_encode(enum egress_type type, const struct egress_names *n, uint8_t *out, size_t size);
int egress_names_decode(const struct egress_msg *m, struct egress_names *ret);
long egress_stream_encode(enum egress_type type, const struct egress_stream *s, uint8_t *out, size_t size);
int egress_stream_decode(const struct egress_msg *m, struct egress_stream *ret);
/* Every reason for a connection that ended early contains this. */
#define EGRESS_CLOSED_EARLY "closed the connection early"
/* The policy allows the stream, but its name or its server was not found. False when it ended early later. */
bool egress_stream_unreached(const struct egress_stream *s);
long egress_counts_encode(const struct egress_counts *c, uint8_t *out, size_t size);
int egress_counts_decode(const struct egress_msg *m, struct egress_counts *ret);
long egress_who_encode(const struct egress_who *w, uint32_t seq, uint8_t *out, size_t size);
int egress_who_decode(const struct egress_msg *m, struct egress_who *ret);
long egress_they_encode(const struct egress_they *t, uint32_t seq, uint8_t *out, size_t size);
int egress_they_decode(const struct egress_msg *m, struct egress_they *ret);
