/* One process, and what can happen to cloche-dump while it looks at it. */
#include "base/base.h"
#include "base/test.h"
#include "memory/dump_test.h"

static char known[3 * 4096] = "a page that is not all zeros";

static void counts(struct dt_shared *s)
{
	char *heap = malloc(100000);

	memset(known + 4096, 'k', 4096);
	memset(heap, 'h', 100000);
	s->value[0] = (uintptr_t)known;
	s->value[1] = (uintptr_t)heap;
	s->ready = 1;
	while (!s->stop)
		s->count++;
}

TEST(a_process_that_counts_is_written_down_and_goes_on)
{
	const struct mem_proc *p;
	struct dt t;
	char page[4096];
	uint64_t count;

	CHECK(dt_start(&t, counts));
	CHECK(dt_reaches(&t.shared->ready, 1));
	CHECK(dt_dump(&t));
	printf("# paused for %llu us, %llu KiB of pages\n", (unsigned long long)t.pause_ns / 1000,
	       (unsigned long long)t.image.head->pages / 1024);
	count = t.shared->count;
	CHECK(dt_reaches(&t.shared->count, count + 100000));
	CHECK_EQ(t.image.n[MEM_S_PROC], 1);
	p = &t.image.proc[0];
	CHECK_EQ(p->pid, 2);
	CHECK_EQ(p->sid, 2);
	CHECK_EQ(p->thread.n, 1);
	CHECK(dt_peek(&t, p, t.shared->value[0], page, 64));
	CHECK_STR(page, "a page that is not all zeros");
	CHECK(dt_peek(&t, p, t.shared->value[0] + 4096, page, 64));
	CHECK_EQ(page[5], 'k');
	CHECK(dt_peek(&t, p, t.shared->value[1] + 50000, page, 64));
	CHECK_EQ(page[5], 'h');
	dt_end(&t);
}
