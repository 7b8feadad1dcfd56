/* The pages of a clone's memory that are its own: those it has written since it was cloned. PAGES is in vm/vmm/meta.h. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * Writes the pages into empty @out. Process @pid is stopped, and has @ram, of @ram_size bytes, mapped privately once.
 * *@ret: their number.
 */
int pages_write(pid_t pid, int ram, uint64_t ram_size, int out, uint64_t *ret, struct err *e);
