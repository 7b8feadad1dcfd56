/* Memory of the whole machine that belongs to the kernel and that no memory group counts. One thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "linux/cgroup.h"

#define KERNEL_TEXT (64U << 10)

/* All zero before kernel_machine_init(). */
struct kernel_machine {
	const struct cgroup_host *cgroups;
	int vmstat; /* -1: not there */
	int64_t at_cpus; /* pages that are free at the processors, and */
	uint64_t at_cpus_ns, at_cpus_cost_ns; /* when they were counted, and how long that took */
	int64_t least_code; /* of what can be machine code of filters, so far */
	int64_t mark; /* the least of ->have since kernel_machine_mark() */
	int64_t have; /* the machine's uncounted memory */
	uint64_t have_ns; /* when it was read */
	int64_t least[2]; /* of that, in this span of SETTLE_NS and the one before */
	uint64_t span_ns; /* when this span began */
	char text[KERNEL_TEXT];
};

void kernel_machine_init(struct kernel_machine *m, const struct cgroup_host *c);
void kernel_machine_done(struct kernel_machine *m);
/* Brings ->have up to date. */
void kernel_machine_read(struct kernel_machine *m, uint64_t now);
/* How much more ->have is than the least of the last moments. */
int64_t kernel_machine_growth(struct kernel_machine *m, uint64_t now_ns);
/* Whether it is by so much more than it was at some time since kernel_machine_mark(). */
bool kernel_machine_grown(struct kernel_machine *m, int64_t bytes);
void kernel_machine_mark(struct kernel_machine *m);
/* What machine code of filters can be in: vmalloc, less the stacks of tasks. Only its changes mean something. */
int64_t kernel_machine_code(struct kernel_machine *m);

/* As fd_get. Calls of libc: those of base/sys.h are counted by tests, which do not expect them from another thread. */
ssize_t kernel_text_of(int dirfd, const char *path, char *buf, size_t size);
/* The number behind "@key " at the start of a line. 0 when there is none. */
int64_t kernel_text_field(const char *text, const char *key);
