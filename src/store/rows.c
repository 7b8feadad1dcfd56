/* Writes and reads the rows of a table by its description. */
#include "store/rows.h"
#include "base/base.h"
#include "store/impl.h"

#include <stdarg.h>

#define SQL_SIZE 1024

/* --- the text of a statement --- */

struct text {
	char s[SQL_SIZE];
	size_t n;
};

static void add(struct text *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *x, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	x->n += (size_t)vsnprintf(x->s + x->n, sizeof(x->s) - x->n, fmt, ap);
	va_end(ap);
	if (x->n >= sizeof(x->s))
		abort();
}

/* Names of columns, or "name=?place" of each, for those of one role. */
static void add_columns(struct text *x, const struct table *t, enum column_role role, bool places, const char *between)
{
	const char *sep = "";

	for (size_t i = 0; i < t->n; i++) {
		if (t->columns[i].role != role)
			continue;
		add(x, "%s%s", sep, t->columns[i].name);
		if (places)
			add(x, "=?%zu", i + 1);
		sep = between;
	}
}

static void add_all(struct text *x, const struct table *t)
{
	for (size_t i = 0; i < t->n; i++)
		add(x, "%s%s", i ? "," : "", t->columns[i].name);
}

static void add_insert(struct text *x, const struct table *t)
{
	add(x, "INSERT INTO %s (", t->name);
	add_all(x, t);
	add(x, ") VALUES (");
	for (size_t i = 0; i < t->n; i++)
		add(x, "%s?%zu", i ? "," : "", i + 1);
	add(x, ")");
}

static void statement(struct text *x, const struct table *t, enum row_call call)
{
	if (call == ROW_INSERT || call == ROW_PUT)
		add_insert(x, t);
	if (call == ROW_PUT) {
		add(x, " ON CONFLICT (");
		add_columns(x, t, COLUMN_KEY, false, ",");
		add(x, ") DO UPDATE SET ");
		add_columns(x, t, COLUMN_VALUE, true, ",");
	}
	if (call == ROW_UPDATE) {
		add(x, "UPDATE %s SET ", t->name);
		add_columns(x, t, COLUMN_VALUE, true, ",");
	}
	if (call == ROW_DROP)
		add(x, "DELETE FROM %s", t->name);
	if (call == ROW_UPDATE || call == ROW_DROP) {
		add(x, " WHERE ");
		add_columns(x, t, COLUMN_KEY, true, " AND ");
	}
}

/* --- values --- */

static uint64_t number_of(const struct column *c, const void *row)
{
	const char *p = (const char *)row + c->at;
	uint64_t wide;
	uint32_t word;
	uint16_t half;

	switch (c->size) {
	case sizeof(half):
		memcpy(&half, p, sizeof(half));
		return half;
	case sizeof(word):
		memcpy(&word, p, sizeof(word));
		return word;
	default:
		memcpy(&wide, p, sizeof(wide));
		return wide;
	}
}

static void set_number(const struct column *c, void *row, uint64_t v)
{
	const uint16_t half = (uint16_t)v;
	const uint32_t word = (uint32_t)v;
	char *p = (char *)row + c->at;

	switch (c->size) {
	case sizeof(half):
		memcpy(p, &half, sizeof(half));
		return;
	case sizeof(word):
		memcpy(p, &word, sizeof(word));
		return;
	default:
		memcpy(p, &v, sizeof(v));
	}
}

static const void *pointer_of(size_t at, const void *row)
{
	const void *p;

	memcpy(&p, (const char *)row + at, sizeof(p));
	return p;
}

static void bind(sqlite3_stmt *s, int at, const struct column *c, const void *row)
{
	const uint8_t *bytes = (const uint8_t *)row + c->at;
	const char *text;
	size_t len;

	switch (c->type) {
	case COLUMN_TEXT:
		q_text(s, at, pointer_of(c->at, row));
		break;
	case COLUMN_TEXT_OR_EMPTY:
		text = pointer_of(c->at, row);
		q_text(s, at, text ? text : "");
		break;
	case COLUMN_NUMBER:
		q_u64(s, at, number_of(c, row));
		break;
	case COLUMN_FLAG:
		q_u64(s, at, *(const bool *)bytes);
		break;
	case COLUMN_HASH:
		q_hash(s, at, bytes);
		break;
	case COLUMN_SUM:
		sqlite3_bind_blob(s, at, bytes, 32, SQLITE_STATIC);
		break;
	case COLUMN_BLOB: /* a failure is returned by q_run: the column must not be NULL */
		memcpy(&len, (const char *)row + c->len_at, sizeof(len));
		sqlite3_bind_blob64(s, at, pointer_of(c->at, row), len, SQLITE_STATIC);
	}
}

