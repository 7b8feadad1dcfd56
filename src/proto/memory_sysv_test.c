#include "proto/memory_sysv.h"
#include "base/base.h"
#include "base/test.h"
#include "proto/frame.h"

static struct {
	struct mem_sysv s;
	union {
		struct {
			struct mem_sem sem[2];
			struct mem_undo undo[1];
		};
		struct {
			struct mem_sysv_message m;
			char bytes[8];
			struct mem_sysv_message last;
		};
	};
} x;

#define SEMS (sizeof(x.s) + sizeof(x.sem) + sizeof(x.undo))
#define QUEUE (sizeof(x.s) + 2 * sizeof(x.m) + 8)

static void semaphores(void)
{
	x.s = (struct mem_sysv){
		.kind = MEM_SYSV_SEM, .id = 32769, .mode = 0640, .flags = MEM_SYSV_USED, .n = 2, .undos = 1
	};
	x.sem[0] = (struct mem_sem){ 32767, 7 };
	x.sem[1] = (struct mem_sem){ 0, 0 };
	x.undo[0] = (struct mem_undo){ .pid = 7, .num = 1, .add = -3 };
}

static void queue(void)
{
	x.s = (struct mem_sysv){ .kind = MEM_SYSV_MSG, .key = 5, .mode = 0777, .n = 2, .qbytes = 16384 };
	x.m = (struct mem_sysv_message){ .type = 3, .len = 5 };
	x.last = (struct mem_sysv_message){ .type = 1 };
}

static void memory(void)
{
	x.s = (struct mem_sysv){ .kind = MEM_SYSV_SHM, .flags = MEM_SYSV_REMOVED | MEM_SYSV_LOCKED };
}

TEST(objects_that_are_right_pass)
{
	semaphores();
	CHECK(mem_sysv_ok(&x, SEMS, 0));
	queue();
	CHECK(mem_sysv_ok(&x, QUEUE, 0));
	memory();
	CHECK(mem_sysv_ok(&x, sizeof(x.s), 1));
}

#define WRONG(make, change, len, size)                                                                                 \
	do {                                                                                                           \
		make();                                                                                                \
		change;                                                                                                \
		CHECK(!mem_sysv_ok(&x, len, size));                                                                    \
	} while (0)

TEST(what_is_wrong_of_any_is_refused)
{
	WRONG(memory, x.s.kind = MEM_SYSV_KINDS, sizeof(x.s), 1);
	WRONG(memory, x.s.id = 1U << 31, sizeof(x.s), 1);
	WRONG(memory, x.s.mode = 01000, sizeof(x.s), 1);
	WRONG(memory, x.s.cuid = AGENT_UID, sizeof(x.s), 1);
	WRONG(memory, x.s.gid = UINT32_MAX, sizeof(x.s), 1);
	WRONG(memory, x.s.key = 1, sizeof(x.s), 1); /* one that was removed has none */
	WRONG(memory, (void)0, sizeof(x.s), 0);
	WRONG(memory, (void)0, sizeof(x.s), MEM_SYSV_SIZE_MAX + 1);
	WRONG(memory, (void)0, sizeof(x.s) + 8, 1);
	WRONG(memory, (void)0, sizeof(x.s) - 1, 1);
	WRONG(semaphores, x.s.flags = MEM_SYSV_REMOVED, SEMS, 0);
}

TEST(what_is_wrong_of_semaphores_is_refused)
{
	WRONG(semaphores, x.sem[1].value = 32768, SEMS, 0);
	WRONG(semaphores, x.undo[0].num = 2, SEMS, 0);
	WRONG(semaphores, x.undo[0].add = 0, SEMS, 0);
	WRONG(semaphores, x.undo[0].add = 32768, SEMS, 0);
	WRONG(semaphores, x.s.n = 0, SEMS, 0);
	WRONG(semaphores, x.s.undos = UINT32_MAX, SEMS, 0);
	WRONG(semaphores, (void)0, SEMS - 8, 0);
	WRONG(semaphores, (void)0, SEMS, 4096);
}

TEST(what_is_wrong_of_messages_is_refused)
{
	WRONG(queue, x.m.type = 0, QUEUE, 0);
	WRONG(queue, x.m.len = 6000, QUEUE, 0);
	WRONG(queue, x.m.len = UINT32_MAX, QUEUE, 0);
	WRONG(queue, x.s.n = 3, QUEUE, 0);
	WRONG(queue, x.s.n = 1, QUEUE, 0);
	WRONG(queue, x.s.undos = 1, QUEUE, 0);
	WRONG(queue, x.last.zero = 1, QUEUE, 0);
}
