#include "base/base.h"
#include "base/test.h"
#include "service/sandbox/request.h"

#include <sys/mman.h>

/* What is behind @len bytes cannot be read. */
static void *short_memory(size_t len)
{
	const size_t room = (len + 4095) / 4096 * 4096;
	char *p = mmap(NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p + room, 4096, PROT_NONE) < 0)
		abort();
	return p + room - len;
}

TEST(specs_without_a_tail_are_compared_without_it)
{
	struct sandbox_spec *a = short_memory(offsetof(struct sandbox_spec, mount));
	struct sandbox_spec *b = short_memory(offsetof(struct sandbox_spec, mount));

	CHECK(request_tmpfs_same(a, b));
	a->ntmpfs = 1;
	CHECK(!request_tmpfs_same(a, b) && !request_tmpfs_same(b, a));
}

TEST(each_tmpfs_is_compared)
{
	struct sandbox_spec *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));

	if (!a || !b)
		abort();
	a->ntmpfs = b->ntmpfs = 2;
	a->tmpfs[1].size = b->tmpfs[1].size = 1;
	CHECK(request_tmpfs_same(a, b));
	b->tmpfs[1].size = 2;
	CHECK(!request_tmpfs_same(a, b));
	free(a);
	free(b);
}
