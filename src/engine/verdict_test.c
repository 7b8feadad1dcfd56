#include "engine/verdict.h"
#include "base/base.h"
#include "base/test.h"

#include <signal.h>

#define EXIT(n) ((n) << 8)
#define LIMITS                                                                                                         \
	.memory = 512 * MIB, .pids = 256, .disk = GIB, .inodes = 1000, .timeout_ms = 1000, .cpu_limit_ms = 500,        \
	.output_limit = MIB
#define FULL .disk_used = GIB
#define OOM .oom_kills = 1
#define PIDS .pids_refused = 3

/* clang-format off */
static const struct {
	const char *what;
	struct verdict_in in;
	enum verdict_cause cause;
	int exit_code, signal;
	uint64_t limit;
} cases[] = {
	{ "a clean end", { LIMITS }, VERDICT_EXITED, 0, 0, 0 },
	{ "an exit code", { LIMITS, .status = EXIT(3) }, VERDICT_EXITED, 3, 0, 0 },
	{ "a signal", { LIMITS, .status = SIGSEGV }, VERDICT_SIGNALED, 139, SIGSEGV, 0 },
	{ "a signal with a core", { LIMITS, .status = SIGABRT | 0x80 }, VERDICT_SIGNALED, 134, SIGABRT, 0 },
	{ "SIGKILL from inside", { LIMITS, .status = SIGKILL }, VERDICT_SIGNALED, 137, SIGKILL, 0 },
	{ "SIGSYS", { LIMITS, .status = SIGSYS }, VERDICT_SECCOMP, 159, SIGSYS, 0 },
	{ "SIGSYS on a full disk", { LIMITS, .status = SIGSYS, FULL }, VERDICT_SECCOMP, 159, SIGSYS, 0 },
	{ "the clock", { LIMITS, .status = SIGKILL, .timed_out = true }, VERDICT_TIMEOUT, 124, SIGKILL, 1000 },
	{ "the clock, though it caught the signal", { LIMITS, .timed_out = true }, VERDICT_TIMEOUT, 124, 0, 1000 },
	{ "CPU time", { LIMITS, .status = SIGKILL, .cpu_out = true }, VERDICT_CPU, 137, SIGKILL, 500 },
	{ "memory", { LIMITS, .status = SIGKILL, OOM }, VERDICT_OOM, 137, SIGKILL, 512 * MIB },
	{ "memory, told by an exit code", { LIMITS, .status = EXIT(1), OOM }, VERDICT_OOM, 1, 0, 512 * MIB },
	{ "a child out of memory, well survived", { LIMITS, OOM }, VERDICT_EXITED, 0, 0, 0 },
	{ "processes", { LIMITS, .status = EXIT(2), PIDS }, VERDICT_PIDS, 2, 0, 256 },
	{ "a refused fork, well survived", { LIMITS, PIDS }, VERDICT_EXITED, 0, 0, 0 },
	{ "bytes", { LIMITS, .status = EXIT(1), FULL }, VERDICT_DISK, 1, 0, GIB },
	{ "no room for a large write", { LIMITS, .status = EXIT(1), .disk_used = GIB - MIB, .disk_file = true }, VERDICT_DISK, 1, 0, GIB },
	{ "room in memory", { LIMITS, .status = EXIT(1), .disk_used = GIB - MIB }, VERDICT_EXITED, 1, 0, 0 },
	{ "room on a disk", { LIMITS, .status = EXIT(1), .disk_used = GIB - 3 * MIB, .disk_file = true }, VERDICT_EXITED, 1, 0, 0 },
	{ "inodes", { LIMITS, .status = EXIT(1), .inodes_used = 999 }, VERDICT_DISK, 1, 0, 1000 },
	{ "a full disk, well survived", { LIMITS, FULL }, VERDICT_EXITED, 0, 0, 0 },
	{ "output", { LIMITS, .truncated = true, .output = 2 * MIB }, VERDICT_OUTPUT, 0, 0, MIB },
	{ "output and an exit code", { LIMITS, .status = EXIT(4), .truncated = true }, VERDICT_OUTPUT, 4, 0, MIB },
	{ "output and a signal", { LIMITS, .status = SIGSEGV, .truncated = true }, VERDICT_SIGNALED, 139, SIGSEGV, 0 },
	{ "killed on request", { LIMITS, .status = SIGKILL, .killed = true }, VERDICT_KILLED, 137, SIGKILL, 0 },
	{ "lost", { LIMITS, .status = EXIT(9), .lost = true }, VERDICT_LOST, 125, 0, 0 },
	{ "lost to memory", { LIMITS, .lost = true, OOM }, VERDICT_OOM, 137, 0, 512 * MIB },
	/* What comes first when there are several. */
	{ "the clock before all", { LIMITS, .status = SIGKILL, .timed_out = true, .cpu_out = true, .killed = true, OOM, PIDS,
				    FULL, .lost = true }, VERDICT_TIMEOUT, 124, 0, 1000 },
	{ "CPU before being lost", { LIMITS, .cpu_out = true, .lost = true, .killed = true }, VERDICT_CPU, 137, 0, 500 },
	{ "lost before killed", { LIMITS, .lost = true, .killed = true }, VERDICT_LOST, 125, 0, 0 },
	{ "killed before memory", { LIMITS, .status = SIGKILL, .killed = true, OOM }, VERDICT_KILLED, 137, SIGKILL, 0 },
	{ "memory before processes", { LIMITS, .status = EXIT(1), OOM, PIDS, FULL }, VERDICT_OOM, 1, 0, 512 * MIB },
	{ "processes before disk", { LIMITS, .status = EXIT(1), PIDS, FULL }, VERDICT_PIDS, 1, 0, 256 },
	{ "disk before output", { LIMITS, .status = EXIT(1), FULL, .truncated = true }, VERDICT_DISK, 1, 0, GIB },
	/* Limits that were lifted are no cause. */
	{ "no disk limit", { .status = EXIT(1), .disk_used = GIB, .inodes_used = 9999 }, VERDICT_EXITED, 1, 0, 0 },
};
/* clang-format on */

