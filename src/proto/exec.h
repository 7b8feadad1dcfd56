/* One command in a sandbox, as the host sees it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/link.h"

/* arguments and environment together, as Linux counts and bounds them by default */
#define EXEC_BYTES_MAX (2U * 1024U * 1024U)
#define EXEC_ONE_MAX (128U * 1024U) /* one of them, its end included: Linux takes no longer one */
#define EXEC_ARGS_MAX 4096U
#define EXEC_ENV_MAX 4000U

struct exec_arg { /* a string that may come from a wire: its length is known, NULs in it are not trusted */
	const char *data;
	size_t len;
};

struct exec_spec {
	const char *const *argv, *const *envp;
	uint32_t argc, envc;
	const char *cwd;
	const char *user; /* by name (proto/account.h), instead of ->uid and ->gid; or NULL */
	uint32_t uid, gid;
	bool tty;
	bool code; /* ->argv is not for an execve, which limits each of them */
	uint32_t rows, cols;
	uint64_t nofile, cpu_ms; /* 0 = no limit */
	int filter; /* a seccomp program to add, or -1 */
};

/* Counts and sizes, and no NUL inside: one clear line each. For arguments that come with a length. */
int exec_check_arg(const struct exec_arg *a, struct err *e);
int exec_check(const struct exec_spec *x, struct err *e);
/* As Linux counts them: strings and pointers. More than their frame takes. */
size_t exec_bytes(const struct exec_spec *x);
/*
 * Sends it; @stdio are the child's ends (ignored for a terminal) and stay the caller's. EXITED or FAILED follows,
 * with a terminal STARTED before.
 */
int exec_send(struct link *l, uint32_t id, const struct exec_spec *x, const int stdio[3], struct err *e);
