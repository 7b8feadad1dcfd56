/*
 * What makes a sandbox outlive its warden: its agent holds the lock of its slot, the file behind /proc/meminfo and both
 * ends of a rendezvous; a record says which process that is. See docs/design/0005-daemon.md.
 */
#pragma once
#include "base/err.h"
#include "engine/blank/blank.h"
#include "engine/blank/record.h"

#define PERSIST_FIRST_GROUP 1 /* the exec group every sandbox has */

/* Ahead of time, for a blank that was made: the rendezvous, exec group 1, when it was started. */
int persist_prepare(struct env *v, struct blank *s, struct err *e);
/* Sends all of KEEP ahead, after SETUP; when the sandbox is handed out, the agent only has to read a word in memory. */
int persist_ahead(struct env *v, struct blank *s, int meminfo, int writable, struct err *e);
/* Writes @rec (the caller fills the sandbox's part, this the blank's) and sends KEEP to the agent. After SETUP. */
/* @writable: the writable layer. @more: of a machine's jail, FRAME_KEEP_VM_FDS; else NULL. */
int persist_start(struct env *v, struct blank *s, int meminfo, int writable, const int *more, struct record *rec,
		  struct err *e);
/* What the agent holds for a machine: FRAME_KEEP_SIDE, a SOCK_SEQPACKET socket; FRAME_KEEP_STAT. Or -errno. */
int persist_vm(const struct blank *s, int place);
/*
 * Returns once the agent has heard KEEP, which it does when it has set the sandbox up: one that is frozen before could
 * not be attached to by another warden.
 */
void persist_settle(struct blank *s);
/* The agent's table of execs (proto/table.h); a descriptor, the caller's, or -errno: it has no KEEP (yet). */
int persist_table(const struct blank *s);
/* Closes what can be had again from the agent, once it has it; for a warden of many. */
void persist_park(struct blank *s);
/* A new control socket for the agent: *ret is the host's end. Does not block. */
int persist_attach(struct blank *s, int *ret, struct err *e);
/*
 * Takes over the sandbox of a record: 0, with what the agent holds; *ret_meminfo and *ret_writable are -1 when the
 * agent has not got them. -ESRCH when there is no such process any more; its remains are removed then, with its
 * record.
 */
int persist_adopt(struct env *v, const struct record *rec, struct blank *ret, int *ret_meminfo, int *ret_writable,
		  struct err *e);
