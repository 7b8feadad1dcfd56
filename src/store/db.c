/* Opens, syncs and closes the database. */
#include "store/db.h"
#include "base/base.h"
#include "base/log.h"
#include "store/impl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUSY_MS 5000
#define LOG_LARGE (64 * MIB)
#define SHRINK_FREE 1024U /* pages: fewer are left for the next rows */
#define SHRINK_STEP "1024"
#define REPACK_MAX (64 * MIB)
#define FRAME_HEAD 24 /* what the log adds to a page */

static int errno_of(int code)
{
	switch (code & 0xff) {
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EBADMSG;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_CONSTRAINT:
		return -EEXIST;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_PERM:
	case SQLITE_AUTH:
	case SQLITE_CANTOPEN:
		return -EACCES;
	case SQLITE_TOOBIG:
		return -E2BIG;
	default:
		return -EIO;
	}
}

int db_fail(sqlite3 *sql, struct err *e, const char *what)
{
	int r = errno_of(sqlite3_extended_errcode(sql));
	enum err_kind kind = ERR_INTERNAL;
	int sys = r == -EIO ? sqlite3_system_errno(sql) : 0;

	/* Of its own files SQLite says so; of the memory its log has in a file that is an error like any. */
	if (sys == ENOSPC || sys == EDQUOT)
		r = -ENOSPC;
	if (r == -EEXIST)
		kind = ERR_CONFLICT;
	else if (r == -ENOSPC || r == -ENOMEM)
		kind = ERR_EXHAUSTED;
	else if (r == -E2BIG)
		kind = ERR_TOO_LARGE;
	err_set(e, kind, r, "state: %s: %s", what, sqlite3_errmsg(sql));
	if (r == -EBADMSG)
		err_remedy(e, "restore a copy of it, or rebuild it: `cloche serve --recover`");
	else if (r == -ENOSPC)
		err_remedy(e, "free space on the disk of the data folder");
	else if (r == -EBUSY)
		err_remedy(e, "another program has the state file open: a data folder can be used by one daemon only");
	return r;
}

static int exec(sqlite3 *sql, const char *text, const char *what, struct err *e)
{
	return sqlite3_exec(sql, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : db_fail(sql, e, what);
}

/* SQLite would make it with our umask. What is there must be a plain file. */
static int make_file(const char *path, struct err *e)
{
	AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "open the state file '%s'", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, -EINVAL, "state file '%s': not a regular file", path);
	return 0;
}

static int first_text(void *arg, int n, char **values, char **names)
{
	char *to = arg;

	(void)names;
	if (n > 0 && values[0] && !to[0])
		snprintf(to, 64, "%s", values[0]);
	return 0;
}

static int ask(sqlite3 *sql, const char *text, char answer[64], struct err *e)
{
	answer[0] = '\0';
	return sqlite3_exec(sql, text, first_text, answer, NULL) == SQLITE_OK ? 0 : db_fail(sql, e, "open");
}

static uint64_t page_size(sqlite3 *sql)
{
	char answer[64];

	return ask(sql, "PRAGMA page_size", answer, NULL) < 0 ? 4096 : strtoull(answer, NULL, 10);
}

static int log_hook(void *arg, sqlite3 *sql, const char *name, int pages)
{
	struct db *d = arg;

	(void)sql;
	(void)name;
	d->log_bytes = (uint64_t)pages * d->frame;
	return SQLITE_OK;
}

/* --- whether it is the one that belongs here --- */

static int refuse(struct err *e, int r, const char *what)
{
	err_set(e, ERR_CONFLICT, r, "%s", what);
	err_remedy(e, "nothing was changed; restore the right state.db, or rebuild it: `cloche serve --recover`");
	return r;
}

static int refuse_empty(const struct db *d, const struct db_opts *o, bool there, struct err *e)
{
	if (!d->seen.id[0] && !o->beside)
		return 0;
	return refuse(e, -ENODATA,
		      there ? "the database state.db is empty, but its layers and sandboxes still exist" :
			      "the database state.db is missing, but its layers and sandboxes still exist");
}

struct stamp {
	char id[ID_SIZE];
	uint64_t turn;
};

