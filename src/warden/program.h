/* Where our other programs are. */
#pragma once
#include <stddef.h>

#include "base/err.h"

/* The path of one of our other programs: beside this one, else in the libexec folder. */
int program_path(const char *name, char *buf, size_t size, struct err *e);
