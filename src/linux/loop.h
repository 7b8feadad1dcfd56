/* Loop devices: files as block devices. */
#pragma once
#include <stddef.h>

#include "base/err.h"

/* A device that frees itself when it is no longer used: its descriptor, and its @path. */
int loop_attach(int file, char *path, size_t size, struct err *e);
