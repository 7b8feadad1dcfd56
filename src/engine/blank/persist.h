/*
 * What makes a sandbox outlive its warden: its agent holds the lock of its slot, the file behind /proc/meminfo and both
 * ends of a rendezvous; a record says which process that is. See docs/design/0005-daemon.md.
 */
#pragma once
#include "base/err.h"
#include "engine/blank/blank.h"
#include "engine/blank/record.h"

#define PERSIST_FIRST_GROUP 1 /* the exec group every sandbox has */

/* For a new blank: makes the rendezvous and exec group 1, and reads the start time of its agent. */
int persist_prepare(struct env *v, struct blank *s, struct err *e);
/* Sends all of KEEP ahead, after SETUP; when the sandbox is handed out, the agent only has to read a word in memory. */
int persist_ahead(struct env *v, struct blank *s, int meminfo, int writable, struct err *e);
/*
 * Writes @rec and sends KEEP to the agent. Call it after SETUP. The caller has filled in the sandbox's part of @rec,
 * this function fills in the blank's. @writable: the writable layer. @more: FRAME_KEEP_VM_FDS descriptors for a
 * machine's jail; NULL for others.
 */
int persist_start(struct env *v, struct blank *s, int meminfo, int writable, const int *more, struct record *rec,
		  struct err *e);
/*
 * Takes a descriptor back that the agent holds for a machine. @place: FRAME_KEEP_SIDE, a SOCK_SEQPACKET socket, or
 * FRAME_KEEP_STAT. A descriptor, or -errno.
 */
int persist_vm(const struct blank *s, int place);
/*
 * Waits until the agent has received KEEP, which it does after setting up the sandbox. If the sandbox were frozen
 * before, no later warden could connect to its agent.
 */
void persist_settle(struct blank *s);
/*
 * Returns a descriptor of the agent's table of execs (proto/table.h), which the caller closes. -errno: the agent has
 * not received KEEP.
 */
int persist_table(const struct blank *s);
/*
 * Closes descriptors that the agent holds as well and that can be taken back from it, so that a warden of many
 * sandboxes does not run out.
 */
void persist_park(struct blank *s);
/* The same by another socket: @say goes to @to with the other end. What fails is said in words. */
int persist_attach_by(int to, const void *say, size_t size, int *ret, struct err *e);
/* A new control socket for the agent: *ret is the host's end. Does not block. */
int persist_attach(struct blank *s, int *ret, struct err *e);
/*
 * Takes over the sandbox of a record: 0, with what the agent holds; *ret_meminfo and *ret_writable are -1 when the
 * agent has not got them. -ESRCH when there is no such process any more; its remains are removed then, with its
 * record.
 */
int persist_adopt(struct env *v, const struct record *rec, struct blank *ret, int *ret_meminfo, int *ret_writable,
		  struct err *e);