static int stamp_row(void *arg, int n, char **values, char **names)
{
	struct stamp *x = arg;

	(void)names;
	if (n == 2 && values[0] && values[1] && id_valid(values[0])) {
		snprintf(x->id, sizeof(x->id), "%s", values[0]);
		x->turn = strtoull(values[1], NULL, 10);
	}
	return 0;
}

static int read_stamp(struct db *d, struct stamp *ret, struct err *e)
{
	char answer[64];
	int r = ask(d->sql, "SELECT name FROM sqlite_schema WHERE name = 'stamp'", answer, e);

	*ret = (struct stamp){ 0 };
	if (r < 0 || !answer[0])
		return r;
	return sqlite3_exec(d->sql, "SELECT id, turn FROM stamp", stamp_row, ret, NULL) == SQLITE_OK ?
		       0 :
		       db_fail(d->sql, e, "open");
}

static int check_known(struct db *d, const struct db_opts *o, size_t version, struct err *e)
{
	struct stamp stamp;
	int r;

	if (!o || (o->recover && !d->seen.id[0]))
		return 0;
	if (!version)
		return refuse_empty(d, o, true, e);
	r = read_stamp(d, &stamp, e);
	if (r < 0)
		return r;
	if (!d->seen.id[0])
		return stamp.id[0] && o->beside ?
			       refuse(e, -ESTALE,
				      "the file " WITNESS_FILE
				      " is missing: it is unknown whether state.db belongs to this data folder") :
			       0;
	if (strcmp(stamp.id, d->seen.id))
		return refuse(e, -EXDEV, "the database state.db belongs to another data folder, or is an old copy");
	if (d->seen.now && stamp.turn < d->seen.turn)
		return refuse(e, -ESTALE,
			      "the database state.db is older than expected: it was restored from a copy, or has lost "
			      "its log");
	d->seen.turn = stamp.turn;
	return 0;
}

/* From now on it says which it is. */
static int put_stamp(struct db *d, const struct db_opts *o, struct err *e)
{
	struct stamp stamp;
	char sql[192];
	int r = read_stamp(d, &stamp, e);

	if (r < 0)
		return r;
	if (!stamp.id[0]) {
		r = id_new(stamp.id, sizeof(stamp.id));
		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r, "make an id");
		snprintf(
			sql, sizeof(sql),
			"BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS stamp (id TEXT NOT NULL, turn INTEGER NOT NULL) STRICT;"
			"INSERT INTO stamp VALUES ('%s', 1); COMMIT",
			stamp.id);
		r = exec(d->sql, sql, "open", e);
		if (r < 0) {
			sqlite3_exec(d->sql, "ROLLBACK", NULL, NULL, NULL);
			return r;
		}
		stamp.turn = 1;
	}
	d->seen.turn = stamp.turn;
	if (d->seen.id[0] && d->seen.now) {
		witness_write(&d->seen);
		return 0;
	}
	snprintf(d->seen.id, sizeof(d->seen.id), "%s", stamp.id);
	/* A marker of a database that a power cut has taken back would keep the daemon from starting. */
	if (db_log_fd(d) >= 0 && fdatasync(db_log_fd(d)) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "sync the state's log");
	return witness_make(o->folder, &d->seen, e);
}

static int count_turn(struct db *d, struct err *e)
{
	sqlite3_stmt *s;
	int r;

	if (!d->counts || d->seen.fd < 0)
		return 0;
	r = q_prepare(d, Q_STAMP, "UPDATE stamp SET turn = ?1", &s, e);
	if (r < 0)
		return r;
	q_u64(s, 1, d->seen.turn + 1);
	r = q_run(d, s, "commit", e);
	return r < 0 ? r : 0;
}

static int restore(struct db *d, struct err *e)
{
	unsigned n[TABLES_NOTED];
	int r = notes_restore(d, n, e);

	if (r > 0)
		log_warn("state: rebuilt from notes: %u sandboxes, %u checkpoints, %u running execs, %u templates, %u "
			 "secrets, %u tokens, %u tenants",
			 n[TABLE_SANDBOXES], n[TABLE_CHECKPOINTS], n[TABLE_EXECS], n[TABLE_TEMPLATES], n[TABLE_SECRETS],
			 n[TABLE_TOKENS], n[TABLE_TENANTS]);
	return r < 0 ? r : 0;
}

