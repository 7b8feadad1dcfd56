/*
 * The network state of a sandbox: what it has used, the names behind its synthetic addresses, recent refusals, and the
 * rules that it would have needed. Referenced by the sandbox, and by each run that egress still reports on.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "egress/msg.h"
#include "proto/net_rule.h"

#define NET_REFUSALS 64U /* kept */
#define NET_OBSERVED 256U

struct net_refusal {
	uint64_t at_ns, first_ns;
	uint64_t times;
	uint8_t verdict;
	uint16_t port; /* 0: only its name was asked for */
	uint32_t pid;
	bool kernel; /* by its rules alone */
	bool private; /* since it is no address of the public internet, or the name leads to none */
	char *target; /* name, or address */
	char *rule, *reason, *command; /* rule: that would let it through, "" when none can */
};

struct net_name {
	uint32_t index;
	char *name;
};

/* What a tree of forks has used together. */
struct net_tree {
	uint64_t id;
	unsigned refs;
	bool dirty, stored;
	struct egress_counts counts;
};

struct net_state {
	unsigned refs;
	struct net_tree *tree; /* referenced */
	struct net_state *forward; /* what is counted counts there: it was replaced. Referenced */
	struct egress_counts counts;
	struct egress_counts copied; /* ->counts at the beginning, of a sandbox that continues */
	struct net_name *names; /* by index */
	uint32_t nnames, names_room;
	struct net_refusal refusal[NET_REFUSALS]; /* a ring */
	uint32_t nrefusals; /* ever */
	uint64_t budget_ns; /* when another budget was given last; 0: never */
	char **observed; /* rules, in the order they were needed */
	uint32_t nobserved;
	bool observed_all; /* no: there were more than fit */
	bool dirty;
};

struct net_state *net_state_new(struct net_tree *tree); /* without memory the process ends; likewise below */
void net_state_unref(struct net_state *s);
static inline struct net_state *net_state_ref(struct net_state *s)
{
	s->refs++;
	return s;
}
/* Where it counts. */
struct net_state *net_state_now(struct net_state *s);

/* Egress says @now of what it last said @last of; the difference is added, and @last follows. */
void net_state_count(struct net_state *s, struct egress_counts *last, const struct egress_counts *now);
/* Names: added or replaced by index; whether that changed anything. */
bool net_state_name(struct net_state *s, uint32_t index, const char *name);
void net_state_names_copy(struct net_state *s, const struct net_state *from);
/* As text for a checkpoint's row, and back. What is wrong in it is left out. */
int net_state_names_write(const struct net_state *s, struct buf *to);
void net_state_names_read(struct net_state *s, const char *text);

/* @kernel_ns: when the kernel refused it itself, which is reported later; 0: egress did, and reports at once. */
void net_state_refuse(struct net_state *s, const struct egress_stream *x, uint64_t kernel_ns);
/* In mode observe: @rule was needed. */
void net_state_observe(struct net_state *s, const char *rule);
/* The shortest list that has all that was observed: ports of one name together, what a wider one has left out. */
void net_state_observed_write(const struct net_state *s, const char *key, struct json *j);

/* What @now has more than @last is added. */
void net_counts_add(struct egress_counts *to, const struct egress_counts *last, const struct egress_counts *now);
void net_counts_write(const struct egress_counts *c, const char *key, struct json *j);
int net_counts_text(const struct egress_counts *c, char *text, size_t size); /* for the store */
void net_counts_read(const char *text, struct egress_counts *ret);
