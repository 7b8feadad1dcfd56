/* `cloche doctor --attack`: runs cloche-probe in real sandboxes, as the default user and as root, and judges. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Exit status: 0 when nothing is open, 1 when something is, 125 when the probes could not be run. */
int attack_run(bool json, bool bombs);

/* A finished `cloche` command of ours. */
struct attack_result {
	struct buf out, err; /* what it printed, each up to its maximum */
	uint64_t out_bytes, err_bytes; /* all that came */
	int status; /* exit status, 128 + signal when it was killed */
	uint64_t ms;
};
#define ATTACK_RESULT_INIT                                                                                             \
	{                                                                                                              \
		.out = BUF_INIT(512 * KIB), .err = BUF_INIT(16 * KIB)                                                  \
	}
void attack_result_done(struct attack_result *r);
static inline void attack_result_donep(struct attack_result *r)
{
	attack_result_done(r);
}

/* Runs this very program with @args (argv[0] is added), ends it after @seconds. Returns 0 or -errno. */
int attack_self(const char *const *args, unsigned seconds, struct attack_result *ret, struct err *e);
