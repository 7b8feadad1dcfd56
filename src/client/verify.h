#pragma once
#include <stdbool.h>

#include "audit/audit.h"
#include "base/err.h"

struct verify_result {
	bool ok;
	unsigned long long records, seq;
	char hash[65];
	char why[240]; /* when not ok */
};

/* Checks an audit log, without a daemon; @kept (may be NULL) must be in it. Negative only when the file cannot be read. */
int verify_log(const char *path, const struct audit_head *kept, struct verify_result *ret, struct err *e);
