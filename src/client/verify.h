#pragma once
#include <stdbool.h>

#include "base/err.h"

struct verify_result {
	bool ok;
	unsigned long long records, seq;
	char hash[65];
	char why[240]; /* when not ok */
};

/* Checks an audit log, without a daemon. Negative only when the file can not be read. */
int verify_log(const char *path, struct verify_result *ret, struct err *e);
