/*
 * What differs between architectures: registers, and code that makes a process call the kernel and then continue as
 * before.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/dump.h"

#define CODE_MAX 4096
#define CODE_CALL 160U /* a call's, at most */

/* Code being written, for one place in a process. */
struct code {
	uint8_t byte[CODE_MAX];
	size_t n, max; /* what fits there */
	uint64_t at; /* its address */
	bool full;
};

struct call {
	long nr;
	uint64_t arg[6];
	uint8_t in_page; /* bit i: arg[i] is an offset in the page that the code makes for results */
};

/* ---- vdso.c: where code is put ---- */
int vdso_self(struct dump *d, struct err *e);
int vdso_find(const struct dump *d, struct proc *p, struct err *e);
int vdso_settle(struct proc *p, struct thread *t, struct err *e);
int vdso_write(const struct proc *p, uint64_t at, const void *data, size_t n); /* behind it; whole words */
int vdso_room(const struct proc *p, struct code *c, struct err *e);

/* NULL, or why a thread with such registers cannot be carried. */
const char *arch_check(const uint64_t *regs);
uint64_t arch_ip(const uint64_t *regs);
uint64_t arch_sp(const uint64_t *regs);
void arch_set_ip(uint64_t *regs, uint64_t ip);
long arch_result(const uint64_t *regs); /* of a system call */
/* Whether a system call was interrupted here, and is to be made again. */
bool arch_restarts(const uint64_t *regs);
/* Makes a call again that ends with EINTR when the thread is stopped, and never begins anew by itself: semop, sigtimedwait, open. */
void arch_again(uint64_t *regs);
/*
 * Sets @regs as the thread continues if the kernel does not know that a call was interrupted. @handles_signals:
 * proc_handles_signals()
 */
void arch_restart(uint64_t *regs, bool handles_signals);
/* As the agent's kernel has to find them: it decides whether the call begins anew or, when a signal is handled first, ends. */
void arch_restart_later(uint64_t *regs, bool handles_signals);
/* Ready to run @ip, outside of any system call. */
void arch_enter(uint64_t *regs, uint64_t ip);
/* ->tls, ->fp, ->extra of a stopped thread. */
int arch_state(struct dump *d, struct thread *t, struct err *e);

/*
 * Builds code that maps a page for results, makes the calls, unmaps the page, sets the signal mask and all registers to
 * @mask and @regs, and continues there. The code does not need cloche-dump to live on.
 */
void code_begin(struct code *c);
void code_call(struct code *c, const struct call *call);
/* Ends the process in which the last call returned 0: a fork that has lost its tracer. */
void code_end_child(struct code *c);
void code_end(struct code *c, const uint64_t *regs, uint64_t mask, const struct thread *t);
/* What code_end needs, at most: calls are put in as long as there is more room than that and for one more. */
#ifdef __aarch64__
#define CODE_FRAME 1408U
#else
#define CODE_FRAME 320U
#endif