TEST(each_end_has_its_cause)
{
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct verdict v;

		verdict_make(&cases[i].in, &v);
		if (v.cause != cases[i].cause)
			TEST_FAIL("%s: %s, not %s", cases[i].what, verdict_name(v.cause), verdict_name(cases[i].cause));
		if (v.exit_code != cases[i].exit_code || v.signal != cases[i].signal)
			TEST_FAIL("%s: exit code %d, signal %d", cases[i].what, v.exit_code, v.signal);
		if (v.limit != cases[i].limit || v.has_limit != (cases[i].limit != 0))
			TEST_FAIL("%s: limit %llu", cases[i].what, (unsigned long long)v.limit);
		if (!v.detail[0] || strlen(v.detail) >= sizeof(v.detail) - 1)
			TEST_FAIL("%s: detail '%s'", cases[i].what, v.detail);
	}
}

TEST(what_was_met_before_the_clock_and_a_small_disk_are_told)
{
	struct verdict v;

	verdict_make(&(struct verdict_in){ LIMITS, .timed_out = true, PIDS }, &v);
	CHECK(strstr(v.detail, "the pids limit was reached"));
	verdict_make(&(struct verdict_in){ LIMITS, .cpu_out = true, OOM }, &v);
	CHECK(strstr(v.detail, "killed by the memory limit"));
	verdict_make(&(struct verdict_in){ .status = EXIT(1), .disk = 64 * KIB, .disk_used = 64 * KIB }, &v);
	CHECK(strstr(v.detail, "disk of 64K"));
}

TEST(every_cause_is_in_the_table_and_has_a_name)
{
	static const char *const names[] = { "exited", "signaled", "timeout", "cpu",	"oom", "pids",
					     "disk",   "output",   "seccomp", "killed", "lost" };

	for (unsigned c = 0; c < ARRAY_LEN(names); c++) {
		bool seen = false;

		CHECK_STR(verdict_name((enum verdict_cause)c), names[c]);
		for (size_t i = 0; i < ARRAY_LEN(cases); i++)
			seen = seen || cases[i].cause == (enum verdict_cause)c;
		CHECK(seen);
	}
}

TEST(what_was_survived_is_still_told)
{
	struct verdict v;

	verdict_make(&(struct verdict_in){ .oom_kills = 1 }, &v);
	CHECK_CONTAINS(v.detail, "memory limit");
	verdict_make(&(struct verdict_in){ .pids_refused = 1 }, &v);
	CHECK_CONTAINS(v.detail, "pids limit");
	verdict_make(
		&(struct verdict_in){
			.status = SIGKILL, .oom_kills = 1, .memory = 100 * MIB, .memory_files = 60 * MIB },
		&v);
	CHECK_CONTAINS(v.detail, "60M are files");
}
