/* Where our other programs are. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* A file (its access(2) @mode) beside this program, or in ../libexec/cloche from there. */
bool program_file(const char *name, int mode, char *buf, size_t size);
/* The path of one of our other programs: where program_file() looks, else in the libexec folder that was configured. */
int program_path(const char *name, char *buf, size_t size, struct err *e);
