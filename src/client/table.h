/*
 * A table with aligned columns. Cells are escaped when they are added, so a table may contain any text from a server.
 * Lines are cut to the terminal's width and contain no tabs.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define TABLE_COLUMNS 16

struct table {
	const char *const *titles;
	size_t columns, rows;
	unsigned right; /* bit per column: numbers are aligned to the right */
	size_t width[TABLE_COLUMNS];
	struct buf cells; /* all of them, one after the other, each with its NUL */
	size_t count;
	int r;
};

void table_init(struct table *t, const char *const *titles, size_t columns, unsigned right);
void table_done(struct table *t);
static inline void table_donep(struct table *t)
{
	table_done(t);
}
/* The next cell; NULL and "" are shown as "-". An error sticks. */
void table_add(struct table *t, const char *text);
void table_addf(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Everything, into @out. Lines are at most @width columns; 0: as long as they are. At most @lines of them; 0: all. */
int table_write(const struct table *t, size_t width, size_t lines, struct buf *out);
/* To stdout, cut when that is a terminal. */
int table_print(const struct table *t, struct err *e);
