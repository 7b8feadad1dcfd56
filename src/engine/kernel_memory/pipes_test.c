#include "engine/kernel_memory/pipes.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PIPES 6

struct filled {
	int fds;
	int end[PIPES][2];
};

/* Fills pipes with 16 bytes each, which may be one byte in each buffer: they count as full. */
static bool make(struct filled *f)
{
	f->fds = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < PIPES; i++)
		if (pipe2(f->end[i], O_CLOEXEC) < 0 || write(f->end[i][1], "sixteen bytes ..", 16) != 16)
			return false;
	return f->fds >= 0;
}

static void done(struct filled *f, struct kernel_pipes *p)
{
	for (int i = 0; i < PIPES; i++) {
		close(f->end[i][0]);
		close(f->end[i][1]);
	}
	close(f->fds);
	kernel_pipes_done(p);
}

static void note(struct kernel_pipes *p, const struct filled *f, int first, int n)
{
	char number[16], link[32];
	struct stat st;

	for (int i = first; i < first + n; i++)
		for (int end = 0; end < 2; end++) {
			snprintf(number, sizeof(number), "%d", f->end[i][end]);
			snprintf(link, sizeof(link), "pipe:[%llu]",
				 fstat(f->end[i][end], &st) < 0 ? 0ULL : (unsigned long long)st.st_ino);
			kernel_pipes_add(p, f->fds, getpid(), getpid(), number, link);
		}
}

/* Repeats the call until the thread has finished, 60 s at most. */
static bool take(struct kernel_pipes *p)
{
	for (int i = 0; i < 12000; i++) {
		const bool was = p->asked, whole = kernel_pipes_take(p);

		if (whole || (was && !p->asked))
			return whole;
		kernel_pipes_ask(p);
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	return false;
}

TEST(the_pipes_of_all_parts_of_a_walk_count_together)
{
	struct kernel_pipes p = { 0 };
	struct filled f;

	CHECK(make(&f));
	for (int turn = 0; turn < 2; turn++) {
		kernel_pipes_begin(&p, 0);
		note(&p, &f, 0, 1);
		kernel_pipes_end(&p, true);
		CHECK(!take(&p));
		CHECK_EQ(p.bytes, (turn ? PIPES : 1) * KERNEL_PIPES_FULL);
		kernel_pipes_end(&p, true); /* a part without pipes */
		kernel_pipes_ask(&p);
		CHECK(!p.asked);
		note(&p, &f, 0, 3); /* the first of these was counted before */
		kernel_pipes_end(&p, true);
		CHECK(!take(&p));
		CHECK_EQ(p.bytes, (turn ? PIPES : 3) * KERNEL_PIPES_FULL);
		note(&p, &f, 3, 3);
		kernel_pipes_end(&p, false);
		CHECK(take(&p));
		CHECK_EQ(p.bytes, PIPES * KERNEL_PIPES_FULL);
	}
	/* A complete walk that finds less. */
	kernel_pipes_begin(&p, 0);
	note(&p, &f, 0, 2);
	kernel_pipes_end(&p, true);
	CHECK(!take(&p));
	CHECK_EQ(p.bytes, PIPES * KERNEL_PIPES_FULL);
	kernel_pipes_end(&p, false);
	CHECK(take(&p));
	CHECK_EQ(p.bytes, 2 * KERNEL_PIPES_FULL);
	done(&f, &p);
}

TEST(a_part_that_ends_while_the_last_one_is_asked_about_is_not_lost)
{
	struct kernel_pipes p = { 0 };
	struct filled f;

	CHECK(make(&f));
	kernel_pipes_begin(&p, 0);
	note(&p, &f, 0, 2);
	kernel_pipes_end(&p, true);
	kernel_pipes_ask(&p);
	note(&p, &f, 2, 2);
	kernel_pipes_end(&p, true); /* the first result was not taken yet */
	kernel_pipes_ask(&p);
	note(&p, &f, 4, 2);
	kernel_pipes_end(&p, false);
	CHECK(!take(&p));
	CHECK(take(&p));
	CHECK_EQ(p.bytes, PIPES * KERNEL_PIPES_FULL);
	CHECK(!p.asked && !p.next);
	done(&f, &p);
}

TEST(a_walk_that_begins_while_the_last_one_is_asked_about_does_not_take_from_it)
{
	struct kernel_pipes p = { 0 };
	struct filled f;

	CHECK(make(&f));
	kernel_pipes_begin(&p, 0);
	note(&p, &f, 0, 2);
	kernel_pipes_end(&p, true);
	CHECK(!take(&p));
	note(&p, &f, 2, 4);
	kernel_pipes_end(&p, false);
	kernel_pipes_ask(&p);
	kernel_pipes_begin(&p, 7);
	note(&p, &f, 0, 1);
	kernel_pipes_end(&p, true);
	CHECK(take(&p));
	CHECK_EQ(p.have, 0);
	CHECK_EQ(p.bytes, PIPES * KERNEL_PIPES_FULL);
	done(&f, &p);
}
