/* One command in a sandbox, as the host sees it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "driver/driver.h"

#define EXEC_BYTES_MAX (256U * 1024U) /* arguments and environment together */
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
	uint32_t uid, gid;
	bool tty;
	uint32_t rows, cols;
	uint64_t nofile, cpu_ms; /* 0 = no limit */
	int filter; /* a seccomp program to add, or -1 */
};

/* Counts and sizes, and no NUL inside: one clear line each. For arguments that come with a length. */
int exec_check_arg(const struct exec_arg *a, struct err *e);
int exec_check(const struct exec_spec *x, struct err *e);
/*
 * Sends it; @stdio are the child's ends (ignored for a terminal) and stay the caller's. EXITED or FAILED follows,
 * with a terminal STARTED before.
 */
int exec_send(struct sandbox *s, uint32_t id, const struct exec_spec *x, const int stdio[3], struct err *e);
