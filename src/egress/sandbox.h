/* A sandbox, as egress knows it: by its sockets. */
#pragma once
#include "egress/egress.h"
#include "egress/inject.h"
#include "egress/names.h"
#include "egress/room.h"
#include "tls/ca.h"

struct stream;
struct fold;
struct dns_conn;
struct dns_asked;

struct sandbox {
	struct egress *g;
	struct sandbox *next; /* of its bucket */
	uint64_t number;
	char id[ID_SIZE];
	bool kept; /* named since the owner joined */
	bool closing;
	struct tree *tree;
	struct tenant *tenant;
	struct policy *policy;
	struct names names;
	struct meter meter;
	struct inject *inject; /* NULL: nothing is injected */
	struct ca *ca;

	struct loop_fd tcp, udp, dns;
	struct dns_conn *dns_conns;
	struct dns_asked *dns_asked; /* refused, and not answered yet */
	uint32_t dns_conn_count, dns_asked_count;
	uint32_t dns_tokens;
	uint64_t dns_at;
	/*
	 * ns: an EGRESS_WHO of a DNS query was not answered in time; none is sent before this. In a VM the guest has to
	 * answer
	 */
	uint64_t who_late;

	struct resolve_asker *asker; /* NULL: it had no name resolved yet */
	struct stream *streams;
	struct room room;
	uint32_t refusing; /* streams that only wait for their end */

	/* work */
	struct stream *ready_first, **ready_last;
	struct sandbox *run_next;
	bool queued, want_accept, want_dns, late; /* ->late: no bytes before ->timer */
	uint8_t tell_turns; /* turns until ->tell is checked (EGRESS_TELL) */
	uint32_t tell; /* seq of an EGRESS_TELL that was not answered yet; 0: none */
	struct loop_timer timer;

	/* reports */
	struct sandbox *dirty_next, *fold_next;
	bool dirty;
	uint64_t told_at; /* when ->told was last updated */
	uint32_t told; /* different refusals that were reported recently */
	struct fold *fold; /* NULL: nothing was refused recently */
};

/* @fds are EGRESS_SOCKETS, or none (@nfds 0) when the sandbox is known. Takes those it sets to -1. 0 or -errno. */
int sandbox_put(struct egress *g, const struct egress_sandbox *want, int *fds, size_t nfds);
void sandbox_names(struct egress *g, const struct egress_names *n);
void sandbox_free(struct sandbox *b); /* all its streams are cut; last reports are sent */
void sandbox_queue(struct sandbox *b); /* it has work */
/* Does some. True: there is more. */
bool sandbox_turn(struct sandbox *b);
/* Sends EGRESS_TOLD when all that happened until now was reported: what waits in the sockets is processed first. */
void sandbox_report_all(struct sandbox *b, uint32_t seq);
void sandbox_report_again(struct sandbox *b); /* checks ->tell again, after a report for which it may have waited */
void sandbox_judge(struct sandbox *b); /* ends the streams that would not begin any more */
void sandbox_cut_waiting(struct sandbox *b); /* those that would verify their server by what is about to go */
const struct policy *sandbox_outer(const struct sandbox *b);