/* --- opening --- */

static void set_ways(struct db *d)
{
	sqlite3_busy_timeout(d->sql, BUSY_MS);
	sqlite3_extended_result_codes(d->sql, 1);
	sqlite3_db_config(d->sql, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(d->sql, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(d->sql, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL); /* we have none: a file's own do not run */
}

static int quick_check(struct db *d, struct err *e)
{
	char answer[64];
	int r = ask(d->sql, "PRAGMA quick_check(1)", answer, e);

	if (r < 0 || !strcmp(answer, "ok"))
		return r;
	err_set(e, ERR_INTERNAL, -EBADMSG, "state: the file is damaged: %s", answer);
	err_remedy(e, "restore a copy of it, or rebuild it: `cloche serve --recover`");
	return -EBADMSG;
}

static uint64_t number(sqlite3 *sql, const char *text)
{
	char answer[64];

	return ask(sql, text, answer, NULL) < 0 ? 0 : strtoull(answer, NULL, 10);
}

/*
 * A file of an earlier version cannot become smaller: it is written anew, once, as one that can. That takes as much memory as
 * there is in it, so not if that is much. If it fails nothing is lost.
 */
static void make_shrinkable(sqlite3 *sql)
{
	const uint64_t used = number(sql, "PRAGMA page_count") - number(sql, "PRAGMA freelist_count");

	if (number(sql, "PRAGMA auto_vacuum") || used * page_size(sql) > REPACK_MAX)
		return;
	if (sqlite3_exec(sql, "PRAGMA auto_vacuum=INCREMENTAL; VACUUM", NULL, NULL, NULL) != SQLITE_OK)
		log_warn("state: cannot rewrite the file: %s; its size does not change", sqlite3_errmsg(sql));
}

static int set_up(struct db *d, const struct db_opts *o, struct err *e)
{
	size_t version = 0;
	char answer[64];
	int r;

	set_ways(d);
	r = schema_check(d->sql, &version, e);
	if (r == 0)
		r = check_known(d, o, version, e);
	if (r < 0)
		return r;
	/*
	 * A change costs whole pages, in the log and in time. A row keeps to its own only up to a quarter of one: the
	 * usual sandbox's has 530 bytes, and past 2048 / 4 each create and delete would also write a page for the rest,
	 * the list of free pages and the first page, which counts them.
	 */
	r = exec(d->sql, "PRAGMA page_size=4096", "open", e);
	/* Where the file can shrink already, the same words would write to it, and wait for another writer. */
	if (r == 0 && !number(d->sql, "PRAGMA page_count"))
		r = exec(d->sql, "PRAGMA auto_vacuum=INCREMENTAL", "open", e);
	if (r < 0)
		return r;
	r = ask(d->sql, "PRAGMA journal_mode=WAL", answer, e);
	if (r < 0)
		return r;
	if (strcmp(answer, "wal"))
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			       "state: this filesystem does not support shared memory for the log");
	/* Past a crash of the machine what came after the last sync of db_log_fd() may be missing, never a part of a turn. */
	r = exec(d->sql,
		 "PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0; PRAGMA foreign_keys=ON; PRAGMA "
		 "temp_store=MEMORY;"
		 "PRAGMA cell_size_check=ON",
		 "open", e);
	if (r < 0)
		return r;
	r = quick_check(d, e);
	if (r < 0)
		return r;
	r = schema_update(d->sql, version, e);
	if (r < 0)
		return r;
	if (version)
		make_shrinkable(d->sql);
	d->frame = page_size(d->sql) + FRAME_HEAD; /* an older file keeps its own */
	/* After wal_autocheckpoint, which takes the hook's place. */
	sqlite3_wal_hook(d->sql, log_hook, d);
	return 0;
}

static int keep_name(sqlite3_vfs *v, const char *name, int size, char *to)
{
	(void)v;
	return snprintf(to, (size_t)size, "%s", name) < size ? SQLITE_OK : SQLITE_CANTOPEN;
}

/*
 * SQLite resolves links to find a file's full path, and opens that. For a file below an open folder (/proc/self/fd/N)
 * this process may have no access to the full path: SQLite must then open the given name. Returns the name of the VFS
 * that does that, or NULL for the usual one.
 */
static const char *opener(const char *path)
{
	static const char by_fd[] = "/proc/self/fd/", name[] = "cloche-fd";
	static sqlite3_vfs v;

	if (strncmp(path, by_fd, sizeof(by_fd) - 1))
		return NULL;
	if (!sqlite3_vfs_find(name)) {
		v = *sqlite3_vfs_find(NULL);
		v.zName = name;
		v.xFullPathname = keep_name;
		sqlite3_vfs_register(&v, 0);
	}
	return name;
}

static struct db *db_new(void)
{
	struct db *d = calloc(1, sizeof(*d));

	if (d) {
		d->pending.fd = d->seen.fd = d->notes.dir = -1;
		ahead_init(&d->ahead);
	}
	return d;
}

static int connect(struct db *d, const char *path, struct err *e)
{
	int r = sqlite3_open_v2(path, &d->sql, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, opener(path));

	if (!d->sql)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "state");
	return r != SQLITE_OK ? db_fail(d->sql, e, "open") : 0;
}

