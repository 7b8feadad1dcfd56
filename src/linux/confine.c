/* Gives up capabilities, user, and all system calls that are not in a list. */
#include "linux/confine.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "linux/seccomp.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/resource.h>

#ifdef __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#else
#define ARCH AUDIT_ARCH_X86_64
#endif
#define MOST 512 /* instructions */
#define LOAD(what) ((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (what)))
#define ARG(n) ((uint32_t)(offsetof(struct seccomp_data, args) + (n) * sizeof(uint64_t)))
#define EQUAL(value, yes, no) ((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no)))
#define RETURN(what) ((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (what)))

static int only(const struct confine *c)
{
	const uint32_t other = c->refuse ? SECCOMP_RET_ERRNO | (uint32_t)c->refuse : SECCOMP_RET_KILL_PROCESS;
	struct sock_filter code[MOST];
	size_t n = 0;

	if (2 * c->ncalls + 8 * c->nchecked + 5 > MOST)
		return -E2BIG;
	code[n++] = LOAD(offsetof(struct seccomp_data, arch));
	code[n++] = EQUAL(ARCH, 1, 0);
	code[n++] = RETURN(SECCOMP_RET_KILL_PROCESS);
	code[n++] = LOAD(offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < c->ncalls; i++) {
		code[n++] = EQUAL((uint32_t)c->calls[i], 0, 1);
		code[n++] = RETURN(SECCOMP_RET_ALLOW);
	}
	for (size_t i = 0; i < c->nchecked; i++) {
		const struct confine_call *x = &c->checked[i];
		const bool more = x->zero != CONFINE_ANY;

		code[n++] = EQUAL((uint32_t)x->nr, 0, more ? 7 : 5);
		code[n++] = LOAD(ARG(x->arg));
		code[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, x->mask);
		code[n++] = EQUAL(x->value, 0, more ? 3 : 1);
		if (more) {
			code[n++] = LOAD(ARG(x->zero));
			code[n++] = EQUAL(0, 0, 1);
		}
		code[n++] = RETURN(SECCOMP_RET_ALLOW);
		code[n++] = LOAD(offsetof(struct seccomp_data, nr)); /* another entry may allow it */
	}
	code[n++] = RETURN(other);
	return seccomp_install_extra(code, n);
}

int confine_self(const struct confine *c)
{
	const struct rlimit memory = { c->memory, c->memory };
	int r = caps_drop_bounding(c->keep);

	/* The warden may not; with no_new_privs nothing that is run could gain by it. */
	if (r == 0 || r == -EPERM)
		r = sys_setgroups(0, NULL);
	if (r == 0)
		r = sys_prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
	if (r == 0)
		r = sys_setresgid(c->user, c->user, c->user);
	if (r == 0)
		r = sys_setresuid(c->user, c->user, c->user);
	if (r == 0)
		r = sys_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (r == 0)
		r = caps_set(c->keep, 0);
	if (r == 0)
		r = sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (r == 0)
		r = sys_prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	/* Another user has no death signal until it asks again. */
	if (r == 0)
		r = sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (r == 0 && c->memory && setrlimit(RLIMIT_AS, &memory) < 0)
		r = -errno;
	return r < 0 ? r : only(c);
}
