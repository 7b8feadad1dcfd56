/* One section, no data, no jump tables, no calls out of it: it has to run wherever it is copied to. */
#include "agent/restore/blob.h"
#include "base/base.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#if defined(__clang__)
#define PLAIN __attribute__((no_stack_protector, no_sanitize("all"), no_sanitize("coverage")))
#else
#define PLAIN __attribute__((no_stack_protector, no_sanitize("address", "undefined")))
#endif
#define BLOB __attribute__((section("cloche_blob"), noinline, used, visibility("hidden"))) PLAIN

#define INLINE static inline __attribute__((always_inline)) PLAIN

INLINE long call(long nr, const uint64_t *p)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = (long)p[3];
	register long r8 __asm__("r8") = (long)p[4];
	register long r9 __asm__("r9") = (long)p[5];
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "0"(nr), "D"(p[0]), "S"(p[1]), "d"(p[2]), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
#else
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = (long)p[0];
	register long x1 __asm__("x1") = (long)p[1];
	register long x2 __asm__("x2") = (long)p[2];
	register long x3 __asm__("x3") = (long)p[3];
	register long x4 __asm__("x4") = (long)p[4];
	register long x5 __asm__("x5") = (long)p[5];

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
	return x0;
#endif
}

INLINE long call3(long nr, uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t p[6];

	/* Not an initializer: that could become a call of memset. */
	p[0] = a;
	p[1] = b;
	p[2] = c;
	p[3] = p[4] = p[5] = 0;
	return call(nr, p);
}

/* clone3(args, size) with the cookie as sixth argument; the child has its own stack and continues with @list. */
INLINE long spawn(uint64_t args, uint64_t size, uint64_t list, uint64_t cookie)
{
#if defined(__x86_64__)
	register long r9 __asm__("r9") = (long)cookie;
	long r;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%rbx, %%rdi\n\t"
			 "call blob_run\n\t"
			 "1:"
			 : "=a"(r)
			 : "0"((long)SYS_clone3), "D"(args), "S"(size), "b"(list), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
#else
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)args;
	register long x1 __asm__("x1") = (long)size;
	register long x5 __asm__("x5") = (long)cookie;
	register long x19 __asm__("x19") = (long)list;

	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x0, x19\n\t"
			 "bl blob_run\n\t"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x5), "r"(x19)
			 : "memory", "cc", "x30");
	return x0;
#endif
}

/* The compiler's own may be calls of functions that are chosen at run time. */
#if defined(__x86_64__)
INLINE int claim(uint32_t *word)
{
	uint32_t none = 0;

	return __atomic_compare_exchange_n(word, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

INLINE void count(uint32_t *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
}
#else
INLINE int claim(uint32_t *word)
{
	uint32_t was, busy;

	do {
		__asm__ volatile("ldaxr %w0, [%1]" : "=&r"(was) : "r"(word) : "memory");
		if (was) {
			__asm__ volatile("clrex" ::: "memory");
			return 0;
		}
		__asm__ volatile("stlxr %w0, %w1, [%2]" : "=&r"(busy) : "r"(1), "r"(word) : "memory");
	} while (busy);
	return 1;
}

INLINE void count(uint32_t *word)
{
	uint32_t is, busy;

	__asm__ volatile("1: ldaxr %w0, [%2]\n\t"
			 "add %w0, %w0, #1\n\t"
			 "stlxr %w1, %w0, [%2]\n\t"
			 "cbnz %w1, 1b"
			 : "=&r"(is), "=&r"(busy)
			 : "r"(word)
			 : "memory");
}
#endif

INLINE void fail(const struct blob_list *l, const struct blob_op *o, uint32_t nth, long r)
{
	struct blob_shared *s = l->shared;

	if (claim(&s->failed)) {
		s->what = o->what;
		s->proc = l->proc;
		s->detail = nth;
		s->error = (int32_t)r;
		__atomic_store_n(&s->failed, 2, __ATOMIC_SEQ_CST);
		/* A waiter may sleep on either word, so both are woken. */
		call3(SYS_futex, (uint64_t)(uintptr_t)&s->ready, FUTEX_WAKE, 1);
		call3(SYS_futex, (uint64_t)(uintptr_t)&s->arrived, FUTEX_WAKE, 1);
	}
	for (;;)
		call3(SYS_exit_group, 127, 0, 0);
}

/* Few cases, on purpose: a table of jumps would be data. */
INLINE int wrong(const struct blob_op *o, long r)
{
	if (o->want <= BLOB_SIXTH)
		return (uint64_t)r != o->a[o->want];
	return o->want != BLOB_ANY && (uint64_t)r > (uint64_t)-4096L;
}

BLOB void blob_run(const struct blob_list *l)
{
	struct blob_shared *s = l->shared;

	for (uint64_t i = 0; i < l->n; i++) {
		const struct blob_op *o = &l->op[i];
		long r;

		if (o->want == BLOB_SAME)
			r = *(volatile uint32_t *)(uintptr_t)o->a[0] == o->a[1] ? 0 : -17; /* EEXIST */
		else if (o->want == BLOB_SPAWN)
			r = spawn(o->a[0], o->a[1], o->a[2], o->a[5]);
		else
			r = call(o->nr, o->a);
		if (wrong(o, r))
			fail(l, o, (uint32_t)i, r);
	}
	count(&s->ready);
	call3(SYS_futex, (uint64_t)(uintptr_t)&s->ready, FUTEX_WAKE, 1);
	for (;;)
		call3(SYS_futex, (uint64_t)(uintptr_t)&s->hold, FUTEX_WAIT, 0);
}
