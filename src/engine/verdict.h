/* Why an exec ended. Pure: everything it looks at is in the input. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define VERDICT_CAUSES(X)                                                                                              \
	X(EXITED, "exited")                                                                                            \
	X(SIGNALED, "signaled")                                                                                        \
	X(TIMEOUT, "timeout")                                                                                          \
	X(CPU, "cpu")                                                                                                  \
	X(OOM, "oom")                                                                                                  \
	X(PIDS, "pids")                                                                                                \
	X(DISK, "disk")                                                                                                \
	X(OUTPUT, "output")                                                                                            \
	X(SECCOMP, "seccomp")                                                                                          \
	X(KILLED, "killed")                                                                                            \
	X(LOST, "lost")

enum verdict_cause {
#define X(cause, name) VERDICT_##cause,
	VERDICT_CAUSES(X)
#undef X
};
const char *verdict_name(enum verdict_cause c);

struct verdict_in {
	int status; /* as wait4 tells it; meaningless when lost */
	bool lost, timed_out, cpu_out, killed;
	uint64_t oom_kills, pids_refused; /* during the exec */
	const char *oom_kind; /* what was full: "memory", or a kind of kernel memory; NULL = "memory" */
	uint64_t memory, memory_peak, memory_files;
	uint64_t pids, pids_peak;
	uint64_t disk, disk_used, inodes, inodes_used;
	bool disk_file; /* it is a filesystem in a file, not in memory */
	uint64_t timeout_ms, wall_ms;
	uint64_t cpu_limit_ms, cpu_ms;
	uint64_t output_limit, output;
	bool truncated;
};

struct verdict {
	enum verdict_cause cause;
	char detail[200];
	char oom_kind[16]; /* of VERDICT_OOM, else "" */
	uint64_t oom_kills; /* processes that the memory limit killed meanwhile, whatever the cause */
	char warning[160]; /* of these, where the cause is another; "" = nothing to warn of */
	bool has_limit;
	uint64_t limit, peak; /* in the cause's unit: bytes, ms, processes, inodes */
	int exit_code; /* what `cloche run` exits with */
	int signal; /* 0 = none */
};

void verdict_make(const struct verdict_in *in, struct verdict *ret);
