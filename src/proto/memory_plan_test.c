#include "proto/memory_plan.h"
#include "base/base.h"
#include "base/test.h"

static struct mem_plan plan[8];
static struct err e;

#define P(id, up, group, session)                                                                                      \
	{                                                                                                              \
		.pid = (id), .parent = (up), .pgid = (group), .sid = (session)                                         \
	}

static int make(const struct mem_proc *p, uint32_t n)
{
	memset(&e, 0, sizeof(e));
	return mem_plan(p, n, NULL, 0, plan, &e);
}

TEST(children_of_a_session_are_started_by_their_parents)
{
	const struct mem_proc p[] = { P(2, MEM_NONE, 2, 2), P(3, 0, 2, 2), P(4, 1, 4, 4), P(5, 2, 4, 4) };

	CHECK_EQ(make(p, 4), 0);
	CHECK_EQ(plan[0].creator, MEM_NONE);
	CHECK(plan[1].creator == 0 && plan[2].creator == 1 && plan[3].creator == 2);
	for (unsigned i = 0; i < 4; i++)
		CHECK(!plan[i].early && !plan[i].temp);
}

TEST(a_leader_starts_children_of_its_old_session_first_through_any_depth)
{
	/* 4 leads, its child 5 leads, and 5's child 6 is still in the first session: 5 and 6 were there before 4 and 5 led. */
	const struct mem_proc p[] = { P(2, MEM_NONE, 2, 2), P(4, 0, 4, 4), P(5, 1, 5, 5), P(6, 2, 2, 2) };

	CHECK_EQ(make(p, 4), 0);
	CHECK(!plan[1].early && plan[2].early && plan[3].early);
}

TEST(an_orphan_is_started_through_its_sessions_leader)
{
	/* So is a leader whose child is in an older session. */
	const struct mem_proc p[] = { P(300, MEM_NONE, 300, 300), P(7, MEM_NONE, 300, 300), P(8, MEM_NONE, 8, 8),
				      P(9, 2, 300, 300) };

	CHECK_EQ(make(p, 4), 0);
	CHECK(plan[1].creator == 0 && plan[1].temp > 300);
	CHECK(plan[2].creator == 0 && plan[2].temp > 300 && plan[2].temp != plan[1].temp);
	CHECK(plan[3].creator == 2 && plan[3].early);
}

TEST(what_no_order_of_starts_can_make_is_refused)
{
	/* Adopted from another session. */
	const struct mem_proc adopted[] = { P(2, MEM_NONE, 2, 2), P(3, MEM_NONE, 3, 3), P(4, 0, 2, 2), P(5, 2, 3, 3) };
	const struct mem_proc two[] = { P(2, MEM_NONE, 2, 2), P(3, MEM_NONE, 3, 3), P(4, 0, 4, 4), P(5, 2, 2, 2),
					P(6, 2, 3, 3) };
	const struct mem_proc left[] = { P(2, MEM_NONE, 2, 2), P(3, 0, 2, 2), P(4, 0, 3, 2) };
	const struct mem_proc other[] = { P(2, MEM_NONE, 2, 2), P(3, MEM_NONE, 3, 3), P(4, 0, 3, 2) };

	CHECK_EQ(make(adopted, 4), -EOPNOTSUPP);
	CHECK_CONTAINS(e.msg, "process 5 (ended): is in a session that its parent was never in");
	CHECK_EQ(make(two, 5), -EOPNOTSUPP);
	CHECK_CONTAINS(e.msg, "is in another session than the children");
	CHECK_EQ(make(left, 3), -EOPNOTSUPP);
	CHECK_CONTAINS(e.msg, "that its first process has left");
	CHECK_EQ(make(other, 3), -EOPNOTSUPP);
	CHECK_CONTAINS(e.msg, "process group of another session");
}

TEST(a_table_is_shared_with_the_process_that_starts_it)
{
	struct mem_proc p[] = { P(2, MEM_NONE, 2, 2), P(3, 0, 2, 2), P(4, 1, 2, 2), P(5, 0, 2, 2) };

	p[1].files = p[2].files = p[2].folders = 2;
	p[1].folders = 2;
	CHECK_EQ(make(p, 4), 0);
	CHECK(!plan[0].files && plan[1].files && plan[2].files && plan[1].folders && plan[2].folders && !plan[3].files);
	/* Its parent has another one. */
	p[1].files = 0;
	CHECK_EQ(make(p, 4), -EOPNOTSUPP);
	CHECK_CONTAINS(e.msg,
		       "process 4 (ended): shares its descriptors (CLONE_FILES) with a process that is not its parent");
	p[2].files = p[1].folders = 0;
	CHECK_EQ(make(p, 4), -EOPNOTSUPP);
	CHECK_CONTAINS(e.msg, "shares its folders (CLONE_FS)");
}
