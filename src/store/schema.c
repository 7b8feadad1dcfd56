/* The schema, and its changes from version to version. */
#include "store/impl.h"
#include "base/base.h"

#include <inttypes.h>

#define APPLICATION 0x636c6368 /* "clch": says that a file is ours */

/* A step never changes after its release; its number is the file's user_version after the step. */
static const char *const steps[] = {
	"CREATE TABLE tenants (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
	" sandboxes INTEGER NOT NULL, cpu_milli INTEGER NOT NULL, memory INTEGER NOT NULL, disk INTEGER NOT NULL,"
	" execs INTEGER NOT NULL, rate_points INTEGER NOT NULL, rate_window_ms INTEGER NOT NULL,"
	" rate_block_ms INTEGER NOT NULL, created_ns INTEGER NOT NULL) STRICT;"
	"CREATE TABLE tokens (id TEXT NOT NULL PRIMARY KEY,"
	" tenant TEXT NOT NULL REFERENCES tenants(id) ON DELETE CASCADE, name TEXT NOT NULL,"
	" hash BLOB NOT NULL UNIQUE CHECK(length(hash) = 32), old_hash BLOB CHECK(length(old_hash) = 32),"
	" old_until_ns INTEGER NOT NULL, scope INTEGER NOT NULL, created_ns INTEGER NOT NULL,"
	" expires_ns INTEGER NOT NULL, rate_points INTEGER NOT NULL, rate_window_ms INTEGER NOT NULL,"
	" rate_block_ms INTEGER NOT NULL) STRICT;"
	"CREATE INDEX tokens_tenant ON tokens(tenant);"
	"CREATE TABLE boxes (id TEXT NOT NULL PRIMARY KEY, tenant TEXT NOT NULL REFERENCES tenants(id),"
	" name TEXT NOT NULL, key TEXT, handle INTEGER NOT NULL, state TEXT NOT NULL, spec TEXT NOT NULL,"
	" created_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL, used_ns INTEGER NOT NULL,"
	" next_exec INTEGER NOT NULL, UNIQUE (tenant, name)) STRICT, WITHOUT ROWID;"
	"CREATE UNIQUE INDEX boxes_key ON boxes(tenant, key) WHERE key IS NOT NULL;"
	"CREATE TABLE execs (id TEXT NOT NULL PRIMARY KEY,"
	" box TEXT NOT NULL REFERENCES boxes(id) ON DELETE CASCADE, number INTEGER NOT NULL, grp INTEGER NOT NULL, "
	"spec TEXT NOT NULL,"
	" result TEXT, started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, UNIQUE (box, number)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE idem (tenant TEXT NOT NULL REFERENCES tenants(id) ON DELETE CASCADE, key TEXT NOT NULL,"
	" body BLOB NOT NULL CHECK(length(body) = 32), status INTEGER NOT NULL, answer TEXT,"
	" created_ns INTEGER NOT NULL, PRIMARY KEY (tenant, key)) STRICT, WITHOUT ROWID;"
	"CREATE INDEX idem_created ON idem(created_ns);",
	/* 2: checkpoints. A row exists when its layer exists; boxes name the layers they are based on. */
	"CREATE TABLE checkpoints (id TEXT NOT NULL PRIMARY KEY, tenant TEXT NOT NULL REFERENCES tenants(id),"
	" box TEXT NOT NULL, box_name TEXT NOT NULL, name TEXT NOT NULL, label TEXT NOT NULL, metadata TEXT NOT NULL,"
	" parent TEXT NOT NULL, layers TEXT NOT NULL, config TEXT NOT NULL, memory INTEGER NOT NULL,"
	" refused TEXT NOT NULL, size INTEGER NOT NULL, memory_size INTEGER NOT NULL, files INTEGER NOT NULL,"
	" pause_ns INTEGER NOT NULL, sum BLOB NOT NULL CHECK(length(sum) = 32), created_ns INTEGER NOT NULL,"
	" UNIQUE (box, name)) STRICT, WITHOUT ROWID;"
	"CREATE INDEX checkpoints_tenant ON checkpoints(tenant);"
	"ALTER TABLE boxes ADD COLUMN layers TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE boxes ADD COLUMN checkpoint TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE boxes ADD COLUMN restored TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE tenants ADD COLUMN checkpoints INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE tenants ADD COLUMN checkpoint_bytes INTEGER NOT NULL DEFAULT 0;",
	/* 3: templates, and pools that refer to them. */
	"CREATE TABLE templates (tenant TEXT NOT NULL REFERENCES tenants(id) ON DELETE CASCADE, name TEXT NOT NULL,"
	" version INTEGER NOT NULL, spec TEXT NOT NULL, created_ns INTEGER NOT NULL, updated_ns INTEGER NOT NULL,"
	" PRIMARY KEY (tenant, name)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE pools (id TEXT NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL,"
	" template TEXT NOT NULL, min INTEGER NOT NULL, max INTEGER NOT NULL, created_ns INTEGER NOT NULL,"
	" UNIQUE (tenant, name), FOREIGN KEY (tenant, template) REFERENCES templates(tenant, name) ON DELETE CASCADE)"
	" STRICT, WITHOUT ROWID;"
	"CREATE INDEX pools_template ON pools(tenant, template);",
	/* 4: memory. Which execs continue from a checkpoint; how a sandbox sleeps. */
	("ALTER TABLE checkpoints ADD COLUMN execs TEXT NOT NULL DEFAULT '';"
	 "ALTER TABLE boxes ADD COLUMN asleep INTEGER NOT NULL DEFAULT 0;"),
	/* 5: ports that others may use. */
	("CREATE TABLE ports (box TEXT NOT NULL REFERENCES boxes(id) ON DELETE CASCADE, port INTEGER NOT NULL,"
	 " public INTEGER NOT NULL, token BLOB CHECK(length(token) = 32), created_ns INTEGER NOT NULL,"
	 " PRIMARY KEY (box, port)) STRICT, WITHOUT ROWID;"),
	/* 6: networks. Which tree of forks a sandbox is of; what it, and the tree, has used; its synthetic addresses. */
	("ALTER TABLE boxes ADD COLUMN tree INTEGER NOT NULL DEFAULT 0;"
	 "ALTER TABLE checkpoints ADD COLUMN names TEXT NOT NULL DEFAULT '';"
	 "CREATE TABLE nets (box TEXT NOT NULL PRIMARY KEY REFERENCES boxes(id) ON DELETE CASCADE, counts TEXT NOT NULL,"
	 " observed TEXT NOT NULL) STRICT, WITHOUT ROWID;"
	 "CREATE TABLE net_names (box TEXT NOT NULL REFERENCES boxes(id) ON DELETE CASCADE, number INTEGER NOT NULL,"
	 " name TEXT NOT NULL, PRIMARY KEY (box, number)) STRICT, WITHOUT ROWID;"
	 "CREATE TABLE net_trees (id INTEGER PRIMARY KEY, counts TEXT NOT NULL) STRICT;"),
	/* 7: secrets, sealed by service/secret/vault.c. Removed ones are kept while output of a sandbox may contain them. */
	("CREATE TABLE secrets (tenant TEXT NOT NULL REFERENCES tenants(id) ON DELETE CASCADE, name TEXT NOT NULL,"
	 " version INTEGER NOT NULL, gone INTEGER NOT NULL, description TEXT NOT NULL, created_ns INTEGER NOT NULL,"
	 " updated_ns INTEGER NOT NULL, PRIMARY KEY (tenant, name)) STRICT, WITHOUT ROWID;"
	 "CREATE TABLE secret_values (tenant TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,"
	 " sealed BLOB NOT NULL, PRIMARY KEY (tenant, name, version), FOREIGN KEY (tenant, name)"
	 " REFERENCES secrets(tenant, name) ON DELETE CASCADE) STRICT, WITHOUT ROWID;"
	 "ALTER TABLE tenants ADD COLUMN secrets INTEGER NOT NULL DEFAULT 0;"),
	/* 8: connections to the outside that a checkpoint's processes do not have any more. */
	"ALTER TABLE checkpoints ADD COLUMN cut TEXT NOT NULL DEFAULT '';",
	/* 9: images. What a chain of layers is in the store of layers; names of it; what a step of a build has made. */
	("CREATE TABLE image_layers (chain TEXT NOT NULL PRIMARY KEY, parent TEXT NOT NULL, layers TEXT NOT NULL,"
	 " diff TEXT NOT NULL, blob TEXT NOT NULL, blob_size INTEGER NOT NULL, size INTEGER NOT NULL,"
	 " files INTEGER NOT NULL, created_ns INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
	 "CREATE TABLE images (tenant TEXT NOT NULL REFERENCES tenants(id) ON DELETE CASCADE, name TEXT NOT NULL,"
	 " digest TEXT NOT NULL, config TEXT NOT NULL, chain TEXT NOT NULL, user TEXT NOT NULL, source TEXT NOT NULL,"
	 " public INTEGER NOT NULL, size INTEGER NOT NULL, created_ns INTEGER NOT NULL, PRIMARY KEY (tenant, name))"
	 " STRICT, WITHOUT ROWID;"
	 "CREATE TABLE build_cache (tenant TEXT NOT NULL REFERENCES tenants(id) ON DELETE CASCADE, key TEXT NOT NULL,"
	 " chain TEXT NOT NULL, config TEXT NOT NULL, size INTEGER NOT NULL, used_ns INTEGER NOT NULL,"
	 " PRIMARY KEY (tenant, key)) STRICT, WITHOUT ROWID;"),
	/* 10: a quota of bytes of images. */
	"ALTER TABLE tenants ADD COLUMN image_bytes INTEGER NOT NULL DEFAULT 0;",
	/* 11: a quota of GPUs. */
	"ALTER TABLE tenants ADD COLUMN gpus INTEGER NOT NULL DEFAULT 0;",
};

