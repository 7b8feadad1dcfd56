/* The parts of `cloche-bench --scale`. scale.c tells what is measured. */
#pragma once
#include "bench.h"

/* ---- scale_where.c: what threads do, as /proc tells it ---- */
#define SCALE_THREADS 48
#define SCALE_PLACES 24

/* CPU time of the threads of some processes, by the process's and the thread's name. */
struct scale_thread {
	char name[40];
	uint64_t sum_ns, most_ns; /* of all threads of that name, and of the one that had most */
	unsigned count;
};
struct scale_cpu {
	struct scale_thread by[SCALE_THREADS];
	size_t n;
};
/* What each thread had so far, to be subtracted later. Opaque. */
struct scale_mark;
struct scale_mark *scale_mark_new(void);
/* What the threads of cloche's processes had since @from, which is freed. */
void scale_since(struct scale_mark *from, struct scale_cpu *ret);
/* CPU time of the whole machine so far, the kernel's own threads and interrupts included. */
uint64_t scale_machine_ns(void);

/* Samples of threads that wait in the kernel without being interruptible, cloche's and the kernel's own. */
struct scale_where {
	struct {
		char place[200];
		unsigned count;
	} by[SCALE_PLACES * 8];
	size_t n;
	unsigned looks;
};
/* Looks every @every_ms until *@stop. For a thread of its own. */
void scale_watch(struct scale_where *w, const volatile bool *stop, unsigned every_ms);
void scale_where_print(struct scale_where *w, const char *what);
