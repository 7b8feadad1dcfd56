/*
 * What makes cloche-vmm look like an agent that keeps: it answers READY and UP, holds the host's ends of execs that are
 * kept and their statuses, and tells them again to whoever comes (SYNC). The agent in the guest knows of none of that. It
 * also is what a checkpoint of the port's state is made by. Host only; stands between a carry and its ->ctl.
 *
 * The way of a machine that boots:
 *	carry_init(), kept_new(); turns, START at HELLO; turns until kept_up() is 1; then kept_attach().
 * Of a checkpoint or template (turns in between, as always):
 *	carry_quiesce(); until carry_quiet() is 1; QMP stop, memory, disks; kept_save(); QMP cont; carry_go_on().
 *	Whatever fails there, also carry_quiet() by time: carry_go_on().
 * Of a clone:
 *	carry_init(), kept_new(), kept_load(); at GO: QMP cont, kept_resume(); until carry_resumed() is true; kept_attach().
 */
#pragma once
#include "base/cleanup.h"
#include "base/err.h"
#include "vm/vmm/carry.h"

struct kept;

/* In front of @c, which has to live longer. 0 or -ENOMEM. */
int kept_new(struct carry *c, struct kept **ret);
void kept_free(struct kept *k);
DEFINE_AUTO(struct kept, kept_free)
/* 1: the sandbox stands; 0: not yet; negative: it never will, and @e says why. */
int kept_up(const struct kept *k, struct err *e);
uint32_t kept_landlock(const struct kept *k); /* its ABI in the guest */
/*
 * Takes @sock, a stream socket whose other end is who speaks to the agent from now on: READY and UP go there. What the one
 * before had sent whole is still served; it is closed. @restored: FRAME_RESTORED_*, told with UP; 0: not told.
 */
int kept_attach(struct kept *k, int sock, uint32_t restored);
/* To the exec group that the host gave this number. One that is not known is nothing to do. */
int kept_group(struct kept *k, uint32_t number, enum mux_group what);

/* All of the port's state, once it is quiet, to be freed; -ENOBUFS when that is more than @max. */
int kept_save(const struct kept *k, size_t max, uint8_t **ret, size_t *ret_len);
/*
 * Into a new one. Execs that were kept and run get new pipes and terminals (SYNC tells them; the i-th by id is in group
 * i + 1), other descriptors are gone. -EBADMSG: this is no such state.
 */
int kept_load(struct kept *k, const uint8_t *data, size_t len);
/* After kept_load(), once: says RESUME with a new epoch. With MUX_RESUME_DROP no exec is left. ->epoch is chosen here. */
int kept_resume(struct kept *k, const struct mux_resume *who);
