/*
 * What makes cloche-vmm look like an agent with KEEP: it answers READY and UP, holds the host's ends of execs with KEEP
 * and their statuses, and sends them again to each new client (SYNC). The agent in the guest knows of none of that. It
 * also saves and loads the state of the port for checkpoints. Host only; sits between a carry and its ->ctl.
 *
 * Order of calls for a machine that boots:
 *	carry_init(), kept_new(); turns, START at HELLO; turns until kept_up() is 1; then kept_attach().
 * For a checkpoint or template (turns in between, as always):
 *	carry_quiesce(); until carry_quiet() is 1; QMP stop, memory, disks; kept_save(); QMP cont; carry_go_on().
 *	After any failure there, also a timeout of carry_quiet(): carry_go_on().
 * For a clone:
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
/* 1: the sandbox is ready; 0: not yet; negative: it never will be, and @e has the reason. */
int kept_up(const struct kept *k, struct err *e);
uint32_t kept_landlock(const struct kept *k); /* its ABI in the guest */
/*
 * Takes @sock, a stream socket whose other end is the agent's client from now on: READY and UP are sent there. Whole
 * frames of the client before are still served; its socket is closed. @restored: FRAME_RESTORED_*, sent with UP; 0: not
 * sent.
 */
int kept_attach(struct kept *k, int sock, uint32_t restored);
/* To the exec group that the host gave this number. One that is not known is nothing to do. */
int kept_group(struct kept *k, uint32_t number, enum mux_group what);

/* All of the port's state, once it is quiet, to be freed; -ENOBUFS when that is more than @max. */
int kept_save(const struct kept *k, size_t max, uint8_t **ret, size_t *ret_len);
/*
 * Loads it into a new one. Running execs with KEEP get new pipes and terminals (SYNC sends them; the i-th by id is in
 * group i + 1), other descriptors are gone. -EBADMSG: this is no such state.
 */
int kept_load(struct kept *k, const uint8_t *data, size_t len);
/* After kept_load(), once: says RESUME with a new epoch. With MUX_RESUME_DROP no exec is left. ->epoch is chosen here. */
int kept_resume(struct kept *k, const struct mux_resume *who);
