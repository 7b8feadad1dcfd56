/* Memory of the sockets of a sandbox, as a kind of kernel memory (warden/kernel_watch.h). */
#pragma once
#include "warden/kernel_watch.h"

int kernel_sockets_bytes(const struct kernel_look *l, uint64_t *ret);
