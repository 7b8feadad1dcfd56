/*
 * Text from elsewhere made fit for a terminal: what could move the cursor, change colours or turn the direction of
 * writing is shown as \x1b or \u202e. Widths are in columns.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Appends @text, escaped. Nothing else is changed; line feeds and tabs are escaped too. */
int text_escape(struct buf *b, const char *text, size_t len);
/* Columns of text that text_escape() made. */
size_t text_width(const char *text);
/* Bytes of the longest start of such text with at most @columns. */
size_t text_cut(const char *text, size_t columns);

/* "1.5G", "512M", "17" */
const char *text_size(uint64_t bytes, char *buf, size_t size);
/* "3d", "5h", "12m", "7s"; 0 is "0s" */
const char *text_span(uint64_t seconds, char *buf, size_t size);
