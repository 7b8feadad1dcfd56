/* Sorted lists of ids: the processes of a sandbox, and their threads. */
#pragma once
#include <stddef.h>

/* All zero: an empty list. */
struct kernel_ids {
	int *id;
	size_t n, max;
};

void kernel_ids_done(struct kernel_ids *x);
/* Sorts, and removes duplicates. */
void kernel_ids_sort(struct kernel_ids *x);
/* The threads of a process, sorted. Its first one may have ended before the others. */
void kernel_tasks_of(int pid, struct kernel_ids *ret);
/*
 * The processes in a group's folder and, on version 2, in those below it, down to @depth. @text: a buffer for reading.
 */
void kernel_processes_of(int base, const char *name, unsigned depth, char *text, size_t size, struct kernel_ids *ret);
