#include "vm/vmm/meta.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "vm/vmm/pages.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096U
#define PAGES 64U

static int memfd(size_t size)
{
	int fd = sys_memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		abort();
	return fd;
}

TEST(a_state_comes_back_as_it_went_and_any_changed_byte_is_noticed)
{
	AUTO_CLOSE int fd = memfd(0);
	struct vm_meta m = { .qemu = "7.2", .machine = "board", .memory_mib = 256, .carry_len = 5, .state_len = 6 },
		       got;
	AUTO_FREE uint8_t *rest = NULL;
	struct err e = { 0 };
	uint8_t byte;

	CHECK_EQ(meta_save(fd, &m, "carry", "state", &e), 0);
	CHECK_EQ(meta_load(fd, &got, &rest, &e), 0);
	CHECK(!memcmp(&m, &got, sizeof(m)));
	CHECK(!memcmp(rest, "carrystate", 11));
	for (off_t at = 0; at < (off_t)sizeof(m) + 11; at++) {
		uint8_t *none = NULL;

		CHECK_EQ(pread(fd, &byte, 1, at), 1);
		byte ^= 0x80;
		CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
		CHECK(meta_load(fd, &got, &none, &e) < 0 && !none);
		byte ^= 0x80;
		CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
	}
	CHECK_EQ(ftruncate(fd, (off_t)sizeof(m) + 10), 0);
	CHECK_EQ(meta_head(fd, &got, &e), 0);
	free(TAKE_PTR(rest));
	CHECK_EQ(meta_load(fd, &got, &rest, &e), -EBADMSG);
}

/* A process that has @ram mapped as a clone has it, writes some pages and waits. */
static pid_t clone_of(int ram)
{
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready) < 0)
		abort();
	pid = fork();
	if (pid == 0) {
		volatile char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, ram, 0);

		for (unsigned i = 0; i < PAGES; i++)
			byte = at[i * PAGE]; /* reading makes none of them its own */
		at[3 * PAGE] = 'a';
		at[4 * PAGE + 7] = 'b';
		at[PAGES * PAGE - 1] = 'c';
		if (write(ready[1], "", 1) == 1)
			pause();
		_exit(0);
	}
	if (pid < 0 || read(ready[0], &byte, 1) != 1)
		abort();
	close(ready[0]);
	close(ready[1]);
	return pid;
}

