/* Prints tables. */
#include "client/table.h"
#include "base/base.h"
#include "client/text.h"
#include "client/tty.h"

#include <stdarg.h>
#include <unistd.h>

void table_init(struct table *t, const char *const *titles, size_t columns, unsigned right)
{
	assert(columns && columns <= TABLE_COLUMNS);
	*t = (struct table){ .titles = titles, .columns = columns, .right = right, .cells = BUF_INIT(64 * MIB) };
	for (size_t i = 0; i < columns; i++)
		t->width[i] = strlen(titles[i]);
}

void table_done(struct table *t)
{
	buf_done(&t->cells);
}

void table_add(struct table *t, const char *text)
{
	size_t start = t->cells.len, width, column = t->count % t->columns;

	if (t->r < 0)
		return;
	if (!text || !*text)
		text = "-";
	t->r = text_escape(&t->cells, text, strlen(text));
	if (t->r < 0)
		return;
	width = text_width(t->cells.data + start);
	if (width > t->width[column])
		t->width[column] = width;
	t->r = buf_addc(&t->cells, '\0');
	t->count++;
}

void table_addf(struct table *t, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	table_add(t, text);
}

static int add_cell(const struct table *t, size_t column, const char *text, struct buf *line)
{
	size_t width = text_width(text), gap = t->width[column] > width ? t->width[column] - width : 0;
	bool last = column + 1 == t->columns, right = t->right & 1U << column;
	int r = 0;

	for (size_t i = 0; right && i < gap && r == 0; i++)
		r = buf_addc(line, ' ');
	if (r == 0)
		r = buf_adds(line, text);
	for (size_t i = 0; !right && !last && i < gap && r == 0; i++)
		r = buf_addc(line, ' ');
	if (r == 0 && !last)
		r = buf_adds(line, "  ");
	return r;
}

static int end_line(struct buf *line, size_t width, struct buf *out)
{
	int r;

	if (width && text_width(buf_str(line)) > width)
		buf_cut(line, text_cut(buf_str(line), width));
	while (line->len && line->data[line->len - 1] == ' ')
		buf_cut(line, line->len - 1);
	r = buf_add(out, buf_str(line), line->len);
	buf_clear(line);
	return r < 0 ? r : buf_addc(out, '\n');
}

int table_write(const struct table *t, size_t width, size_t lines, struct buf *out)
{
	AUTO(buf_done) struct buf line = BUF_INIT(1 * MIB);
	const char *at = buf_str(&t->cells);
	size_t done = 1;
	int r = t->r;

	for (size_t i = 0; i < t->columns && r == 0; i++)
		r = add_cell(t, i, t->titles[i], &line);
	if (r == 0)
		r = end_line(&line, width, out);
	for (size_t n = 0; n < t->count && r == 0; n++) {
		if (n % t->columns == 0 && lines && done++ >= lines)
			break;
		r = add_cell(t, n % t->columns, at, &line);
		at += strlen(at) + 1;
		if (r == 0 && (n + 1) % t->columns == 0)
			r = end_line(&line, width, out);
	}
	return r;
}

int table_print(const struct table *t, struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(128 * MIB);
	unsigned rows, columns;
	int r;

	r = table_write(t, tty_size(STDOUT_FILENO, &rows, &columns) == 0 ? columns : 0, 0, &out);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make the table");
	fwrite(buf_str(&out), 1, out.len, stdout);
	return 0;
}
