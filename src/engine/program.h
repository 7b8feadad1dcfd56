/* Where our other programs are. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/*
 * The path of a file (its access(2) @mode) beside this program, or in ../libexec/cloche from there, else in the libexec folder
 * that was configured.
 */
bool program_file(const char *name, int mode, char *buf, size_t size);
/* That of one of our other programs. */
int program_path(const char *name, char *buf, size_t size, struct err *e);
/* What root keeps for all: "/var/cache/cloche" and @below, or elsewhere if CLOCHE_CACHE says so. */
int program_cache(const char *below, char *buf, size_t size, struct err *e);
