/* Files of earlier versions. */
#include "store/impl.h"
#include "base/base.h"
#include "base/test.h"

#include <unistd.h>

static int as_before(void *arg, const struct sandbox_row *b)
{
	++*(unsigned *)arg;
	return *b->layers || *b->checkpoint || *b->restored || b->asleep || b->tree || strcmp(b->id, "old") ? -EINVAL :
													      0;
}

static bool poke(const char *path, const char *text)
{
	sqlite3 *s = NULL;
	bool ok = sqlite3_open(path, &s) == SQLITE_OK && sqlite3_exec(s, text, NULL, NULL, NULL) == SQLITE_OK;

	if (!ok)
		printf("# %s\n", sqlite3_errmsg(s));
	sqlite3_close(s);
	return ok;
}

TEST(a_file_of_the_first_schema_is_brought_up_to_date)
{
	static const char first[] =
		"DROP TABLE images; DROP TABLE image_layers; DROP TABLE build_cache; DROP TABLE nets; DROP TABLE net_names; DROP TABLE net_trees; ALTER TABLE boxes DROP COLUMN tree;"
		"DROP TABLE secret_values; DROP TABLE secrets; DROP TABLE ports; DROP TABLE pools; DROP TABLE templates;"
		"DROP TABLE checkpoints; ALTER TABLE tenants DROP COLUMN secrets; ALTER TABLE tenants DROP COLUMN image_bytes; ALTER TABLE tenants DROP COLUMN gpus;"
		"ALTER TABLE boxes DROP COLUMN layers; ALTER TABLE boxes DROP COLUMN checkpoint;"
		"ALTER TABLE boxes DROP COLUMN restored; ALTER TABLE boxes DROP COLUMN asleep;"
		"ALTER TABLE tenants DROP COLUMN checkpoints; ALTER TABLE tenants DROP COLUMN checkpoint_bytes;"
		"INSERT INTO tenants (id, sandboxes, cpu_milli, memory, disk, execs, rate_points, rate_window_ms,"
		" rate_block_ms, created_ns) VALUES ('t', 0, 0, 0, 0, 0, 0, 0, 0, 1);"
		"INSERT INTO boxes (id, tenant, name, handle, state, spec, created_ns, expires_ns, used_ns, next_exec)"
		" VALUES ('old', 't', 'n', 7, 'running', '{}', 1, 0, 1, 1); PRAGMA user_version=1";
	const struct checkpoint_row c = { .id = "c",
					  .tenant = "t",
					  .sandbox = "old",
					  .sandbox_name = "n",
					  .name = "c",
					  .label = "",
					  .metadata = "{}",
					  .parent = "",
					  .layers = "c",
					  .config = "{}",
					  .refused = "" };
	char path[64], more[80];
	struct db *d = NULL;
	unsigned n = 0;
	struct err e = { 0 };

	snprintf(path, sizeof(path), "/tmp/cloche-schema-test-%d.db", (int)getpid());
	CHECK_EQ(db_open(path, &d, &e), 0);
	db_close(TAKE_PTR(d));
	CHECK(poke(path, first));
	CHECK_EQ(db_open(path, &d, &e), 0);
	CHECK_EQ(sandboxes_each(d, as_before, &n, &e), 0);
	CHECK_EQ(n, 1);
	CHECK_EQ(checkpoints_insert(d, &c, &e), 0);
	CHECK_EQ(db_commit(d, &e), 0);
	CHECK_EQ(tenants_delete(d, "t", &e), -EEXIST);
	db_close(d);
	for (unsigned i = 0; i < 3; i++) {
		snprintf(more, sizeof(more), "%s%s", path, (const char *const[]){ "", "-wal", "-shm" }[i]);
		unlink(more);
	}
}
