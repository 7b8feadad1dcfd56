/*
 * Limits for the internet sockets of network namespaces that the kernel enforces: BPF programs, attached once to the
 * control group (version 2, also beside version 1) above all sandboxes. They identify a namespace by its cookie, and
 * ignore namespaces that were not entered into their map.
 *
 * A namespace that was entered has at most so many sockets made by socket() at a time; more are refused (EPERM). SO_RCVBUF
 * and SO_SNDBUF are cut to SOCKET_BPF_BUFFER. The FORCE ones are not: every process inside gets EPERM for them anyway.
 * Connections that a listener accepts are not counted: see linux/net_limits.h for their bounds. Nor are sockets above the 262,144
 * that all namespaces together can have counted.
 */
#pragma once
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "linux/cgroup.h"

/* what setsockopt() gives at most; the kernel doubles it, which is what sockets have anyway */
#define SOCKET_BPF_BUFFER 106496U

struct socket_bpf;

/* ERR_UNSUPPORTED where this kernel, or what it lets us do, has no such programs. All of it ends with the process. */
int socket_bpf_new(const struct cgroup_host *h, struct socket_bpf **ret, struct err *e);
void socket_bpf_free(struct socket_bpf *b);
DEFINE_AUTO(struct socket_bpf, socket_bpf_free)

/* One sandbox in one namespace, which others may be in before and after it. entry 0: none. */
struct socket_bpf_entry {
	uint64_t cookie, entry;
};

/* Enters the calling thread's network namespace with that many sockets, and replaces the entry that was there. 0 or -errno. One thread. */
int socket_bpf_enter(struct socket_bpf *b, uint64_t sockets, struct socket_bpf_entry *ret);
void socket_bpf_leave(struct socket_bpf *b, const struct socket_bpf_entry *x);
