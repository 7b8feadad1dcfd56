/* Writes and reads the notes of rows. */
#include "store/note.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/sha256.h"
#include "store/impl.h"
#include "store/rows.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "cloche note 1\n"
#define SUM 16
#define NOTE_MAX (16 * MIB)
#define COLUMNS_MAX 64
#define NAME_SIZE 48
#define BAD ".bad"
#define NEW "new"
#define SKIP_NUMBERS 1000000 /* numbers of execs that may have been used since a sandbox's note was written */

/* clang-format off */
static const struct table *const tables[TABLES_NOTED] = {
	[TABLE_TENANTS] = &tenants_table,     [TABLE_TOKENS] = &tokens_table,
	[TABLE_SANDBOXES] = &sandboxes_table, [TABLE_CHECKPOINTS] = &checkpoints_table,
	[TABLE_TEMPLATES] = &templates_table, [TABLE_POOLS] = &pools_table,
	[TABLE_SECRETS] = &secrets_table,     [TABLE_SECRET_VALUES] = &secret_values_table,
	[TABLE_PORTS] = &ports_table,	     [TABLE_EXECS] = &execs_table, /* those that run */
	[TABLE_IMAGES] = &images_table,	     [TABLE_IMAGE_LAYERS] = &image_layers_table,
};
/* clang-format on */

struct note {
	struct note *next;
	enum table_id table;
	uint64_t number;
	char *key, *key2;
	bool later; /* not after this commit */
	char name[NAME_SIZE];
};

/* --- names --- */

/* Which part of a key, which names the note, that column is: 0 or 1 a text, 2 the number, -1 none. */
static int part_of_key(const struct table *t, const char *column, size_t len)
{
	int texts = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct column *c = &t->columns[i];
		const bool text = c->type == COLUMN_TEXT;

		if (c->role != COLUMN_KEY)
			continue;
		if (strlen(c->name) == len && !memcmp(c->name, column, len))
			return text ? texts : 2;
		texts += text;
	}
	return -1;
}

static void name_of(enum table_id t, const char *key, const char *key2, uint64_t number, char ret[NAME_SIZE])
{
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;
	size_t n;

	sha256_init(&s);
	sha256_add(&s, key, strlen(key) + 1);
	sha256_add(&s, key2 ? key2 : "", key2 ? strlen(key2) + 1 : 1);
	sha256_add(&s, &number, sizeof(number));
	sha256_end(&s, sum);
	n = (size_t)snprintf(ret, NAME_SIZE, "%s-", tables[t]->name);
	for (size_t i = 0; i < 12; i++)
		n += (size_t)snprintf(ret + n, NAME_SIZE - n, "%02x", sum[i]);
}

static bool ends_in(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* --- a row as bytes --- */

static int add_bytes(struct buf *b, const void *data, size_t len)
{
	const uint32_t n = (uint32_t)len;

	return buf_add(b, &n, sizeof(n)) < 0 || (len && buf_add(b, data, len) < 0) ? -ENOMEM : 0;
}

static int add_value(struct buf *b, sqlite3_stmt *s, int i)
{
	const uint8_t type = (uint8_t)sqlite3_column_type(s, i);
	const int64_t number = type == SQLITE_INTEGER ? sqlite3_column_int64(s, i) : 0;
	int r = buf_add(b, &type, 1);

	if (r == 0 && type == SQLITE_INTEGER)
		r = add_bytes(b, &number, sizeof(number));
	else if (r == 0 && type == SQLITE_NULL)
		r = add_bytes(b, NULL, 0);
	else if (r == 0) {
		const void *data = sqlite3_column_blob(s, i); /* before its size: that is then of the same form */

		r = add_bytes(b, data, (size_t)sqlite3_column_bytes(s, i));
	}
	return r;
}

static void sum_of(const void *data, size_t len, uint8_t ret[SHA256_SIZE])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, data, len);
	sha256_end(&s, ret);
}

static int encode(enum table_id t, sqlite3_stmt *s, struct buf *b)
{
	uint8_t sum[SHA256_SIZE];
	int r = buf_adds(b, MAGIC);

	if (r == 0)
		r = add_bytes(b, tables[t]->name, strlen(tables[t]->name));
	for (int i = 0; r == 0 && i < sqlite3_column_count(s); i++) {
		r = add_bytes(b, sqlite3_column_name(s, i), strlen(sqlite3_column_name(s, i)));
		if (r == 0)
			r = add_value(b, s, i);
	}
	if (r < 0)
		return r;
	sum_of(b->data, b->len, sum);
	return buf_add(b, sum, SUM);
}

