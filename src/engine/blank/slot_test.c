#include "engine/blank/slot.h"
#include "base/base.h"
#include "base/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct err e;
static char path[64];

static int open_slots(struct slots *s)
{
	snprintf(path, sizeof(path), "/tmp/cloche-slots-%d", (int)getppid());
	return slots_open(s, path, &e);
}

TEST(one_holder_never_gets_the_same_twice)
{
	static uint8_t seen[SLOT_COUNT];
	struct slots s;
	uint32_t slot;

	CHECK_EQ(open_slots(&s), 0);
	for (unsigned i = 0; i < 2000; i++) {
		CHECK_EQ(slots_take(&s, &slot, &e), 0);
		CHECK(slot < SLOT_COUNT);
		CHECK_EQ(seen[slot]++, 0);
	}
	slots_give(&s, slot, -1);
	s.next = slot;
	CHECK_EQ(slots_take(&s, &slot, &e), 0);
	CHECK_EQ(slot, s.next - 1);
	slots_done(&s);
	unlink(path);
}

/* A child that takes @n slots from @first on, writes their numbers, and holds them until it is ended. */
static pid_t holder(uint32_t first, unsigned n, int *ret_fd)
{
	int p[2];
	pid_t pid;

	if (pipe(p) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		struct slots s;
		uint32_t slot;

		if (slots_open(&s, path, &e) < 0)
			_exit(1);
		s.next = first;
		for (unsigned i = 0; i < n; i++)
			if (slots_take(&s, &slot, &e) < 0 || write(p[1], &slot, sizeof(slot)) != sizeof(slot))
				_exit(1);
		pause();
		_exit(0);
	}
	close(p[1]);
	*ret_fd = p[0];
	return pid;
}

static void end(pid_t pid, int fd)
{
	int status;

	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(fd);
}

TEST(two_processes_never_share_a_slot_and_a_killed_one_frees_its_own)
{
	static uint8_t seen[SLOT_COUNT];
	const unsigned n = 200;
	struct slots s;
	uint32_t slot;
	pid_t pid[2];
	int fd[2];

	CHECK_EQ(open_slots(&s), 0);
	/* Both start at the same slot. */
	pid[0] = holder(100, n, &fd[0]);
	pid[1] = holder(100, n, &fd[1]);
	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < n; i++) {
			CHECK_EQ(read(fd[k], &slot, sizeof(slot)), sizeof(slot));
			CHECK_EQ(seen[slot]++, 0);
		}
	/* Neither do we, however often we ask. */
	s.next = 100;
	CHECK_EQ(slots_take(&s, &slot, &e), 0);
	CHECK_EQ(seen[slot]++, 0);
	CHECK(slot >= 100 + 2 * n);
	end(pid[0], fd[0]);
	end(pid[1], fd[1]);
	s.next = 100;
	CHECK_EQ(slots_take(&s, &slot, &e), 0);
	CHECK_EQ(slot, 100);
	slots_done(&s);
	unlink(path);
}

TEST(the_last_slot_is_followed_by_the_first)
{
	struct slots s;
	uint32_t slot;

	CHECK_EQ(open_slots(&s), 0);
	s.next = SLOT_COUNT - 1;
	CHECK_EQ(slots_take(&s, &slot, &e), 0);
	CHECK_EQ(slot, SLOT_COUNT - 1);
	CHECK_EQ(slots_take(&s, &slot, &e), 0);
	CHECK_EQ(slot, 0);
	slots_done(&s);
	unlink(path);
}

TEST(all_taken_is_an_error_with_a_remedy)
{
	struct slots s;
	uint32_t slot;

	CHECK_EQ(open_slots(&s), 0);
	memset(s.mine, 0xff, SLOT_COUNT / 8);
	CHECK_EQ(slots_take(&s, &slot, &e), -EAGAIN);
	CHECK_EQ(e.kind, ERR_EXHAUSTED);
	CHECK(e.remedy[0]);
	slots_done(&s);
	unlink(path);
}

TEST(ids_of_slots_do_not_overlap_and_fit)
{
	CHECK_EQ(slot_uid(0), SLOT_UID_BASE);
	CHECK_EQ(slot_uid(1) - slot_uid(0), SLOT_UIDS);
	CHECK((uint64_t)SLOT_UID_BASE + (uint64_t)SLOT_COUNT * SLOT_UIDS < UINT32_MAX);
}

TEST(a_link_in_the_place_of_the_file_is_not_followed)
{
	struct slots s;

	snprintf(path, sizeof(path), "/tmp/cloche-slots-link-%d", (int)getpid());
	CHECK_EQ(symlink("/tmp/cloche-nowhere", path), 0);
	CHECK_EQ(slots_open(&s, path, &e), -ELOOP);
	unlink(path);
}

TEST(a_slot_taken_by_itself_is_taken_until_its_last_copy_is_closed)
{
	struct slots s, other;
	uint32_t slot, next;
	int fd, copy;

	CHECK_EQ(open_slots(&s), 0);
	s.next = 7;
	CHECK_EQ(slots_take_own(&s, &slot, &fd, &e), 0);
	CHECK_EQ(slot, 7);
	CHECK((copy = dup(fd)) >= 0);
	/* Its warden dies: another warden, and a sweep, find it taken. */
	close(fd);
	slots_done(&s);
	CHECK_EQ(open_slots(&other), 0);
	CHECK_EQ(slots_claim(&other, 7), -EAGAIN);
	other.next = 7;
	CHECK_EQ(slots_take_own(&other, &next, &fd, &e), 0);
	CHECK_EQ(next, 8);
	slots_give(&other, next, fd);
	/* A warden adopts it without the lock, once. */
	CHECK_EQ(slots_adopt(&other, 7), 0);
	CHECK_EQ(slots_adopt(&other, 7), -EAGAIN);
	slots_give(&other, 7, copy);
	CHECK_EQ(slots_claim(&other, 7), 0);
	CHECK_EQ(slots_claim(&other, 8), 0);
	slots_done(&other);
	unlink(path);
}
