/* What a memory image depends on and does not contain: this kernel, its vdso, this CPU. */
#include "proto/memory.h"
#include "base/base.h"
#include "base/sha256.h"

#include <elf.h>
#include <sys/auxv.h>
#include <sys/utsname.h>

/*
 * Programs choose their code by what cpuid says, and libraries remember the choice. Not what differs from core to core
 * (the core's own number).
 */
#ifdef __x86_64__
static void cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4])
{
	__asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "0"(leaf), "2"(sub));
}

static void add_cpu(struct sha256 *s)
{
	uint32_t one[4], r[4], lo = 0, hi = 0;

	cpuid(1, 0, one);
	one[1] = 0;
	sha256_add(s, one, sizeof(one));
	cpuid(7, 0, r);
	sha256_add(s, r, sizeof(r));
	cpuid(0x80000001U, 0, r);
	sha256_add(s, r, sizeof(r));
	if (!(one[2] & (1U << 27))) /* OSXSAVE: without it xgetbv is no instruction */
		return;
	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	sha256_add(s, &lo, sizeof(lo));
	sha256_add(s, &hi, sizeof(hi));
}
#else
static void add_cpu(struct sha256 *s)
{
	(void)s; /* the hwcaps are all of it */
}
#endif

int mem_host(uint8_t out[32], struct err *e)
{
	const Elf64_Ehdr *vdso = (const Elf64_Ehdr *)(uintptr_t)getauxval(AT_SYSINFO_EHDR);
	uint64_t caps[2] = { getauxval(AT_HWCAP), getauxval(AT_HWCAP2) };
	struct sha256 s;
	struct utsname u;

	if (uname(&u) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "uname");
	if (!vdso || memcmp(vdso->e_ident, ELFMAG, SELFMAG) != 0)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "this kernel provides no vdso");
	sha256_init(&s);
	sha256_add(&s, u.release, strlen(u.release) + 1);
	sha256_add(&s, u.version, strlen(u.version) + 1);
	/* Its section table is the last thing in it. */
	sha256_add(&s, vdso, vdso->e_shoff + (uint64_t)vdso->e_shnum * vdso->e_shentsize);
	sha256_add(&s, caps, sizeof(caps));
	add_cpu(&s);
	sha256_end(&s, out);
	return 0;
}
