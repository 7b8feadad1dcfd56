/*
 * What a probe is: one claim about the sandbox, and a function that tries to break it. Each runs in a forked child of
 * its own with an alarm, so that a probe that is killed, hangs or wrecks its own process says so and spoils nothing.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NA only when the thing attacked does not exist here at all; what merely was not tried has no business being NA. */
enum verdict { PROBE_CLOSED, PROBE_OPEN, PROBE_NA, PROBE_INFO };
#define PROBE_VERDICTS 4

#define PROBE_FD_MAX 64

struct probe_opts {
	const char *canary, *canary_text; /* a file that exists only on the host, and what it says */
	const char *read_only; /* a path that was mounted read-only */
	const char *abstract; /* name of an abstract unix socket that listens on the host */
	unsigned port; /* a TCP port that listens on the host's loopback */
	unsigned bound_mib; /* how far the memory and disk bombs go */
	unsigned bound_pids; /* how far the fork bomb goes */
	int fds[PROBE_FD_MAX]; /* descriptors above 2 that we were born with */
	unsigned nfds;
};

struct probe_run {
	const struct probe_opts *o;
	char detail[400];
	size_t len;
};

#define PROBE_BOMB 1U /* only with --bombs or by name; SIGKILL by a limit counts as closed */
#define PROBE_SEGV_NA 2U /* SIGSEGV means that this kernel lacks the feature */

struct probe {
	const char *id;
	const char *name; /* the claim */
	const char *anchor; /* what went wrong elsewhere without it */
	enum verdict (*fn)(struct probe_run *p);
	unsigned seconds; /* 0: 5 */
	unsigned flags;
};

struct probe_set {
	const struct probe *probes;
	size_t n;
};

extern const struct probe_set probes_kernel, probes_net, probes_fs, probes_proc, probes_limits;

/* Adds to the detail; what does not fit is cut. */
void probe_say(struct probe_run *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A system call by number, past every wrapper. Returns its result or a negative errno. */
long probe_call(long nr, ...);
/* Turned away before any code that could be attacked ran: EPERM, EACCES, ENOSYS, EROFS, unknown family. */
bool probe_refused(long r);
/* Notes @what when @r shows that the call got through; returns whether it did. */
bool probe_reached(struct probe_run *p, const char *what, long r);
/* OPEN, or CLOSED with @closed as its detail. */
enum verdict probe_end(struct probe_run *p, bool open, const char *closed);
/* One number out of a "Key:\tvalue" file such as /proc/self/status; -1 when it is not there. */
long long probe_field(const char *path, const char *key, int base);
/* True when this pid namespace is the machine's own: then nothing may be aimed at pid 1. */
bool probe_in_host_pidns(void);