TEST(the_pages_that_a_clone_has_written_and_only_they_make_its_memory_of_the_first)
{
	AUTO_CLOSE int ram = memfd(PAGES * PAGE), copy = memfd(PAGES * PAGE), out = memfd(0);
	char want[PAGE] = { 0 }, got[PAGE];
	uint64_t n = 0;
	struct err e = { 0 };
	pid_t pid;

	memset(want, 'x', sizeof(want));
	for (unsigned i = 0; i < PAGES; i++) {
		CHECK_EQ(pwrite(ram, want, PAGE, i * PAGE), PAGE);
		CHECK_EQ(pwrite(copy, want, PAGE, i * PAGE), PAGE);
	}
	CHECK_EQ(fcntl(ram, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK), 0);
	pid = clone_of(ram);
	CHECK_EQ(pages_write(pid, ram, PAGES * PAGE, out, &n, &e), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK_EQ(n, 3);
	CHECK_EQ(lseek(out, 0, SEEK_END), sizeof(struct pages_head) + 2 * sizeof(struct pages_run) + 3 * PAGE);
	CHECK_EQ(pages_apply(out, copy, PAGES * PAGE, &e), 0);
	for (unsigned i = 0; i < PAGES; i++) {
		memset(want, 'x', sizeof(want));
		want[i == 3 ? 0 : i == 4 ? 7 : PAGE - 1] = i == 3 ? 'a' : i == 4 ? 'b' : i == PAGES - 1 ? 'c' : 'x';
		CHECK_EQ(pread(copy, got, PAGE, i * PAGE), PAGE);
		CHECK(!memcmp(want, got, PAGE));
	}
}

TEST(pages_outside_of_the_memory_out_of_order_or_missing_are_refused_before_any_is_written)
{
	static const struct pages_run bad[][2] = {
		{ { 0, 1 }, { 0, 1 } }, { { 5, 1 }, { 4, 1 } },		 { { 0, 1 }, { PAGES, 1 } },
		{ { 1, 0 }, { 2, 2 } }, { { 0, 1 }, { 1, UINT64_MAX } }, { { 0, 1 }, { PAGES - 1, 2 } },
	};
	static const char zero[PAGE];
	struct err e = { 0 };

	for (size_t i = 0; i <= ARRAY_LEN(bad); i++) {
		AUTO_CLOSE int fd = memfd(0), ram = memfd(PAGES * PAGE);
		struct pages_head h = { .magic = PAGES_MAGIC, .page = PAGE, .runs = 2, .pages = 2 };
		const struct pages_run *run =
			i < ARRAY_LEN(bad) ? bad[i] : (const struct pages_run[]){ { 1, 1 }, { 9, 1 } };
		char got[PAGE];

		CHECK_EQ(fd_write_all(fd, &h, sizeof(h)), 0);
		CHECK_EQ(fd_write_all(fd, run, 2 * sizeof(*run)), 0);
		CHECK_EQ(fd_write_all(fd, "data", 4), 0);
		CHECK_EQ(ftruncate(fd, (off_t)(sizeof(h) + 2 * sizeof(*run) + 2 * PAGE - (i == ARRAY_LEN(bad)))), 0);
		CHECK(pages_apply(fd, ram, PAGES * PAGE, &e) < 0);
		CHECK_EQ(pread(ram, got, PAGE, PAGE), PAGE);
		CHECK(!memcmp(got, zero, PAGE));
	}
}

/* Pages @start to @start + @count, each full of @letter. */
static int pages_of(uint64_t start, uint64_t count, char letter)
{
	const struct pages_head h = { .magic = PAGES_MAGIC, .page = PAGE, .runs = 1, .pages = count };
	const struct pages_run run = { start, count };
	char data[PAGE];
	int fd = memfd(0);

	memset(data, letter, sizeof(data));
	if (fd_write_all(fd, &h, sizeof(h)) < 0 || fd_write_all(fd, &run, sizeof(run)) < 0)
		abort();
	for (uint64_t i = 0; i < count; i++)
		if (fd_write_all(fd, data, sizeof(data)) < 0)
			abort();
	return fd;
}

TEST(pages_of_several_are_joined_to_what_they_make_one_after_the_other)
{
	AUTO_CLOSE int a = pages_of(2, 6, 'a'), b = pages_of(4, 2, 'b'), c = pages_of(7, 3, 'c'),
		       d = pages_of(0, 1, 'd');
	AUTO_CLOSE int out = memfd(0), one = memfd(PAGES * PAGE), all = memfd(PAGES * PAGE), broken = memfd(100);
	const int fds[] = { a, b, c, d };
	char want[PAGE], got[PAGE];
	struct pages_head h;
	struct err e = { 0 };

	CHECK_EQ(pages_join(fds, ARRAY_LEN(fds), PAGES * PAGE, out, &e), 0);
	CHECK_EQ(pread(out, &h, sizeof(h), 0), sizeof(h));
	CHECK(h.pages == 9 && h.runs == 2);
	CHECK_EQ(pages_apply(out, one, PAGES * PAGE, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		CHECK_EQ(pages_apply(fds[i], all, PAGES * PAGE, &e), 0);
	for (unsigned i = 0; i < PAGES; i++) {
		CHECK_EQ(pread(all, want, PAGE, i * PAGE), PAGE);
		CHECK_EQ(pread(one, got, PAGE, i * PAGE), PAGE);
		CHECK(!memcmp(want, got, PAGE));
	}
	CHECK(pages_join((const int[]){ a, broken }, 2, PAGES * PAGE, out, &e) < 0);
	CHECK(pages_join(fds, ARRAY_LEN(fds), 8 * PAGE, out, &e) < 0); /* of a larger machine */
}