/* Whether there is something in the file. A missing one, or one without a byte, is none yet. */
static int look_at(const struct db *d, const char *path, const struct db_opts *o, struct err *e)
{
	struct stat st;
	bool there = lstat(path, &st) == 0;

	if (there && (!S_ISREG(st.st_mode) || st.st_size))
		return 0;
	if (o->recover && !d->seen.id[0])
		return 1;
	return refuse_empty(d, o, there, e) < 0 ? -ENODATA : 1;
}

int db_open_known(const char *path, const struct db_opts *o, struct db **ret, struct err *e)
{
	AUTO(db_close) struct db *d = db_new();
	bool rebuild;
	int r = 0;

	if (!d)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "state");
	if (o)
		r = witness_open(o->folder, &d->seen, e);
	if (r >= 0 && o)
		r = look_at(d, path, o, e);
	if (r < 0)
		return r;
	rebuild = o && o->recover && !d->seen.id[0];
	d->sure = o && o->sure;
	r = make_file(path, e);
	if (r == 0)
		r = connect(d, path, e);
	if (r == 0)
		r = set_up(d, o, e);
	if (r == 0 && o)
		r = notes_open(&d->notes, o->folder, e);
	if (r == 0 && rebuild)
		r = restore(d, e);
	if (r == 0)
		r = pending_rows_open(d, path, e);
	if (r == 0 && o)
		r = notes_sync(d, e);
	if (o)
		ahead_open(d, path);
	if (r == 0 && o)
		r = put_stamp(d, o, e);
	if (r < 0)
		return err_wrap(e, r, "'%s'", path);
	*ret = TAKE_PTR(d);
	return 0;
}

int db_open(const char *path, struct db **ret, struct err *e)
{
	return db_open_known(path, NULL, ret, e);
}

int db_check(const char *path, const struct db_opts *o, struct err *e)
{
	AUTO(db_close) struct db *d = db_new();
	size_t version = 0;
	int r;

	if (!d)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "state");
	r = witness_open(o->folder, &d->seen, e);
	if (r >= 0)
		r = look_at(d, path, o, e);
	if (r != 0)
		return r;
	r = connect(d, path, e);
	if (r == 0) {
		set_ways(d);
		/* A check must not move the log into the file. */
		sqlite3_db_config(d->sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
		r = schema_check(d->sql, &version, e);
	}
	if (r == 0)
		r = check_known(d, o, version, e);
	if (r == 0)
		r = quick_check(d, e);
	return r == 0 ? pending_rows_check(d, path, e) : r;
}

void db_close(struct db *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < Q_COUNT; i++)
		sqlite3_finalize(d->q[i]);
	for (size_t i = 0; i < TABLES * ROW_CALLS; i++)
		sqlite3_finalize(d->row[i / ROW_CALLS][i % ROW_CALLS]);
	for (size_t i = 0; i < TABLES_NOTED; i++)
		sqlite3_finalize(d->note_row[i]);
	notes_close(&d->notes);
	witness_done(&d->seen);
	pending_rows_close(d);
	free(d->found);
	sqlite3_close(d->sql); /* what was not committed is undone */
	ahead_close(&d->ahead);
	free(d);
}

