/* Memory of the sockets of a sandbox, as a kind of kernel memory (engine/kernel_memory/watch.h). */
#pragma once
#include "engine/kernel_memory/watch.h"
#include "linux/socket_bpf.h"

/* Bounds the number and the buffers of its sockets: 23 to 34 µs. 0 or -errno. */
int kernel_sockets_bound(const struct kernel_look *l, struct socket_bpf *b, uint64_t most, struct socket_bpf_entry *ret);
int kernel_sockets_bytes(const struct kernel_look *l, uint64_t *ret);
/* Connections that their process has closed and that are not over (linux/socket_memory.h). */
int kernel_sockets_orphans(const struct kernel_look *l, uint64_t *ret);
