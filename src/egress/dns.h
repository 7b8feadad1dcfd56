/*
 * The DNS of a sandbox: names it may reach have a synthetic address, all others do not exist. No resolver is asked for
 * that: a name leaves this host only when a stream to it begins.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/net_rule.h"

#define DNS_QUERY_MAX 512U
#define DNS_ANSWER_MAX (DNS_QUERY_MAX + 64U)
#define DNS_TTL 60U

enum dns_code { DNS_OK = 0, DNS_FAILED = 2, DNS_NO_NAME = 3, DNS_REFUSED = 5 };
enum dns_type { DNS_A = 1, DNS_PTR = 12, DNS_AAAA = 28 };

struct dns_question {
	uint16_t type;
	size_t end; /* of the question in the packet */
	char name[NET_NAME_MAX]; /* "": one that no host has */
};

/* 0; -EBADMSG: malformed, to be refused; -EINVAL: not even an answer can be made, to be dropped. */
int dns_parse(const uint8_t *query, size_t len, struct dns_question *ret);
/* An answer to that query; @addr is of the question's type or NULL: no data. Its length. */
size_t dns_answer(const uint8_t *query, size_t len, const struct dns_question *q, enum dns_code code,
		  const uint8_t *addr, uint8_t out[DNS_ANSWER_MAX]);

struct sandbox;
/* Some queries that wait in the UDP socket. True: there may be more. */
bool dns_turn(struct sandbox *b);
void dns_accept(struct sandbox *b); /* the TCP one */
void dns_close(struct sandbox *b); /* connections, and queries that wait for a THEY */
/* The owner's answer (EGRESS_THEY) to the EGRESS_WHO of a query, if one has that number. */
struct egress_they;
void dns_they(struct sandbox *b, uint32_t seq, const struct egress_they *t);
