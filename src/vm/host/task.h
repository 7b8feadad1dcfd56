/*
 * The protocol between the warden and cloche-vm-files: one struct, over a SOCK_SEQPACKET socket. The warden starts the
 * program for one task and sends DO with descriptors; PACE may come any number of times, and DONE is the last, with
 * descriptors of what was made. The warden shuts its side down when the task should be given up.
 */
#pragma once
#include "engine/sandbox/internal.h"
#include "vm/host/host.h"

enum vm_task_kind { VM_TASK_DO = 1, VM_TASK_PACE, VM_TASK_DONE };
#define VM_TASK_FDS                                                                                                    \
	(VM_FILE_OF_WORK + SPEC_LAYERS) /* those of struct vm_work; the folder of templates is not sent back */

struct vm_task_msg {
	uint64_t kind, task;
	uint64_t places, npages; /* bits of the places that have a descriptor; after these come those of pages */
	uint64_t step, bytes; /* with PACE */
	struct vm_given given;
	struct vm_made made;
};

/* Makes DO or DONE of @x. Returns the number of descriptors in @fds, which stay @x's. */
size_t vm_task_put(struct vm_work *x, enum vm_task_kind kind, struct vm_task_msg *ret, int fds[static VM_TASK_FDS]);
/* Reads a message into @x; takes over @fds. -EBADMSG: it is invalid, and @x is unchanged. */
int vm_task_take(struct vm_work *x, enum vm_task_kind kind, struct vm_task_msg *m, const int *fds, size_t nfds);

/* --- in cloche-vm-files --- */
void vm_task_run(struct vm_work *x);
