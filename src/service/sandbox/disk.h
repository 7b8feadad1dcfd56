/*
 * Sandboxes whose files are on a disk that outlives what runs on it (storage `disk`, containers): after a reboot they are
 * `stopped`, when their first process died `lost`, and in both states their files can be used and they can be started.
 */
#pragma once
#include "service/sandbox/sandbox.h"

/* Nothing of it runs any more, and its files are there. */
void sandbox_stopped(struct sandbox *b, const char *why);
/* Ends what runs in it; its files stay. Stopped or lost already: 0. ERR_CONFLICT for one whose files are in memory. */
void sandbox_stop(struct sandbox *b, const struct who *who, sandbox_done_fn *fn, void *arg);
/* Made again on its disk; execs with `restart` are begun again. Started already: 0. */
void sandbox_start(struct sandbox *b, const struct who *who, sandbox_done_fn *fn, void *arg);
/*
 * For a sandbox that is stopped or lost: whether its files can be read now, or never. If not yet, a container for its
 * files is made, without commands; the sandbox's state stays, and @w is called.
 */
bool sandbox_open(struct sandbox *b, struct sandbox_waiter *w);
/* Lets go of that. */
void sandbox_close(struct sandbox *b);
/* From the clock: closes those that are not used. Returns whether there is more to do. */
bool sandbox_open_tick(struct sandbox *b, uint64_t now);

/* Commands that are begun again with their sandbox, ->request->again: [{exec, spec}]. */
int sandbox_again_check(const struct sandbox *b, const json_t *spec, struct err *e); /* whether that can be promised */
int sandbox_again_add(struct sandbox *b, const char *exec, json_t *spec, struct err *e); /* takes @spec over */
void sandbox_again_drop(struct sandbox *b, const char *exec, const char *was); /* it has ended */
/* At our start: those that have such commands. */
void sandbox_again_start_all(struct service *s);

/*
 * An unused disk is removed if a file in "notes" says that it may go, as with layers (service/checkpoint/layer.h): the
 * disk of a sandbox in the making until that is stored, and one whose sandbox has ended or continues with another. Any
 * other is moved to the quarantine.
 */
struct disk_sweep;
int disk_sweep_new(struct service *s, struct disk_sweep **ret, struct err *e);
void disk_sweep_soon(struct service *s);
/* Before its row is there, or is not any more. */
void disk_may_go(struct service *s, const char *id);
bool disk_sweep_tick(struct service *s); /* whether there is more to do */
