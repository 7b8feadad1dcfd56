/* Images that are based on others, and heaps that are too large to be copied while the sandbox is held. */
#include "base/base.h"
#include "base/test.h"
#include "memory/dump_test.h"

#define ID "0000abcdefghijklmnopqrst"
#define PAGES 56U

/* Waits for ->stop to change what is in the image by then. */
static void changes(struct dt_shared *s)
{
	/* With nothing beside it that it would be one with. */
	char *m = mmap(NULL, (PAGES + 2) * 4096UL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	m = mmap(m + 4096, PAGES * 4096UL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (m == MAP_FAILED)
		_exit(1);
	for (unsigned i = 0; i < PAGES; i++)
		memset(m + i * 4096UL, (int)('A' + i % 26), i == 50 ? 0 : 4096);
	s->value[0] = (uintptr_t)m;
	s->ready = 1;
	while (!s->stop)
		dt_sleep_ms(1);
	strncpy(m + 20 * 4096, "changed", 8);
	memset(m + 40 * 4096, 0, 4096);
	madvise(m + 45 * 4096, 4096, MADV_DONTNEED);
	memset(m + 50 * 4096, 'n', 4096);
	memset(m + 30 * 4096, 'A' + 30 % 26, 4096); /* written, not changed */
	s->ready = 2;
	for (;;)
		pause();
}

static const struct mem_vma *vma_at(const struct dt *t, uint64_t at)
{
	for (uint32_t i = 0; i < t->image.n[MEM_S_VMA]; i++)
		if (at >= t->image.vma[i].start && at < t->image.vma[i].end)
			return &t->image.vma[i];
	return NULL;
}

/* An image of it as it is, then it changes; its two files. */
static bool first_image(struct dt *t, int *ret_meta, int *ret_pages)
{
	if (!dt_start(t, changes) || !dt_reaches(&t->shared->ready, 1) || !dt_dump(t))
		return false;
	*ret_meta = openat(t->out, "meta", O_RDONLY);
	*ret_pages = openat(t->out, "pages", O_RDONLY);
	t->shared->stop = 1;
	return *ret_meta >= 0 && *ret_pages >= 0 && dt_reaches(&t->shared->ready, 2);
}

TEST(a_delta_has_only_what_changed)
{
	AUTO_CLOSE int meta = -1, pages = -1;
	const struct mem_vma *v;
	const struct mem_run *r;
	uint64_t own = 0, at;
	char arg[64], text[8];
	struct dt t;

	CHECK(first_image(&t, &meta, &pages));
	snprintf(arg, sizeof(arg), "base=%d " ID ":%d", meta, pages);
	CHECK(dt_dump_on(&t, arg));
	CHECK_EQ(t.image.head->page_files, 2);
	CHECK_STR(t.image.head->ancestor[1], ID);
	at = t.shared->value[0];
	v = vma_at(&t, at);
	CHECK(v);
	CHECK_EQ(v->kind, MEM_VMA_ANON);
	/* the ancestor's, the changed page, the ancestor's, a hole, the ancestor's, a hole, the ancestor's, a new page, ... */
	CHECK_EQ(v->run.n, 7);
	r = &t.image.run[v->run.first];
	CHECK_EQ(r[0].file, 1);
	CHECK_EQ(r[0].len, 20 * 4096);
	CHECK_EQ(r[1].file, 0);
	CHECK_EQ(r[1].len, 4096);
	CHECK_EQ(r[2].file, 1);
	CHECK_EQ(r[2].off, r[0].off + 21 * 4096);
	CHECK_EQ(r[2].len, 19 * 4096);
	CHECK_EQ(r[3].start, at + 41 * 4096);
	CHECK_EQ(r[3].len, 4 * 4096);
	CHECK_EQ(r[4].start, at + 46 * 4096);
	CHECK_EQ(r[5].start, at + 50 * 4096);
	CHECK_EQ(r[5].file, 0);
	CHECK_EQ(r[6].len, 5 * 4096);
	CHECK(dt_peek(&t, &t.image.proc[0], at + 20 * 4096, text, 8));
	CHECK_STR(text, "changed");
	for (uint32_t i = 0; i < t.image.n[MEM_S_RUN]; i++)
		own += t.image.run[i].len;
	CHECK_EQ(t.image.head->own, own);
	/* Nothing of what did not change is there twice. */
	CHECK(t.image.head->pages < 40 * 4096);
	dt_end(&t);
}

TEST(without_its_ancestors_everything_is_written_again)
{
	AUTO_CLOSE int meta = -1, pages = -1;
	const struct mem_proc *p;
	char text[9] = "";
	struct dt t;

	CHECK(first_image(&t, &meta, &pages));
	CHECK(dt_dump(&t));
	CHECK_EQ(t.image.head->page_files, 1);
	p = &t.image.proc[0];
	CHECK(dt_peek(&t, p, t.shared->value[0] + 18 * 4096, text, 8));
	CHECK_STR(text, "SSSSSSSS");
	CHECK(dt_peek(&t, p, t.shared->value[0] + 20 * 4096, text, 8));
	CHECK_STR(text, "changed");
	CHECK(dt_peek(&t, p, t.shared->value[0] + 45 * 4096, text, 8));
	CHECK_STR(text, "");
	dt_end(&t);
}

#define BIG_PAGES (96UL * 256)

static void has_much(struct dt_shared *s)
{
	uint64_t *m = mmap(NULL, BIG_PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *wiped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	madvise(wiped, 4096, MADV_WIPEONFORK);
	for (uint64_t i = 0; i < BIG_PAGES; i++)
		m[i * 512] = i + 1;
	wiped[3] = 77;
	s->value[0] = (uintptr_t)m;
	s->value[1] = (uintptr_t)wiped;
	s->ready = 1;
	/* Changes pages all the time: the image has them as they all were at one moment. */
	for (uint64_t round = 1; !s->stop; round++) {
		for (uint64_t i = 0; i < BIG_PAGES; i += 64)
			m[i * 512 + 1] = round;
		s->count++;
	}
}

static unsigned tasks(pid_t agent)
{
	char path[64], text[4096];
	unsigned n = 0;
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)agent, (int)agent);
	len = fd_get(AT_FDCWD, path, text, sizeof(text));
	for (ssize_t i = 0; i < len; i++)
		n += text[i] == ' ';
	return n;
}

TEST(a_large_heap_is_copied_behind_its_back)
{
	uint64_t value[2], last = 0, count;
	const struct mem_proc *p;
	unsigned changes = 0;
	struct dt t;

	CHECK(dt_start(&t, has_much));
	CHECK(dt_reaches(&t.shared->ready, 1));
	CHECK(dt_dump(&t));
	printf("# paused for %llu us\n", (unsigned long long)t.pause_ns / 1000);
	count = t.shared->count;
	CHECK(dt_reaches(&t.shared->count, count + 2));
	CHECK_EQ(t.image.n[MEM_S_PROC], 1);
	p = &t.image.proc[0];
	for (uint64_t i = 0; i < BIG_PAGES; i++) {
		CHECK(dt_peek(&t, p, t.shared->value[0] + i * 4096, value, sizeof(value)));
		CHECK_EQ(value[0], i + 1);
		if (i % 64)
			continue;
		changes += i && value[1] != last;
		last = value[1];
	}
	CHECK(changes <= 1); /* in the middle of one round, or between two */
	CHECK(dt_peek(&t, p, t.shared->value[1] + 24, value, 8));
	CHECK_EQ(value[0], 77);
	for (int i = 0; i < 200 && tasks(t.agent) > 1; i++)
		dt_sleep_ms(5);
	CHECK_EQ(tasks(t.agent), 1);
	dt_end(&t);
}

TEST(a_copy_does_not_outlive_who_made_it)
{
	struct dt t;

	CHECK(dt_start(&t, has_much));
	CHECK(dt_reaches(&t.shared->ready, 1));
	CHECK(dt_launch(&t, NULL));
	CHECK(dt_hears(&t, "seized"));
	CHECK(dt_hears(&t, "ready"));
	CHECK_EQ(tasks(t.agent), 2);
	kill(t.dump, SIGKILL);
	waitpid(t.dump, NULL, 0);
	t.dump = 0;
	for (int i = 0; i < 200 && tasks(t.agent) > 1; i++)
		dt_sleep_ms(5);
	CHECK_EQ(tasks(t.agent), 1);
	dt_end(&t);
}

TEST(killed_while_it_makes_a_copy_it_leaves_none_and_harms_nobody)
{
	unsigned seed = 7;
	struct dt t;

	CHECK(dt_start(&t, has_much));
	CHECK(dt_reaches(&t.shared->ready, 1));
	for (unsigned i = 0; i < 12; i++) {
		struct timespec ts = { 0, (long)rand_r(&seed) % 12000000 };
		uint64_t count;

		CHECK(dt_launch(&t, NULL));
		CHECK(dt_hears(&t, "seized"));
		nanosleep(&ts, NULL);
		kill(t.dump, SIGKILL);
		waitpid(t.dump, NULL, 0);
		t.dump = 0;
		count = t.shared->count;
		CHECK(dt_reaches(&t.shared->count, count + 2));
		for (int k = 0; k < 200 && tasks(t.agent) > 1; k++)
			dt_sleep_ms(5);
		CHECK_EQ(tasks(t.agent), 1);
	}
	dt_end(&t);
}
