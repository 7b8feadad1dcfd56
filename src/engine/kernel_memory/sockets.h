/* Memory of the sockets of a sandbox, as a kind of kernel memory. */
#pragma once
#include "engine/kernel_memory/look.h"

int kernel_sockets_bytes(struct kernel_look *l, uint64_t *ret);
/* Connections that their process has closed and that are still open (linux/socket_memory.h). */
int kernel_sockets_orphans(struct kernel_look *l, uint64_t *ret);
