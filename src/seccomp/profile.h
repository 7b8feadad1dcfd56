/*
 * Compiles a system call profile, in the form of the OCI runtime specification or in Docker's and Podman's, to a BPF
 * program for this machine. The program is installed on top of the engine's own filter, so it can only take away: the
 * kernel runs both and the more severe verdict counts. (When both answer with an errno, the profile's is the one
 * returned.)
 *
 * Strict, because a profile that is misread is a weaker sandbox than asked for: unknown and duplicate keys, unknown
 * actions, operators and architectures are errors. Unknown names of system calls are not: profiles list calls of every
 * kernel and architecture, and what neither libseccomp nor this file knows, the engine's filter does not allow.
 *
 * Conditions (includes, excludes) are judged for a process without capabilities, for this architecture and the running
 * kernel.
 */
#pragma once
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define PROFILE_JSON_MAX (1024UL * 1024)
#define PROFILE_DEPTH_MAX 16
#define PROFILE_RULES_MAX 4096 /* one per name and alternative comparison */
#define PROFILE_INSNS_MAX 4096 /* the kernel's limit */
#define PROFILE_PROGRAM_MAX (PROFILE_INSNS_MAX * 8UL)

/*
 * Appends the program, an array of struct sock_filter, to @ret. On error @ret is unchanged and @e says which part of
 * the profile is wrong. -EINVAL: a bad profile; -EFBIG: too large, too deep or too many rules; -E2BIG: the program
 * does not fit the kernel or @ret.
 */
int profile_compile(const char *json, size_t len, struct buf *ret, struct err *e);
