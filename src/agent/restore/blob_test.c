/* The code that has to run anywhere: copied, with all other memory gone. */
#include "agent/restore/blob.h"
#include "base/base.h"
#include "base/test.h"

#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define AREA 0x300000000000ULL
#define CODE 16384U
#define LEN 65536U
#ifdef __aarch64__
#define TASK_END (1ULL << 48)
#define AREA_AT (AREA >> 3)
#else
#define TASK_END 0x7ffffffff000ULL
#define AREA_AT AREA
#endif

struct place {
	struct blob_shared shared;
	struct blob_list list, thread_list;
	struct clone_args clone;
	uint32_t number, zero;
	struct blob_op op[32], thread_op[4];
	_Alignas(16) uint8_t stack[8192], thread_stack[8192];
};

static struct blob_shared *outside;

static _Noreturn void jump(uint64_t code, uint64_t stack, uint64_t list)
{
#if defined(__x86_64__)
	__asm__ volatile("mov %0, %%rsp\n\tmov %2, %%rdi\n\tcall *%1"
			 :
			 : "r"(stack), "r"(code), "r"(list)
			 : "memory", "rdi");
#else
	__asm__ volatile("mov sp, %0\n\tmov x0, %2\n\tblr %1"
			 :
			 : "r"(stack), "r"(code), "r"(list)
			 : "memory", "x0", "x30");
#endif
	__builtin_unreachable();
}

/* In a child: runs @fill's list in a place of its own. What the list does not end, waits. */
static int run(void (*fill)(struct place *p))
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		uint8_t *at = mmap((void *)(uintptr_t)AREA_AT, LEN, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		struct place *p = (struct place *)(void *)(at + CODE);

		if ((uintptr_t)at != AREA_AT || sizeof(*p) > LEN - CODE ||
		    __stop_cloche_blob - __start_cloche_blob > (ptrdiff_t)CODE)
			_exit(100);
		memcpy(at, __start_cloche_blob, (size_t)(__stop_cloche_blob - __start_cloche_blob));
		__builtin___clear_cache((char *)at, (char *)at + CODE);
		if (mprotect(at, CODE, PROT_READ | PROT_EXEC) < 0)
			_exit(101);
		p->list = (struct blob_list){ outside ? outside : &p->shared, p->op, 0, 3, 0 };
		p->op[p->list.n++] = (struct blob_op){ SYS_munmap, BLOB_OK, 1, { 0, AREA_AT } };
		/* The area that is shared with the test is above, and stays mapped. */
		p->op[p->list.n++] =
			(struct blob_op){ SYS_munmap,
					  BLOB_OK,
					  1,
					  { AREA_AT + LEN,
					    (outside ? (uint64_t)(uintptr_t)outside : TASK_END) - AREA_AT - LEN } };
		fill(p);
		jump(AREA_AT + (uint64_t)((uintptr_t)blob_run - (uintptr_t)__start_cloche_blob),
		     (uint64_t)(uintptr_t)(p->stack + sizeof(p->stack)), (uint64_t)(uintptr_t)&p->list);
	}
	waitpid(pid, &status, 0);
	return status;
}

static void add(struct place *p, struct blob_op o)
{
	p->op[p->list.n++] = o;
}

static void all_kinds(struct place *p)
{
	p->number = 77;
	add(p, (struct blob_op){ SYS_mmap,
				 BLOB_FIRST,
				 2,
				 { AREA_AT - 65536, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				   (uint64_t)-1, 0 } });
	add(p,
	    (struct blob_op){ SYS_mremap,
			      BLOB_FIFTH,
			      2,
			      { AREA_AT - 65536, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, AREA_AT - 2 * 65536, 0 } });
	add(p, (struct blob_op){ 0, BLOB_SAME, 2, { (uint64_t)(uintptr_t)&p->number, 77 } });
	add(p, (struct blob_op){ SYS_close, BLOB_ANY, 2, { 100000 } });
	add(p, (struct blob_op){ SYS_getpid, BLOB_OK, 2, { 0 } });
	add(p, (struct blob_op){ SYS_exit_group, BLOB_OK, 2, { 42 } });
}

TEST(a_list_runs_where_nothing_else_is_left)
{
	outside = NULL;
	CHECK_EQ(run(all_kinds), 42 << 8);
}

static void fails(struct place *p)
{
	add(p, (struct blob_op){ SYS_close, BLOB_OK, 9, { 100000 } });
	add(p, (struct blob_op){ SYS_exit_group, BLOB_OK, 2, { 42 } });
}

static void with_thread(struct place *p)
{
	p->thread_list = (struct blob_list){ outside, p->thread_op, 1, 3, 0 };
	p->thread_op[0] = (struct blob_op){ SYS_exit_group, BLOB_OK, 4, { 43 } };
	p->clone = (struct clone_args){ .flags = 0x00010f00 /* VM FS FILES SIGHAND THREAD */,
					.stack = (uint64_t)(uintptr_t)p->thread_stack,
					.stack_size = sizeof(p->thread_stack) };
	add(p, (struct blob_op){
		       SYS_clone3,
		       BLOB_SPAWN,
		       2,
		       { (uint64_t)(uintptr_t)&p->clone, sizeof(p->clone), (uint64_t)(uintptr_t)&p->thread_list } });
}

/* High up, so that one unmapping leaves it. */
static bool make_outside(void)
{
	outside = mmap((void *)(uintptr_t)(TASK_END - (1ULL << 40)), 4096, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	return outside != MAP_FAILED;
}

TEST(what_fails_is_told_and_ends_it)
{
	CHECK(make_outside());
	CHECK_EQ(run(fails), 127 << 8);
	CHECK_EQ(outside->failed, 2);
	CHECK_EQ(outside->what, 9);
	CHECK_EQ(outside->proc, 3);
	CHECK_EQ(outside->detail, 2);
	CHECK_EQ(outside->error, -EBADF);
	munmap(outside, 4096);
}

TEST(a_thread_has_its_own_list)
{
	CHECK(make_outside());
	CHECK_EQ(run(with_thread), 43 << 8);
	CHECK_EQ(outside->failed, 0);
	munmap(outside, 4096);
}