void rows_read(const struct table *t, sqlite3_stmt *s, void *ret_row)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct column *c = &t->columns[i];
		char *to = (char *)ret_row + c->at;
		const void *p;
		size_t len;

		switch (c->type) {
		case COLUMN_TEXT:
		case COLUMN_TEXT_OR_EMPTY:
			p = q_get_text(s, (int)i);
			memcpy(to, &p, sizeof(p));
			break;
		case COLUMN_NUMBER:
			set_number(c, ret_row, q_get_u64(s, (int)i));
			break;
		case COLUMN_FLAG:
			*(bool *)to = q_get_u64(s, (int)i) != 0;
			break;
		case COLUMN_HASH:
		case COLUMN_SUM:
			q_get_hash(s, (int)i, (uint8_t *)to);
			break;
		case COLUMN_BLOB:
			p = sqlite3_column_blob(s, (int)i);
			len = (size_t)sqlite3_column_bytes(s, (int)i);
			memcpy(to, &p, sizeof(p));
			memcpy((char *)ret_row + c->len_at, &len, sizeof(len));
		}
	}
}

/* --- calls --- */

/* The first column is the key, or the first part of it. */
static const char *key_of(const struct table *t, const void *row)
{
	return pointer_of(t->columns[0].at, row);
}

static void note(struct db *d, const struct table *t, const void *row)
{
	const char *key[2] = { NULL, NULL };
	uint64_t number = 0;
	size_t n = 0;

	if (!t->noted)
		return;
	for (size_t i = 0; i < t->n; i++) {
		const struct column *c = &t->columns[i];

		if (c->role == COLUMN_KEY && c->type == COLUMN_TEXT)
			key[n++] = pointer_of(c->at, row);
		else if (c->role == COLUMN_KEY)
			number = number_of(c, row);
	}
	note_row(d, t->id, key[0], key[1], number);
}

/* How many rows were changed. */
static int run(struct db *d, const struct table *t, enum row_call call, const void *row, struct err *e)
{
	/* These do not refer to rows that may still be pending. */
	const bool alone = t->id == TABLE_SANDBOXES && (call == ROW_INSERT || call == ROW_DROP);
	sqlite3_stmt **kept = &d->row[t->id][call];
	struct text sql = { .n = 0 };
	sqlite3_stmt *s;
	char what[64];
	int r;

	if (!*kept)
		statement(&sql, t, call);
	r = q_turn(d, alone, !t->slight, e);
	if (r == 0)
		r = q_keep(d, kept, sql.s, &s, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < t->n; i++) {
		const enum column_role role = t->columns[i].role;

		if (role == COLUMN_KEY || (call != ROW_DROP && (role == COLUMN_VALUE || call != ROW_UPDATE)))
			bind(s, (int)i + 1, &t->columns[i], row);
	}
	note(d, t, row);
	snprintf(what, sizeof(what), "%s %s", call == ROW_DROP ? "delete" : "store", t->one);
	return q_run(d, s, what, e);
}

int rows_insert(struct db *d, const struct table *t, const void *row, struct err *e)
{
	const int r = run(d, t, ROW_INSERT, row, e);

	return r < 0 ? r : 0;
}

int rows_put(struct db *d, const struct table *t, const void *row, struct err *e)
{
	const int r = run(d, t, ROW_PUT, row, e);

	return r < 0 ? r : 0;
}

int rows_update(struct db *d, const struct table *t, const void *row, struct err *e)
{
	const int r = run(d, t, ROW_UPDATE, row, e);

	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "state: no %s '%s'", strchr(t->one, ' ') + 1, key_of(t, row));
	return r < 0 ? r : 0;
}

int rows_drop(struct db *d, const struct table *t, const void *row, struct err *e)
{
	const int r = run(d, t, ROW_DROP, row, e);

	return r < 0 ? r : 0;
}

int rows_each(struct db *d, const struct table *t, int (*row)(void *ctx, sqlite3_stmt *s), void *ctx, struct err *e)
{
	struct text sql = { .n = 0 };
	char what[64];

	add(&sql, "SELECT ");
	add_all(&sql, t);
	add(&sql, " FROM %s ORDER BY %s", t->name, t->order);
	snprintf(what, sizeof(what), "load %s", t->all);
	return q_each(d, sql.s, row, ctx, what, e);
}