struct piece {
	const char *data;
	uint32_t len;
};

static bool take(struct piece *from, void *to, uint32_t len)
{
	if (from->len < len)
		return false;
	memcpy(to, from->data, len);
	from->data += len;
	from->len -= len;
	return true;
}

static bool take_bytes(struct piece *from, struct piece *ret)
{
	uint32_t n;

	if (!take(from, &n, sizeof(n)) || n > from->len)
		return false;
	*ret = (struct piece){ from->data, n };
	from->data += n;
	from->len -= n;
	return true;
}

/* --- files --- */

static int write_spare(struct notes *n, const char *name, const struct buf *b)
{
	unsigned at;
	AUTO_CLOSE int fd = spare_take(&n->spares, &at);
	int r = fd < 0 ? fd : fd_write_all(fd, b->data, b->len);

	if (r == 0)
		r = spare_name(&n->spares, at, name);
	if (r < 0 && fd >= 0)
		spare_drop(&n->spares, at);
	return r;
}

static int write_file(const struct notes *n, const char *name, const struct buf *b)
{
	AUTO_CLOSE int fd = openat(n->dir, NEW, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = fd < 0 ? -errno : fd_write_all(fd, b->data, b->len);

	if (r == 0 && renameat(n->dir, NEW, n->dir, name) < 0)
		r = -errno;
	if (r < 0 && fd >= 0)
		unlinkat(n->dir, NEW, 0);
	return r;
}

static int read_file(const struct notes *n, const char *name, struct buf *b)
{
	AUTO_CLOSE int fd = openat(n->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t got;
	char *room;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size >= NOTE_MAX)
		return -EBADMSG;
	room = buf_room(b, (size_t)st.st_size + 1);
	got = room ? pread(fd, room, (size_t)st.st_size, 0) : 0;
	if (!room || got < 0)
		return room ? -errno : -ENOMEM;
	buf_added(b, (size_t)got);
	return 0;
}

static int remove_file(struct notes *n, const char *name)
{
	int r;

	if (!map_get(&n->have, name))
		return 0;
	r = spare_put(&n->spares, name);
	if (r < 0 && r != -ENOENT)
		return r;
	map_del(&n->have, name);
	return 0;
}

static int put_file(struct notes *n, const char *name, const struct buf *b)
{
	/* What replaces a file is a new one: the kernel sees to it that no power cut leaves neither of them. */
	int r = map_get(&n->have, name) ? -ENOENT : write_spare(n, name, b);

	if (r == -ENOENT)
		r = write_file(n, name, b);
	return r < 0 ? r : map_put(&n->have, name, n);
}

static int list_files(struct notes *n, int (*fn)(void *arg, const char *name), void *arg)
{
	int fd = openat(n->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;

	if (!dir) {
		r = -errno;
		fd_close(fd);
		return r;
	}
	while (r == 0 && (x = readdir(dir)))
		if (x->d_name[0] != '.' && strcmp(x->d_name, NEW) &&
		    strncmp(x->d_name, NOTE_LOOSE, strlen(NOTE_LOOSE)) &&
		    strncmp(x->d_name, NOTE_KEPT, strlen(NOTE_KEPT)) && !ends_in(x->d_name, BAD))
			r = fn(arg, x->d_name);
	closedir(dir);
	return r;
}

static int have_file(void *arg, const char *name)
{
	struct notes *n = arg;

	return map_put(&n->have, name, n);
}

int notes_open(struct notes *n, const char *folder, struct err *e)
{
	char path[1100];
	int r;

	snprintf(path, sizeof(path), "%s/" NOTES_FOLDER, folder);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(e, ERR_INTERNAL, -errno, "make '%.100s'", path);
	n->dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (n->dir < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "open '%.100s'", path);
	spares_init(&n->spares, n->dir);
	r = map_init(&n->have);
	if (r == 0)
		r = list_files(n, have_file, n);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "read '%.100s'", path) : 0;
}

static void note_free(struct note *x)
{
	free(x->key);
	free(x->key2);
	free(x);
}

void notes_close(struct notes *n)
{
	struct note *x;

	if (n->dir < 0)
		return;
	while ((x = n->pending)) {
		n->pending = x->next;
		note_free(x);
	}
	map_done(&n->have);
	fd_close(n->dir);
	n->dir = -1;
}

void notes_ahead(struct db *d)
{
	if (d->notes.dir >= 0)
		spares_add(&d->notes.spares);
}

void notes_mark(struct db *d, const char *name)
{
	struct notes *n = &d->notes;
	unsigned at;
	AUTO_CLOSE int fd = n->dir < 0 ? -ENOENT : spare_take(&n->spares, &at);

	if (fd >= 0 && spare_name(&n->spares, at, name) == 0)
		return;
	if (fd >= 0)
		spare_drop(&n->spares, at);
	if (n->dir >= 0)
		fd_close(openat(n->dir, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
}

void notes_unmark(struct db *d, const char *name)
{
	if (d->notes.dir >= 0)
		spare_put(&d->notes.spares, name);
}

/* --- what changes --- */

void note_row(struct db *d, enum table_id t, const char *key, const char *key2, uint64_t number)
{
	struct notes *n = &d->notes;
	struct note *x = n->dir < 0 ? NULL : calloc(1, sizeof(*x));

	if (n->dir < 0)
		return;
	if (!x || !(x->key = strdup(key)) || (key2 && !(x->key2 = strdup(key2))))
		abort();
	x->table = t;
	x->number = number;
	name_of(t, key, key2, number, x->name);
	for (struct note *y = n->pending; y; y = y->next)
		if (!strcmp(y->name, x->name)) {
			y->later &= n->later;
			note_free(x);
			return;
		}
	x->later = n->later;
	x->next = n->pending;
	n->pending = x;
}

void notes_later(struct db *d)
{
	d->notes.later = true;
}

void notes_usual(struct db *d)
{
	d->notes.later = false;
}

void notes_now(struct db *d)
{
	for (struct note *x = d->notes.pending; x; x = x->next)
		x->later = false;
}

void note_gone(struct db *d, enum table_id t, const char *key)
{
	char name[NAME_SIZE];

	if (d->notes.dir < 0)
		return;
	name_of(t, key, NULL, 0, name);
	if (map_get(&d->notes.have, name))
		note_row(d, t, key, NULL, 0);
}

static int select_one(struct db *d, const struct note *x, sqlite3_stmt **ret)
{
	const struct table *t = tables[x->table];
	char sql[256];
	int n;

	if (!d->note_row[x->table]) {
		n = snprintf(sql, sizeof(sql), "SELECT * FROM %s WHERE %s", t->name,
			     t->noted_rows ? t->noted_rows : "true");
		for (size_t i = 0; i < t->n; i++)
			if (t->columns[i].role == COLUMN_KEY)
				n += snprintf(sql + n, sizeof(sql) - (size_t)n, " AND %s = ?%d", t->columns[i].name,
					      part_of_key(t, t->columns[i].name, strlen(t->columns[i].name)) + 1);
		if (sqlite3_prepare_v3(d->sql, sql, -1, SQLITE_PREPARE_PERSISTENT, &d->note_row[x->table], NULL) !=
		    SQLITE_OK)
			return -EIO;
	}
	*ret = d->note_row[x->table];
	q_text(*ret, 1, x->key);
	q_text(*ret, 2, x->key2);
	q_u64(*ret, 3, x->number);
	return 0;
}

static int flush_one(struct db *d, const struct note *x)
{
	AUTO(buf_done) struct buf b = BUF_INIT(NOTE_MAX);
	sqlite3_stmt *s = NULL;
	int r = select_one(d, x, &s), step;

	if (r < 0)
		return r;
	step = sqlite3_step(s);
	if (step == SQLITE_ROW)
		r = encode(x->table, s, &b);
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
	if (r == 0 && step == SQLITE_ROW)
		r = put_file(&d->notes, x->name, &b);
	else if (r == 0)
		r = step == SQLITE_DONE ? remove_file(&d->notes, x->name) : -EIO;
	return r;
}

void notes_flush(struct db *d)
{
	struct notes *n = &d->notes;

	if (n->dir < 0)
		return;
	for (struct note **at = &n->pending; *at;) {
		struct note *x = *at;
		int r = x->later ? 0 : flush_one(d, x);

		if (x->later) {
			x->later = false;
			at = &x->next;
			continue;
		}
		if (r < 0) {
			if (!n->failed)
				log_warn("state: cannot write a note: %s; trying again", strerror(-r));
			n->failed = true;
			return;
		}
		n->failed = false;
		*at = x->next;
		note_free(x);
	}
}

/* --- all of them --- */

struct sync {
	struct db *d;
	struct map stale; /* names that no row has had yet */
	enum table_id table;
};

static int stale_file(void *arg, const char *name)
{
	struct sync *x = arg;

	return map_put(&x->stale, name, x);
}

static int sync_row(void *ctx, sqlite3_stmt *s)
{
	AUTO(buf_done) struct buf b = BUF_INIT(NOTE_MAX), old = BUF_INIT(NOTE_MAX);
	struct sync *x = ctx;
	const char *key = "", *key2 = NULL;
	uint64_t number = 0;
	char name[NAME_SIZE];
	int r;

	for (int i = 0; i < sqlite3_column_count(s); i++) {
		const char *column = sqlite3_column_name(s, i);
		const int part = part_of_key(tables[x->table], column, strlen(column));

		if (part == 0)
			key = q_get_text(s, i);
		else if (part == 1)
			key2 = q_get_text(s, i);
		else if (part == 2)
			number = q_get_u64(s, i);
	}
	if (!key)
		return -EBADMSG;
	name_of(x->table, key, key2, number, name);
	r = encode(x->table, s, &b);
	if (r == 0 && map_del(&x->stale, name) && read_file(&x->d->notes, name, &old) == 0 && old.len == b.len &&
	    !memcmp(old.data, b.data, b.len))
		return 0;
	if (r == 0)
		r = put_file(&x->d->notes, name, &b);
	/* A full disk must not prevent a start: the note is written when there is space. */
	if (r == -ENOSPC || r == -EDQUOT) {
		note_row(x->d, x->table, key, key2, number);
		r = 0;
	}
	return r;
}

static int remove_stale(struct sync *x)
{
	struct notes *n = &x->d->notes;
	int r = 0;

	for (size_t i = 0; r == 0 && i < x->stale.size; i++)
		if (x->stale.slot[i].key && x->stale.slot[i].value)
			r = remove_file(n, x->stale.slot[i].key);
	return r;
}

int notes_sync(struct db *d, struct err *e)
{
	struct sync x = { .d = d };
	char sql[128];
	int r;

	if (d->notes.dir < 0)
		return 0;
	r = map_init(&x.stale);
	if (r == 0)
		r = list_files(&d->notes, stale_file, &x);
	for (unsigned t = 0; r == 0 && t < TABLES_NOTED; t++) {
		x.table = (enum table_id)t;
		snprintf(sql, sizeof(sql), "SELECT * FROM %s WHERE %s", tables[t]->name,
			 tables[t]->noted_rows ? tables[t]->noted_rows : "true");
		r = q_each(d, sql, sync_row, &x, "write notes", NULL);
	}
	if (r == 0)
		r = remove_stale(&x);
	map_done(&x.stale);
	return r < 0 ? err_sys(e, r == -ENOSPC ? WHY_NO_HOST_SPACE : WHY_INTERNAL, r, "state: write notes") : 0;
}

/* --- the way back --- */

struct noted_column {
	struct piece name, value;
	uint8_t type;
};

static int decode(const struct buf *b, enum table_id *ret_table, struct noted_column *c, unsigned *ret_n)
{
	struct piece p = { b->data, (uint32_t)b->len }, name;
	uint8_t sum[SHA256_SIZE];
	unsigned n = 0, t = 0;
	char magic[sizeof(MAGIC) - 1];

	if (b->len < sizeof(magic) + SUM)
		return -EBADMSG;
	sum_of(b->data, b->len - SUM, sum);
	p.len -= SUM;
	if (memcmp(sum, b->data + b->len - SUM, SUM) || !take(&p, magic, sizeof(magic)) ||
	    memcmp(magic, MAGIC, sizeof(magic)) || !take_bytes(&p, &name))
		return -EBADMSG;
	while (t < TABLES_NOTED &&
	       (strlen(tables[t]->name) != name.len || memcmp(tables[t]->name, name.data, name.len)))
		t++;
	for (; p.len && n < COLUMNS_MAX; n++)
		if (!take_bytes(&p, &c[n].name) || !take(&p, &c[n].type, 1) || !take_bytes(&p, &c[n].value))
			return -EBADMSG;
	if (t == TABLES_NOTED || p.len || !n)
		return -EBADMSG;
	*ret_table = (enum table_id)t;
	*ret_n = n;
	return 0;
}

static char *text_of(const struct noted_column *c)
{
	return c->type == SQLITE_TEXT ? strndup(c->value.data, c->value.len) : NULL;
}

/* What a power cut has left in a file that had another name before is of that. */
static bool fits_name(enum table_id t, const struct noted_column *c, unsigned n, const char *name)
{
	char *key[2] = { NULL, NULL }, is[NAME_SIZE];
	uint64_t number = 0;
	bool fits = false;

	for (unsigned i = 0; i < n; i++) {
		const int part = part_of_key(tables[t], c[i].name.data, c[i].name.len);

		if (part == 0 || part == 1) {
			free(key[part]); /* a column that is there twice */
			key[part] = text_of(&c[i]);
		} else if (part == 2 && c[i].value.len == sizeof(number)) {
			memcpy(&number, c[i].value.data, sizeof(number));
		}
	}
	if (key[0]) {
		name_of(t, key[0], key[1], number, is);
		fits = !strcmp(is, name);
	}
	free(key[0]);
	free(key[1]);
	return fits;
}

static void bind(sqlite3_stmt *s, int at, const struct noted_column *c)
{
	int64_t number = 0;

	if (c->type == SQLITE_INTEGER && c->value.len == sizeof(number)) {
		memcpy(&number, c->value.data, sizeof(number));
		sqlite3_bind_int64(s, at, number);
	} else if (c->type == SQLITE_TEXT) {
		sqlite3_bind_text(s, at, c->value.data, (int)c->value.len, SQLITE_STATIC);
	} else if (c->type == SQLITE_BLOB) {
		sqlite3_bind_blob(s, at, c->value.data, (int)c->value.len, SQLITE_STATIC);
	} else {
		sqlite3_bind_null(s, at);
	}
}

static int insert(struct db *d, enum table_id t, const struct noted_column *c, unsigned n)
{
	AUTO(buf_done) struct buf sql = BUF_INIT(64 * KIB);
	sqlite3_stmt *s = NULL;
	int r = buf_addf(&sql, "INSERT OR REPLACE INTO %s (", tables[t]->name);

	for (unsigned i = 0; r == 0 && i < n; i++)
		r = buf_addf(&sql, "%s\"%.*s\"", i ? "," : "", (int)c[i].name.len, c[i].name.data);
	if (r == 0)
		r = buf_adds(&sql, ") VALUES (");
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = buf_adds(&sql, i ? ",?" : "?");
	if (r == 0)
		r = buf_adds(&sql, ")");
	if (r < 0)
		return r;
	for (unsigned i = 0; i < n; i++) /* our own columns have plain names */
		for (uint32_t k = 0; k < c[i].name.len; k++)
			if (c[i].name.data[k] != '_' && (c[i].name.data[k] < 'a' || c[i].name.data[k] > 'z') &&
			    (c[i].name.data[k] < '0' || c[i].name.data[k] > '9'))
				return -EBADMSG;
	if (sqlite3_prepare_v2(d->sql, sql.data, -1, &s, NULL) != SQLITE_OK)
		return -EBADMSG;
	for (unsigned i = 0; i < n; i++)
		bind(s, (int)i + 1, &c[i]);
	r = sqlite3_step(s) == SQLITE_DONE ? 0 : -EBADMSG;
	sqlite3_finalize(s);
	return r;
}

struct restore {
	struct db *d;
	unsigned *count;
	bool look; /* only count */
};

static int restore_one(void *arg, const char *name)
{
	AUTO(buf_done) struct buf b = BUF_INIT(NOTE_MAX);
	struct noted_column c[COLUMNS_MAX];
	struct restore *x = arg;
	enum table_id t;
	char bad[NAME_SIZE + sizeof(BAD)];
	unsigned n;
	int r = read_file(&x->d->notes, name, &b);

	if (r == 0)
		r = decode(&b, &t, c, &n);
	if (r == 0 && !fits_name(t, c, n, name))
		r = -EBADMSG;
	if (r == 0 && !x->look)
		r = insert(x->d, t, c, n);
	if (r == 0) {
		x->count[t]++;
		return 0;
	}
	if (r != -EBADMSG)
		return r;
	if (!x->look) {
		log_error("note '%s' cannot be read: it is kept as '%s" BAD "'", name, name);
		snprintf(bad, sizeof(bad), "%.*s" BAD, NAME_SIZE - 1, name);
		renameat(x->d->notes.dir, name, x->d->notes.dir, bad);
		map_del(&x->d->notes.have, name);
	}
	return 0;
}

/* Removes rows that refer to a missing row. The order matters, since they may refer to each other. */
static const char orphans[] =
	"DELETE FROM tokens WHERE tenant NOT IN (SELECT id FROM tenants);"
	"DELETE FROM templates WHERE tenant NOT IN (SELECT id FROM tenants);"
	"DELETE FROM pools WHERE NOT EXISTS (SELECT 1 FROM templates t WHERE t.tenant = pools.tenant AND t.name = "
	"pools.template);"
	"DELETE FROM secrets WHERE tenant NOT IN (SELECT id FROM tenants);"
	"DELETE FROM secret_values WHERE NOT EXISTS"
	" (SELECT 1 FROM secrets t WHERE t.tenant = secret_values.tenant AND t.name = secret_values.name);"
	"DELETE FROM idem WHERE tenant NOT IN (SELECT id FROM tenants);"
	"DELETE FROM execs WHERE box NOT IN (SELECT id FROM boxes);"
	"DELETE FROM ports WHERE box NOT IN (SELECT id FROM boxes);"
	"DELETE FROM nets WHERE box NOT IN (SELECT id FROM boxes);"
	"DELETE FROM net_names WHERE box NOT IN (SELECT id FROM boxes)";

static int replace_all(struct db *d, unsigned count[TABLES_NOTED], struct err *e)
{
	struct restore x = { .d = d, .count = count };
	char sql[128];
	int r = 0;

	for (unsigned t = 0; r == 0 && t < TABLES_NOTED; t++) {
		snprintf(sql, sizeof(sql), "DELETE FROM %s WHERE %s", tables[t]->name,
			 tables[t]->noted_rows ? tables[t]->noted_rows : "true");
		if (sqlite3_exec(d->sql, sql, NULL, NULL, NULL) != SQLITE_OK)
			r = db_fail(d->sql, e, "rebuild");
	}
	if (r == 0) {
		r = list_files(&d->notes, restore_one, &x);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "state: read notes");
	}
	snprintf(sql, sizeof(sql), "UPDATE boxes SET next_exec = next_exec + %d", SKIP_NUMBERS);
	if (r == 0 && (sqlite3_exec(d->sql, orphans, NULL, NULL, NULL) != SQLITE_OK ||
		       sqlite3_exec(d->sql, sql, NULL, NULL, NULL) != SQLITE_OK))
		r = db_fail(d->sql, e, "rebuild");
	return r;
}

int notes_restore(struct db *d, unsigned ret_count[TABLES_NOTED], struct err *e)
{
	struct restore look = { .d = d, .count = ret_count, .look = true };
	int r;

	memset(ret_count, 0, TABLES_NOTED * sizeof(*ret_count));
	r = list_files(&d->notes, restore_one, &look);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "state: read notes");
	if (!ret_count[TABLE_TENANTS])
		return 0;
	memset(ret_count, 0, TABLES_NOTED * sizeof(*ret_count));
	if (sqlite3_exec(d->sql, "PRAGMA foreign_keys=OFF; BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
		return db_fail(d->sql, e, "rebuild");
	r = replace_all(d, ret_count, e);
	if (r == 0 && sqlite3_exec(d->sql, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
		r = db_fail(d->sql, e, "rebuild");
	if (r < 0)
		sqlite3_exec(d->sql, "ROLLBACK", NULL, NULL, NULL);
	sqlite3_exec(d->sql, "PRAGMA foreign_keys=ON", NULL, NULL, NULL);
	return r < 0 ? r : 1;
}
