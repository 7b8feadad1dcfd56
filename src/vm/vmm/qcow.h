/* An empty disk on top of another: qcow2, version 3, without a name for what is below it (that is QEMU's argument). */
#pragma once
#include <stdint.h>

#define QCOW_SIZE_MAX (1ULL << 42)

/* Makes empty @fd a disk of @size bytes, a multiple of 512. 0 or -errno. */
int qcow_format(int fd, uint64_t size);
