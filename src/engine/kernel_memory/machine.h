/* Kernel memory of the whole machine that no memory group counts. One thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "linux/cgroup.h"

#define KERNEL_TEXT (64U << 10)

/* All zero before kernel_machine_init(). */
struct kernel_machine {
	const struct cgroup_host *cgroups;
	int vmstat; /* -1: not available */
	int64_t at_cpus; /* free pages in the processors' lists, and */
	uint64_t at_cpus_ns, at_cpus_cost_ns; /* when they were counted, and the duration of that */
	int64_t least_code; /* least value so far of what may be machine code of filters */
	int64_t mark; /* the least of ->have since kernel_machine_mark() */
	int64_t have; /* the machine's uncounted memory */
	uint64_t have_ns; /* when ->have was read */
	int64_t least[2]; /* least values of ->have, in this span of SETTLE_NS and in the last one */
	uint64_t span_ns; /* start of this span */
	char text[KERNEL_TEXT];
};

void kernel_machine_init(struct kernel_machine *m, const struct cgroup_host *c);
void kernel_machine_done(struct kernel_machine *m);
/* Brings ->have up to date. */
void kernel_machine_read(struct kernel_machine *m, uint64_t now);
/* How far ->have is above the least value of the last moments. */
int64_t kernel_machine_growth(struct kernel_machine *m, uint64_t now_ns);
/* Whether ->have is that much above any value since kernel_machine_mark(). */
bool kernel_machine_grown(struct kernel_machine *m, int64_t bytes);
void kernel_machine_mark(struct kernel_machine *m);
/* An upper bound of the machine code of filters: vmalloc without the stacks of tasks. Only changes are meaningful. */
int64_t kernel_machine_code(struct kernel_machine *m);

/* As fd_get. Calls of libc: tests count those of base/sys.h, and do not expect them from another thread. */
ssize_t kernel_text_of(int dirfd, const char *path, char *buf, size_t size);
/* The number after "@key " at the start of a line. 0 when there is none. */
int64_t kernel_text_field(const char *text, const char *key);