int db_undone(const struct db *d, struct err *e)
{
	return err_set(e, d->full ? WHY_NO_HOST_SPACE : WHY_INTERNAL, d->full ? -ENOSPC : -EIO,
		       "state: an earlier failure has undone the changes%s", d->full ? ": the disk is full" : "");
}

static int commit(struct db *d, struct err *e)
{
	sqlite3_stmt *s;
	int r;

	d->begun = false;
	/* A full disk may have undone the transaction under us: then nothing of the turn is stored. */
	if (sqlite3_get_autocommit(d->sql))
		return db_undone(d, e);
	r = count_turn(d, e);
	if (r == 0)
		r = q_prepare(d, Q_COMMIT, "COMMIT", &s, e);
	if (r == 0)
		r = q_run(d, s, "commit", e);
	if (r >= 0 && d->counts)
		d->seen.turn++;
	d->counts = false;
	if (r < 0 && !sqlite3_get_autocommit(d->sql))
		sqlite3_exec(d->sql, "ROLLBACK", NULL, NULL, NULL);
	return r < 0 ? r : 0;
}

int db_commit(struct db *d, struct err *e)
{
	int r = pending_rows_write(d, e);

	const uint64_t turn = d->seen.turn, pending = d->seen.pending;

	if (r == 0 && d->begun) {
		r = commit(d, e);
		d->undone = d->undone || r < 0;
	}
	if (r < 0)
		return r;
	d->seen.pending = d->pending.size;
	if (turn != d->seen.turn || pending != d->seen.pending)
		witness_write(&d->seen);
	notes_flush(d);
	r = pending_rows_committed(d, e);
	ahead_keep(d);
	return r;
}

bool db_whole(const struct db *d)
{
	return !d->undone && (!d->begun || !sqlite3_get_autocommit(d->sql));
}

int db_settle(struct db *d, struct err *e)
{
	int r = pending_rows_settle(d, e);

	return r < 0 ? r : d->pending.n > 0;
}

int db_shrink(struct db *d, struct err *e)
{
	const uint64_t loose = d->begun ? 0 : number(d->sql, "PRAGMA freelist_count");

	/* A few are kept, and a quarter of all: rows come and go. */
	if (loose < SHRINK_FREE || loose < number(d->sql, "PRAGMA page_count") / 4)
		return 0;
	return exec(d->sql, "PRAGMA incremental_vacuum(" SHRINK_STEP ")", "shrink", e);
}

uint64_t db_log_bytes(const struct db *d)
{
	return d->log_bytes;
}

int db_log_fd(const struct db *d)
{
	return d->ahead.wal;
}

static void sqlite3_closep(sqlite3 **sql)
{
	sqlite3_close(*sql);
}

int db_checkpoint(const char *path)
{
	AUTO(sqlite3_close) sqlite3 *sql = NULL;
	int frames = 0, done = 0, r;

	r = sqlite3_open_v2(path, &sql, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, opener(path));
	if (r != SQLITE_OK)
		return errno_of(r);
	sqlite3_busy_timeout(sql, BUSY_MS);
	/* A connection that never read does not know yet that there is a log. */
	r = sqlite3_exec(sql, "PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0; SELECT 1 FROM sqlite_schema",
			 NULL, NULL, NULL);
	if (r != SQLITE_OK)
		return errno_of(r);
	r = sqlite3_wal_checkpoint_v2(sql, NULL, SQLITE_CHECKPOINT_PASSIVE, &frames, &done);
	if (r != SQLITE_OK)
		return errno_of(r);
	if ((uint64_t)frames * (page_size(sql) + FRAME_HEAD) < LOG_LARGE)
		return 0;
	/*
	 * The writer appends so much that the log never starts over. After a second checkpoint little is left, and the
	 * writer waits for that part.
	 */
	sqlite3_wal_checkpoint_v2(sql, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	r = sqlite3_wal_checkpoint_v2(sql, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	return r == SQLITE_OK ? 0 : errno_of(r);
}
