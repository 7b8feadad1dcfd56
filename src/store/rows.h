/*
 * A table is described once: its columns, where their values are in a struct of db.h, which of them are the key, and which are
 * never changed. Statements, binding, reading and notes follow from that.
 */
#pragma once
#include <sqlite3.h>
#include <stddef.h>

#include "store/note.h"

/* What is done with a row; each is a statement of its table. */
enum row_call { ROW_INSERT, ROW_PUT, ROW_UPDATE, ROW_DROP, ROW_CALLS };

enum column_type {
	COLUMN_TEXT, /* NULL is NULL */
	COLUMN_TEXT_OR_EMPTY, /* NULL is "" */
	COLUMN_NUMBER, /* unsigned, of the member's size */
	COLUMN_FLAG, /* bool */
	COLUMN_HASH, /* 32 bytes, zeros are NULL */
	COLUMN_SUM, /* 32 bytes */
	COLUMN_BLOB, /* a pointer; its length is the struct's member `len` */
};

enum column_role {
	COLUMN_VALUE,
	COLUMN_KEY,
	COLUMN_FIXED, /* written by the first write only */
};

struct column {
	const char *name;
	enum column_type type;
	enum column_role role;
	size_t at, size, len_at;
};

/* A column that has its member's name, or another one. */
#define COLUMN_AS(row, member, name, type, role)                                                                       \
	{                                                                                                              \
		name, type, role, offsetof(row, member), sizeof(((row *)0)->member), 0                                 \
	}
#define COLUMN(row, member, type, role) COLUMN_AS(row, member, #member, type, role)

struct table {
	const char *name, *order; /* of the rows when they are loaded */
	const char *one, *all; /* "a template", "the templates": for messages */
	const struct column *columns;
	size_t n;
	enum table_id id;
	bool noted; /* each write is one of a row that has a note */
	const char *noted_rows; /* a condition: others have no note */
	bool slight; /* written often, and no great loss: execs that are over, and what networks have used */
};

extern const struct table tenants_table, tokens_table, sandboxes_table, checkpoints_table, templates_table, pools_table,
	secrets_table, secret_values_table, ports_table, execs_table, images_table, image_layers_table;

/* @row is the struct of db.h that the columns were described with. */
int rows_insert(struct db *d, const struct table *t, const void *row, struct err *e);
int rows_put(struct db *d, const struct table *t, const void *row,
	     struct err *e); /* insert, or change what may change */
int rows_update(struct db *d, const struct table *t, const void *row, struct err *e); /* -ENOENT: there is none */
int rows_drop(struct db *d, const struct table *t, const void *row, struct err *e); /* of @row, only the key is read */
int rows_each(struct db *d, const struct table *t, int (*row)(void *ctx, sqlite3_stmt *s), void *ctx, struct err *e);
/* Reads a row of rows_each(). */
void rows_read(const struct table *t, sqlite3_stmt *s, void *ret_row);

/* Defines int NAME(struct db *, const ROW *, struct err *). */
#define DEFINE_PUT(name, row_type, table)                                                                              \
	int name(struct db *d, const row_type *row, struct err *e)                                                     \
	{                                                                                                              \
		return rows_put(d, &(table), row, e);                                                                  \
	}

/* Defines int NAME(struct db *, int (*fn)(void *arg, const ROW *), void *arg, struct err *). */
#define DEFINE_EACH(name, row_type, table)                                                                             \
	struct name##_call {                                                                                           \
		int (*fn)(void *arg, const row_type *row);                                                             \
		void *arg;                                                                                             \
	};                                                                                                             \
	static int name##_row(void *ctx, sqlite3_stmt *s)                                                              \
	{                                                                                                              \
		const struct name##_call *x = ctx;                                                                     \
		row_type row = { 0 };                                                                                  \
                                                                                                                       \
		rows_read(&(table), s, &row);                                                                          \
		return x->fn(x->arg, &row);                                                                            \
	}                                                                                                              \
	int name(struct db *d, int (*fn)(void *arg, const row_type *row), void *arg, struct err *e)                    \
	{                                                                                                              \
		return rows_each(d, &(table), name##_row, &(struct name##_call){ fn, arg }, e);                        \
	}
