/*
 * A line that is being typed on a terminal in raw mode: editing, history, pasted text. It is fed with the bytes that come from
 * the keyboard and writes what the terminal should show into a buffer; it reads and writes no descriptor itself.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define LINE_MAX_BYTES (4 * MIB)
#define LINE_PAST_MAX 1000U /* lines of history */

enum line_event {
	LINE_MORE, /* nothing to do but draw it */
	LINE_DONE, /* ->text is a line */
	LINE_PASTED, /* the same, and more lines of the same paste follow */
	LINE_CANCEL, /* Ctrl-C */
	LINE_END, /* Ctrl-D on an empty line */
	LINE_TAB,
	LINE_CLEAR, /* Ctrl-L */
};

struct line {
	struct buf text, own; /* what is shown; what was typed before history was shown */
	size_t at; /* bytes before the cursor */
	char *past[LINE_PAST_MAX]; /* oldest first */
	size_t npast, shown; /* ->shown == ->npast: no line of history */
	char seq[16]; /* of an escape sequence */
	size_t nseq;
	bool escaped, pasting, cr;
};

void line_init(struct line *l);
void line_done(struct line *l);
enum line_event line_feed(struct line *l, unsigned char c);
/* Replaces bytes before the cursor. */
void line_replace(struct line *l, size_t before, const char *text);
/* The next line begins with @text. */
void line_begin(struct line *l, const char *text);
void line_remember(struct line *l, const char *text);
/* Draws it again in its row: @prompt is ASCII. */
void line_draw(const struct line *l, const char *prompt, unsigned columns, struct buf *out);
