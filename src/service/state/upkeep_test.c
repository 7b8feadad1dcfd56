#include "service/state/upkeep.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"
#include "store/db.h"

#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

static char folder[64], log_path[96], db_path[96], wal_path[112];

static void idle(uv_timer_t *t)
{
	uv_close((uv_handle_t *)t, NULL);
}

static void run_for(uv_loop_t *loop, unsigned ms)
{
	uv_timer_t t;

	uv_timer_init(loop, &t);
	uv_timer_start(&t, idle, ms, 0);
	uv_run(loop, UV_RUN_DEFAULT);
}

TEST(logs_are_moved_and_old_answers_forgotten_while_the_loop_runs)
{
	struct tenant_row row = { .id = "default", .number = 1 };
	struct idem_row old = { .tenant = "default", .key = "old", .created_ns = 1 }, got,
			young = { .tenant = "default", .key = "young", .created_ns = clock_real_ns() };
	static char answer[4000];
	struct upkeep *u = NULL;
	struct audit *a = NULL;
	struct turn *t = NULL;
	struct db *d = NULL;
	struct err e = { 0 };
	uint64_t before;
	uv_loop_t loop;

	snprintf(folder, sizeof(folder), "/tmp/cloche-upkeep-XXXXXX");
	CHECK(mkdtemp(folder));
	snprintf(log_path, sizeof(log_path), "%s/audit.log", folder);
	snprintf(db_path, sizeof(db_path), "%s/state.db", folder);
	snprintf(wal_path, sizeof(wal_path), "%s-wal", db_path);
	memset(answer, 'x', sizeof(answer) - 1);
	CHECK_EQ(uv_loop_init(&loop), 0);
	CHECK_EQ(db_open(db_path, &d, &e), 0);
	CHECK_EQ(audit_open(log_path, &a, &e), 0);
	CHECK_EQ(turn_new(&loop, d, a, &t, &e), 0);
	CHECK_EQ(upkeep_new(&loop, d, db_path, a, t, &u, &e), 0);
	CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0); /* it does not keep the loop alive */
	CHECK_EQ(tenants_put(d, &row, &e), 0);
	CHECK_EQ(idem_put(d, &old, &e), 0);
	young.answer = answer;
	for (unsigned i = 0; i < 10000 && db_log_bytes(d) <= DB_LOG_MAX; i++) {
		CHECK_EQ(idem_put(d, &young, &e), 0);
		CHECK_EQ(db_commit(d, &e), 0);
	}
	before = db_log_bytes(d);
	CHECK(before > DB_LOG_MAX);
	audit_begin(a, &(struct audit_rec){ .kind = "k" });
	audit_end(a, NULL);
	turn_dirty(t);
	run_for(&loop, UPKEEP_MS + 500);
	CHECK_EQ(idem_find(d, "default", "old", &got, &e), 0);
	CHECK_EQ(idem_find(d, "default", "young", &got, &e), 1);
	CHECK_EQ(audit_written(a), 1);
	/* The tick's own commit came while the worker moved the log; after the next one it starts anew. */
	run_for(&loop, UPKEEP_MS + 500);
	CHECK_EQ(idem_put(d, &young, &e), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	CHECK(db_log_bytes(d) < before / 4);
	upkeep_free(u);
	turn_free(t);
	uv_run(&loop, UV_RUN_DEFAULT);
	CHECK_EQ(uv_loop_close(&loop), 0);
	audit_close(a);
	db_close(d);
	unlink(log_path);
	unlink(db_path);
	CHECK_EQ(rmdir(folder), 0);
}
