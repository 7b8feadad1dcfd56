#include "linux/seccomp.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/seccomp.h>

#include "tools/seccomp_filter.h"

static_assert(ARRAY_LEN(seccomp_program) <= SECCOMP_PROFILE_MAX, "the filter is too long for the kernel");
static_assert(SECCOMP_COOKIE_LO < ARRAY_LEN(seccomp_program) && SECCOMP_COOKIE_HI < ARRAY_LEN(seccomp_program),
	      "the cookie lies outside the filter");

/* A memset the compiler must not drop, though nobody reads the result. */
static void wipe(void *p, size_t n)
{
	memset(p, 0, n);
	__asm__ volatile("" : : "r"(p) : "memory");
}

static int install(struct sock_filter *prog, size_t len)
{
	struct sock_fprog f = { .len = (unsigned short)len, .filter = prog };

	return sys_seccomp(SECCOMP_SET_MODE_FILTER, 0, &f);
}

int seccomp_install(uint64_t cookie)
{
	struct sock_filter prog[ARRAY_LEN(seccomp_program)];
	int r;

	if (!cookie)
		return -EINVAL;
	memcpy(prog, seccomp_program, sizeof(prog));
	prog[SECCOMP_COOKIE_LO].k = (uint32_t)cookie;
	prog[SECCOMP_COOKIE_HI].k = (uint32_t)(cookie >> 32);
	r = install(prog, ARRAY_LEN(prog));
	/* The kernel has its own copy; ours would lie on the stack for a later bug to find. */
	wipe(prog, sizeof(prog));
	return r < 0 ? r : 0;
}

int seccomp_install_extra(const struct sock_filter *prog, size_t len)
{
	int r;

	if (!len || len > SECCOMP_PROFILE_MAX)
		return -EINVAL;
	r = install((struct sock_filter *)(uintptr_t)prog, len); /* only read */
	return r < 0 ? r : 0;
}

size_t seccomp_program_len(void)
{
	return ARRAY_LEN(seccomp_program);
}
