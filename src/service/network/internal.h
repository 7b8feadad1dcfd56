/* Between the parts of service/network/. */
#pragma once
#include "service/sandbox/internal.h"
#include "service/network/network.h"
#include "service/network/state.h"
#include "service/link/egress_link.h"

struct net_put;

/* One sandbox from egress's point of view: from its making until egress has sent its last report. */
struct net_run {
	struct nets *nets;
	uint64_t number; /* its handle; 0: it is being made */
	struct net_state *state; /* referenced */
	struct sandbox *sandbox; /* NULL: it has ended */
	struct mask *mask; /* then: of what it had; or NULL */
	char tenant[TENANT_NAME_MAX + 1], id[ID_SIZE]; /* both may be gone before it is */
	int sock[EGRESS_SOCKETS]; /* not given to egress yet, or -1 */
	bool held; /* egress has its sockets */
	bool asking; /* the warden is asked for them */
	bool again; /* it refused: to be asked again */
	bool ready; /* its first exec may begin */
	bool fresh; /* made a moment ago, and on ->nets->fresh */
	struct net_run *fresh_next;
	uint64_t since_ns; /* monotonic: it waits */
	uint32_t seq; /* of the SANDBOX that is not answered yet; 0 = none */
	bool in_force; /* egress has confirmed the policy that it was sent last */
	bool less; /* the configuration has less than was asked for */
	struct egress_counts last; /* as egress reported last */
	struct net_put *put; /* a change of the policy that waits for confirmation */
	struct net_flush *flushes; /* callers that wait for egress's reports */
	uint32_t flush_seq; /* of the EGRESS_TELL that was sent last */
	uint64_t flush_ns; /* monotonic: since when */
	unsigned whos; /* a machine: questions whose a connection was, under way */
};

struct nets {
	struct service *service;
	struct egress_link *link;
	struct map runs; /* by number */
	struct map trees; /* by id */
	uv_timer_t timer; /* stores changes, and ends waits that take too long */
	bool ticking;
	/* sends the sandboxes of this turn to egress in the next one, since no answer waits for that */
	uv_timer_t tell;
	struct net_run *fresh;
	bool met; /* egress and we have met before: the kernel's rules are as we know them */
	struct egress_sandbox *sandbox; /* for putting one together */
	struct egress_names *names;
};

#define NET_KEY 20
static inline void net_key(uint64_t number, char key[NET_KEY])
{
	snprintf(key, NET_KEY, "%016llx", (unsigned long long)number);
}

/* network.c */
struct net_run *net_run_new(struct sandbox *b); /* with ->net there */
void net_run_list(struct net_run *r, uint64_t number);
void net_run_sync(struct net_run *r); /* sends the policy to egress, if it is connected */
void net_run_resteer(struct nets *n, uint64_t number); /* the kernel's rules are what the sandbox's policy says */
struct net_tree *net_tree_get(struct nets *n, uint64_t id);
void nets_soon(struct nets *n);

/* send.c */
void net_send_config(struct nets *n);
void net_send_sandbox(struct net_run *r); /* its policy, its sockets when egress has none of them, and its names */

/* put.c */
void net_put_done(struct net_run *r, int errnum); /* egress has answered */
void net_put_fail(struct net_run *r, int ret, const struct err *e);

/* log.c */
void net_log_stream(struct net_run *r, const struct egress_stream *x, bool lookup);
void net_log_seen(struct net_run *r, const char *rule); /* one was let through that needs it, in mode observe */
void net_log_unknown(struct service *s, const struct egress_stream *x);

/* The one with that number, NULL: it is gone. */
struct net_run *net_run_of(const struct nets *n, uint64_t number);
/* Egress's answer. */
void net_they(struct nets *n, uint64_t number, uint32_t seq, uint32_t pid, const char *command);
/* socket_owner.c: asks the machine about the connection that its jail has at @port. net_they() follows; -errno: it does not. */
int net_vm_who(struct net_run *r, uint32_t seq, uint16_t port);
