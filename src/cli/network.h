/*
 * The network of `cloche run`: its own cloche-egress, which ends with it. It is started before anything else, so that it
 * stays in the caller's network namespace and, without root, has the caller's uid; with root it has a uid of its own.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/json.h"
#include "run/engine.h"
#include "egress/msg.h"
#include "proto/net_rule.h"

#define NETWORK_LIST 64 /* rules, private ones, hosts: each */
#define NETWORK_REFUSALS 32 /* different refusals that are printed */

/* What was asked for; strings stay the caller's. */
struct network_want {
	bool given; /* a mode was named */
	uint8_t mode; /* EGRESS_* */
	uint32_t rules, privates, hosts;
	const char *rule[NETWORK_LIST], *private[NETWORK_LIST];
	char *host[NETWORK_LIST]; /* "name address", ours */
	const char *resolver; /* NULL: the host's */
};

/* One option each. ERR_INVALID says what is wrong with it. */
int network_want_mode(struct network_want *w, const char *text, struct err *e);
int network_want_rule(struct network_want *w, const char *text, struct err *e);
int network_want_private(struct network_want *w, const char *text, struct err *e);
int network_want_host(struct network_want *w, const char *text, struct err *e); /* NAME=ADDRESS */
/* What fits together, and what the kernel is to let through: into the spec. */
int network_want_finish(struct network_want *w, struct sandbox_spec *spec, struct err *e);
void network_want_done(struct network_want *w);

struct network_refusal {
	char to[NET_NAME_MAX + 8]; /* "evil.test:443" */
	char fix[2 * NET_RULE_TEXT + 64]; /* options, or "" */
	char reason[EGRESS_TEXT_MAX];
	char command[64];
	uint32_t pid;
	uint64_t times;
	bool unreached; /* it is allowed, and its server was not there */
};

struct network {
	int fd; /* to egress, or -1: there is no network */
	pid_t pid;
	const struct network_want *want;
	bool gone; /* it said that it has let go of the sandbox */
	bool closed; /* it is not there any more */
	struct egress_counts counts;
	unsigned n, more; /* more: that did not fit */
	struct network_refusal refusal[NETWORK_REFUSALS];
	/* Mode observe: the rules that would have sufficed. */
	unsigned observed, unobserved; /* unobserved: that did not fit */
	struct net_rule observation[NETWORK_LIST];
};

/* Starts it, when the spec has a network. Before threads and namespaces are made. */
int network_start(struct network *n, const struct sandbox_spec *spec, struct err *e);
/* Hands it the sandbox's sockets; the policy is in force when this returns 0. */
int network_give(struct network *n, const struct network_want *w, struct engine_sandbox *s, struct err *e);
/* Something came. */
void network_read(struct network *n, struct engine_sandbox *s);
/* The last reports, and what the kernel refused by itself; before the sandbox is destroyed. */
void network_finish(struct network *n, const struct network_want *w, struct engine_sandbox *s);
/* One line on stderr for each thing that was refused. */
void network_tell(const struct network *n);
/* The same as a value of the result, and in mode observe the list; nothing when there was no network. */
void network_write(const struct network *n, struct json *j);
void network_done(struct network *n); /* ends it */