static int number_cb(void *arg, int n, char **values, char **names)
{
	(void)names;
	if (n > 0 && values[0])
		*(int64_t *)arg = strtoll(values[0], NULL, 10);
	return 0;
}

static int number(sqlite3 *sql, const char *text, int64_t *ret, struct err *e)
{
	*ret = 0;
	return sqlite3_exec(sql, text, number_cb, ret, NULL) == SQLITE_OK ? 0 : db_fail(sql, e, "schema");
}

int schema_check(sqlite3 *sql, size_t *ret_version, struct err *e)
{
	int64_t version = 0, app = 0, tables = 0;
	int r;

	r = number(sql, "PRAGMA user_version", &version, e);
	r = r < 0 ? r : number(sql, "PRAGMA application_id", &app, e);
	r = r < 0 ? r : number(sql, "SELECT count(*) FROM sqlite_schema", &tables, e);
	if (r < 0)
		return r;
	if (app != APPLICATION && (app || version || tables)) {
		err_set(e, ERR_INVALID, -EBADMSG, "state: this file belongs to another program");
		err_remedy(e, "use a data folder that is empty or was made by this program");
		return -EBADMSG;
	}
	if (version < 0 || version > (int64_t)ARRAY_LEN(steps)) {
		err_set(e, ERR_UNSUPPORTED, -EPROTO,
			"state: schema %" PRId64 " is newer than this program, which supports %zu", version,
			ARRAY_LEN(steps));
		err_remedy(e, "use the version that made it, or a newer one");
		return -EPROTO;
	}
	*ret_version = (size_t)version;
	return 0;
}

int schema_update(sqlite3 *sql, size_t version, struct err *e)
{
	int r;

	for (size_t i = version; i < ARRAY_LEN(steps); i++) {
		char end[96];

		snprintf(end, sizeof(end), "PRAGMA application_id=%d; PRAGMA user_version=%zu; COMMIT", APPLICATION,
			 i + 1);
		if (sqlite3_exec(sql, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK ||
		    sqlite3_exec(sql, steps[i], NULL, NULL, NULL) != SQLITE_OK ||
		    sqlite3_exec(sql, end, NULL, NULL, NULL) != SQLITE_OK) {
			r = db_fail(sql, e, "bring the schema up to date");
			sqlite3_exec(sql, "ROLLBACK", NULL, NULL, NULL);
			return r;
		}
	}
	return 0;
}
