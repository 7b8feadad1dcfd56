/* The file becomes smaller again when what was in it is gone; also one of an earlier version. */
#include "base/base.h"
#include "base/test.h"
#include "store/db.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[96];

static void fresh(void)
{
	snprintf(folder, sizeof(folder), "/tmp/cloche-shrink-XXXXXX");
	if (!mkdtemp(folder))
		abort();
	snprintf(path, sizeof(path), "%s/state.db", folder);
}

static void gone(void)
{
	static const char *const ends[] = { "", "-wal", "-shm", "-journal", "-late" };
	char name[128];

	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		snprintf(name, sizeof(name), "%s%s", path, ends[i]);
		unlink(name);
	}
	rmdir(folder);
}

static long long size(void)
{
	struct stat st;

	return stat(path, &st) == 0 ? (long long)st.st_size : -1;
}

static long long ask(const char *text)
{
	sqlite3_stmt *s = NULL;
	sqlite3 *sql = NULL;
	long long n = -1;

	if (sqlite3_open_v2(path, &sql, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
	    sqlite3_prepare_v2(sql, text, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
		n = sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	sqlite3_close(sql);
	return n;
}

static bool open_with_tenant(struct db **ret, struct err *e)
{
	const struct tenant_row t = { .id = "default", .number = 1, .created_ns = 1 };

	return db_open(path, ret, e) == 0 && tenants_put(*ret, &t, e) == 0 && db_commit(*ret, e) == 0;
}

/* 24 MiB of answers that are kept, and forgotten again. */
static bool fill(struct db *d, struct err *e)
{
	static char text[256 * 1024];
	char key[16];

	memset(text, 'x', sizeof(text) - 1);
	for (int i = 0; i < 96; i++) {
		const struct idem_row row = {
			.tenant = "default", .key = key, .status = 200, .answer = text, .created_ns = 1
		};

		snprintf(key, sizeof(key), "k%d", i);
		if (idem_put(d, &row, e) < 0)
			return false;
	}
	return db_commit(d, e) == 0 && db_checkpoint(path) == 0;
}

static bool shrink(struct db *d, struct err *e)
{
	if (idem_prune(d, 2, e) < 0 || db_commit(d, e) < 0)
		return false;
	for (int i = 0; i < 16; i++)
		if (db_shrink(d, e) < 0)
			return false;
	return db_checkpoint(path) == 0;
}

TEST(what_was_deleted_is_given_back_to_the_disk)
{
	struct err e = { 0 };
	struct db *d;

	fresh();
	CHECK(open_with_tenant(&d, &e));
	CHECK_EQ(ask("PRAGMA auto_vacuum"), 2);
	CHECK(fill(d, &e));
	CHECK(size() > (long long)(20 * MIB));
	CHECK(shrink(d, &e));
	CHECK(size() < (long long)(6 * MIB));
	db_close(d);
	gone();
}

TEST(a_file_of_an_earlier_version_learns_it_and_keeps_its_rows)
{
	struct err e = { 0 };
	struct idem_row row;
	struct db *d;

	fresh();
	CHECK(open_with_tenant(&d, &e));
	CHECK(idem_put(d, &(struct idem_row){ .tenant = "default", .key = "stays", .answer = "a", .created_ns = 9 },
		       &e) == 0 &&
	      db_commit(d, &e) == 0);
	db_close(d);
	ask("PRAGMA journal_mode=DELETE");
	{
		sqlite3 *sql = NULL;

		CHECK_EQ(sqlite3_open_v2(path, &sql, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
		CHECK_EQ(sqlite3_exec(sql, "PRAGMA auto_vacuum=NONE; VACUUM", NULL, NULL, NULL), SQLITE_OK);
		sqlite3_close(sql);
	}
	CHECK_EQ(ask("PRAGMA auto_vacuum"), 0);
	CHECK_EQ(db_open(path, &d, &e), 0);
	CHECK_EQ(idem_find(d, "default", "stays", &row, &e), 1);
	CHECK(fill(d, &e));
	CHECK(shrink(d, &e));
	CHECK(size() < (long long)(6 * MIB));
	CHECK_EQ(idem_find(d, "default", "stays", &row, &e), 1);
	db_close(d);
	CHECK_EQ(ask("PRAGMA auto_vacuum"), 2);
	gone();
}
