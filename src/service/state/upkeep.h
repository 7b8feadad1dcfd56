/*
 * What must happen now and then, done by workers so that the loop never waits for a disk: once a second the audit log
 * reaches the disk (when it has grown), and the state's log is moved into its file (past DB_LOG_MAX). Rows that were kept
 * beside the state are settled, and answers kept for Idempotency-Key are forgotten after a day.
 */
#pragma once
#include "audit/audit.h"
#include "base/err.h"
#include "service/state/turn.h"

#define UPKEEP_MS 1000
#define UPKEEP_ANSWERS_NS (24ULL * 3600 * 1000000000)

struct db;
struct uv_loop_s;
struct upkeep;

/* Does not keep the loop alive. A sync that fails ends the process, as a failed write does. */
int upkeep_new(struct uv_loop_s *loop, struct db *d, const char *db_path, struct audit *a, struct turn *t,
	       struct upkeep **ret, struct err *e);
/*
 * Before turn_free and db_close. The loop must run once more; a worker that is still at it has descriptors of its own.
 */
void upkeep_free(struct upkeep *u);
