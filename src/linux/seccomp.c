/* Builds and loads the system call filter. */
#include "linux/seccomp.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "tools/seccomp_filter.h"

static_assert(ARRAY_LEN(seccomp_program) <= SECCOMP_PROFILE_MAX, "the filter is too long for the kernel");
/* A memset that the compiler must not drop, though the result is never read. */
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
	for (size_t i = 0; i < ARRAY_LEN(seccomp_cookies); i++) {
		prog[seccomp_cookies[i].lo].k = (uint32_t)cookie;
		prog[seccomp_cookies[i].hi].k = (uint32_t)(cookie >> 32);
	}
	r = install(prog, ARRAY_LEN(prog));
	/* The kernel has its own copy; this one would stay on the stack, where a later bug could leak it. */
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

int seccomp_install_no_setid(void)
{
#define WORD(arg) (uint32_t)(offsetof(struct seccomp_data, args) + 8U * (arg))
#define REFUSE(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
/* The low half of the argument is all the kernel looks at: modes are 16 bits wide. */
#define MODE_IN(nr, arg)                                                                                               \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 4), BPF_STMT(BPF_LD | BPF_W | BPF_ABS, WORD(arg)),                \
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 06000, 0, 1), REFUSE(EPERM), ALLOW
	static const struct sock_filter prog[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef __NR_open
		MODE_IN(__NR_open, 2),
		MODE_IN(__NR_creat, 1),
		MODE_IN(__NR_chmod, 1),
		MODE_IN(__NR_mknod, 1),
#endif
		MODE_IN(__NR_openat, 3),
		MODE_IN(__NR_fchmod, 1),
		MODE_IN(__NR_fchmodat, 2),
		MODE_IN(452 /* fchmodat2 */, 2),
		MODE_IN(__NR_mknodat, 2),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat2, 0, 1),
		REFUSE(ENOSYS),
		ALLOW,
	};
#undef MODE_IN
#undef ALLOW
#undef REFUSE
#undef WORD
	return seccomp_install_extra(prog, ARRAY_LEN(prog));
}

int seccomp_install_warden(void)
{
	return seccomp_install_extra(seccomp_warden_program, ARRAY_LEN(seccomp_warden_program));
}

size_t seccomp_program_len(void)
{
	return ARRAY_LEN(seccomp_program);
}
