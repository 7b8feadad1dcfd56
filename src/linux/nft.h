/*
 * Rules of nftables, as messages: what few expressions linux/steer.c is made of. A batch is one transaction: all of it,
 * or nothing. Families of the table are both (inet), so that what looks into a packet's head asks for its family first.
 */
#pragma once
#include <stdint.h>

#include "linux/netlink.h"

struct nft {
	struct netlink *link;
	const char *table, *chain;
	size_t rule; /* the nest that is open */
	/* by message: the module of its expressions, for the error that says that it is missing */
	const char *needs[96];
};

/* Takes @link, of NETLINK_NETFILTER, for the time of the batch. */
void nft_begin(struct nft *b, struct netlink *link, const char *table, const char *chain);
/* 0, or why the kernel refused: all is as before. Says which module it lacks when that is why. */
int nft_commit(struct nft *b, struct err *e);

void nft_table(struct nft *b);
void nft_table_delete(struct nft *b); /* with all that is in it */
void nft_chain(struct nft *b, uint32_t hook, int32_t priority);
/* Empties the chain. */
void nft_flush(struct nft *b);
/* A set that rules add to: keys of @key bytes, each with a counter, @size of them, forgotten after @msec. */
void nft_set(struct nft *b, const char *name, uint32_t key, uint32_t size, uint64_t msec);

/* A rule is what is added between these two calls; its expressions are evaluated in order, until one does not match. */
void nft_rule(struct nft *b);
void nft_rule_end(struct nft *b);

enum nft_head { NFT_HEAD_NETWORK = 1, NFT_HEAD_TRANSPORT = 2 };
/* Registers of four bytes, from 0 on; the longer ones take several in a row. */
void nft_family(struct nft *b, unsigned family); /* 4 or 6 */
/* The protocol is (not) @proto. */
enum nft_op { NFT_IS, NFT_IS_NOT };
void nft_proto(struct nft *b, enum nft_op op, uint8_t proto);
void nft_load(struct nft *b, unsigned reg, enum nft_head head, uint32_t offset, uint32_t len);
void nft_put(struct nft *b, unsigned reg, const void *data, uint32_t len);
void nft_mask(struct nft *b, unsigned reg, const void *mask, uint32_t len);
void nft_cmp(struct nft *b, unsigned reg, enum nft_op op, const void *data, uint32_t len);
/* From @first to @last, as bytes in network order. */
void nft_within(struct nft *b, unsigned reg, const void *first, const void *last, uint32_t len);
/* Matches what comes faster than that. */
void nft_faster_than(struct nft *b, uint64_t per_second, uint32_t burst);
/* Counts the key that begins at @reg. A set that is full takes no more, and the rule ends there. */
void nft_count(struct nft *b, const char *set, unsigned reg);
/* To the transparent listener on that port of this namespace; ends the rule, unmatched, when there is none. */
void nft_tproxy(struct nft *b, uint16_t port);
void nft_accept(struct nft *b);
void nft_reset(struct nft *b); /* a TCP reset; the packet is dropped */
void nft_unreachable(struct nft *b); /* as for a port without a listener */

/* Calls @fn with each key of a set, how often it was counted and how long it stays if it is not again. 0, or -errno. */
typedef void nft_key_fn(void *arg, const uint8_t *key, size_t len, uint64_t count, uint64_t msec);
int nft_set_read(struct netlink *link, const char *table, const char *set, nft_key_fn *fn, void *arg);
