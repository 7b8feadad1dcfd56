/*
 * A hidden container with the files of a machine: the changes are applied in it, by cloche-tar and a file worker, as a
 * fork's changes are. So the warden compares machines as it compares containers, and never reads their disks.
 */
#pragma once
#include "service/checkpoint/compare.h"

struct vm_mirror;

/* Once, later. @m is NULL when it failed, else the callee's. */
typedef void vm_mirror_fn(void *arg, struct vm_mirror *m, const struct err *e);
/* @of: a sandbox or a checkpoint that is a machine. */
int vm_mirror_make(struct service *s, const struct state *of, vm_mirror_fn *fn, void *arg, struct err *e);
struct sandbox *vm_mirror_sandbox(const struct vm_mirror *m); /* NULL: it is gone */
void vm_mirror_free(struct vm_mirror *m);
