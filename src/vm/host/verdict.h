/*
 * Whether machines run with KVM on this host, as found by a trial: a trial boot takes seconds where it fails. The
 * result is kept in the cache for all wardens, until this host boots again or gets another QEMU or kernel for machines.
 * Files that are invalid, or that other users can write, are ignored.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct vm_verdict {
	bool kvm;
	char why[160]; /* one line */
};

struct vm_verdict_place {
	char folder[400];
	char name[64]; /* "kvm-BOOT-KEY" */
	int fd; /* the folder, the caller's */
};
/* @cache: the folder for machines in the cache, open; -1: it is opened. */
int vm_verdict_place(int cache, struct vm_verdict_place *ret, struct err *e);

/* -ENOENT when there is none. */
int vm_verdict_load(int cache, struct vm_verdict *ret);
/* Written atomically: readers see the old or the new one. */
int vm_verdict_store(int cache, const struct vm_verdict *v, struct err *e);
/* Its path: removing that file causes a new trial. "" when there can be none. */
void vm_verdict_path(char *ret, size_t size);
