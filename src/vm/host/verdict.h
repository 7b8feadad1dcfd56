/*
 * Whether machines run with KVM on this host, once somebody has tried: a trial boot takes seconds where it fails. Remembered in
 * the cache for all wardens, for as long as this host has not booted anew and has the same QEMU and kernel for machines. What is
 * there and makes no sense, or is not ours, is not believed.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct vm_verdict {
	bool kvm;
	char why[160]; /* one line */
};

/* -ENOENT when there is none. */
int vm_verdict_load(struct vm_verdict *ret);
/* In one piece: who reads meanwhile sees the one before, or this. */
int vm_verdict_store(const struct vm_verdict *v, struct err *e);
/* Where it is: who removes that has it tried again. "" when there can be none. */
void vm_verdict_path(char *ret, size_t size);
