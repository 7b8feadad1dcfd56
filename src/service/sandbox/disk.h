/*
 * Sandboxes whose files are on a disk that outlives what runs on it (storage `disk`, containers): after a reboot they are
 * `stopped`, when their first process died `lost`, and in both states their files can be used and they can be started.
 */
#pragma once
#include "service/sandbox/sandbox.h"

/* Nothing of it runs any more, and its files are there. */
void box_stopped(struct box *b, const char *why);
/* Ends what runs in it; its files stay. Stopped or lost already: 0. ERR_CONFLICT for one whose files are in memory. */
void box_stop(struct box *b, const struct who *who, box_done_fn *fn, void *arg);
/* Made again on its disk; execs with `restart` are begun again. Started already: 0. */
void box_start(struct box *b, const struct who *who, box_done_fn *fn, void *arg);
/*
 * Of one that is stopped or lost: whether its files can be had now, or never. If not yet something is made that has them,
 * without commands, its state stays, and @w is told.
 */
bool box_open(struct box *b, struct box_waiter *w);
/* Lets go of that. */
void box_close(struct box *b);
/* From the clock: closes what nobody uses. Whether there is more to do. */
bool box_open_tick(struct box *b, uint64_t now);

/* Commands that are begun again with their sandbox, ->want->again: [{exec, spec}]. */
int box_again_check(const struct box *b, const json_t *spec, struct err *e); /* whether that can be promised */
int box_again_add(struct box *b, const char *exec, json_t *spec, struct err *e); /* takes @spec over */
void box_again_drop(struct box *b, const char *exec, const char *was); /* it has ended */
/* At our start: those that have such commands. */
void box_again_start_all(struct service *s);

/*
 * Disks that nobody has are removed if something says that they may go, in a file of "notes" as with layers (service/checkpoint/layer.h): of one
 * in the making until its sandbox is stored, and of one whose sandbox has ended or goes on elsewhere. Any other is moved to the quarantine.
 */
struct disk_sweep;
int disk_sweep_new(struct service *s, struct disk_sweep **ret, struct err *e);
void disk_sweep_soon(struct service *s);
/* Before its row is there, or is not any more. */
void disk_may_go(struct service *s, const char *id);
bool disk_sweep_tick(struct service *s); /* whether there is more to do */
