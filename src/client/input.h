#pragma once
#include "base/buf.h"
#include "base/err.h"

/* All of a file or pipe into @b; -E2BIG past its maximum. @name is for errors. */
int input_read(int fd, const char *name, struct buf *b, struct err *e);
