/*
 * A sandbox's network: its policy is sent to cloche-egress together with the sockets that the warden made inside, and
 * egress's reports are recorded. A sandbox without a network (mode none, from the beginning) has none of this.
 *
 * Egress knows a sandbox by its warden's handle: a restored or woken sandbox is another one to it, with counts that
 * continue and the names that its processes may still use. Only the first exec (for a moment) and a change of the
 * policy wait for egress; without it the kernel refuses everything.
 */
#pragma once
#include "service/sandbox/sandbox.h"
#include "service/network/request.h"

/*
 * Fills in what is injected into requests (service/secret/give.c): called whenever a policy is put together; sets
 * ->injects, ->inject, ->ca_cert and ->ca_key, which are good until the loop's next call. sandbox_net_tell() has it
 * called again.
 */
typedef void sandbox_net_inject_fn(struct sandbox *b, struct egress_sandbox *to);

/* The link to egress, and trees of forks as they were stored. */
int sandbox_nets_new(struct service *s, struct err *e); /* before any sandbox */
int sandbox_nets_start(struct service *s, struct err *e); /* when they are loaded */

/* --- a sandbox comes into being (make.c) --- */

/* It is about to be made: @like continues in it (it wakes up, or is restored), or NULL. Fills in @spec. */
void sandbox_net_begin(struct sandbox *b, struct sandbox *like, struct sandbox_spec *spec);
/* It was: takes its sockets out of @fds, the last of @n. */
void sandbox_net_made(struct sandbox *b, int *fds, size_t n);
/* It is in the store now; what it had before is stored, too. */
void sandbox_net_entered(struct sandbox *b);
/* What it has of it turns to @b, which keeps what it has used. */
void sandbox_net_move(struct sandbox *b, struct sandbox *from);
/* Its processes end, or have: egress closes what it has of it. It may be made again. */
void sandbox_net_end(struct sandbox *b);
void sandbox_net_free(struct sandbox *b);
/* Whether its first exec may begin; if not, the parts are told soon (`unblocked`). */
bool sandbox_net_ready(const struct sandbox *b);
/* Found again, with what was stored of it. */
void sandbox_net_load(struct sandbox *b);

/* --- while it is there --- */

/* The policy of a running sandbox, taken over: in force, and stored, when @fn is called with 0. ERR_LOST: not in force yet. */
void sandbox_net_put(struct sandbox *b, const struct who *who, struct net_request *request, sandbox_done_fn *fn,
		     void *arg);
/*
 * Whether egress has reported all that happened until now: names with addresses, streams, refusals, counts. If not, @f
 * is called when it has, or cannot: once.
 */
struct net_flush {
	struct net_flush *next;
	struct net_run *run; /* NULL: not waited for (any more) */
	void (*fn)(void *arg);
	void *arg;
};
bool sandbox_net_flushed(struct sandbox *b, struct net_flush *f);
void net_flush_cancel(struct net_flush *f); /* it is not called */
/* The same policy again, as when what is injected has changed. Without a network nothing happens. */
void sandbox_net_tell(struct sandbox *b);
/*
 * Collects the present state for GET …/network: egress is asked first, which takes a tenth of a second at most; with
 * @why also the kernel, for the packets that it refused.
 */
void sandbox_net_look(struct sandbox *b, bool why, sandbox_done_fn *fn, void *arg);
void sandbox_net_write(const struct sandbox *b, bool why, struct json *j);
/* Bytes in both directions, since it was created. */
uint64_t sandbox_net_bytes(const struct sandbox *b);
/* The same, and what egress has counted, as fields inside of an open object: "net_bytes", "network". */
void sandbox_net_write_stat(const struct sandbox *b, struct json *j);
/* Counts and observations that changed are stored: called now and then. */
void sandbox_nets_store(struct service *s);
