/* Edits one line: keys and escape sequences of terminals, history, bracketed paste. */
#include "client/line.h"
#include "base/base.h"
#include "client/text.h"

#include <stdlib.h>

void line_init(struct line *l)
{
	memset(l, 0, sizeof(*l));
	l->text = l->own = (struct buf)BUF_INIT(LINE_MAX_BYTES);
}

void line_done(struct line *l)
{
	buf_done(&l->text);
	buf_done(&l->own);
	for (size_t i = 0; i < l->npast; i++)
		free(l->past[i]);
	l->npast = 0;
}

static bool continues(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* --- the text --- */

static void set_text(struct line *l, const char *text)
{
	buf_clear(&l->text);
	buf_adds(&l->text, text);
	l->at = l->text.len;
}

void line_replace(struct line *l, size_t before, const char *text)
{
	AUTO(buf_done) struct buf rest = BUF_INIT(LINE_MAX_BYTES);

	if (before > l->at)
		before = l->at;
	buf_add(&rest, buf_str(&l->text) + l->at, l->text.len - l->at);
	buf_cut(&l->text, l->at - before);
	buf_adds(&l->text, text);
	l->at = l->text.len;
	buf_add(&l->text, buf_str(&rest), rest.len);
}

void line_begin(struct line *l, const char *text)
{
	l->shown = l->npast;
	set_text(l, text);
}

static size_t left_of(const struct line *l, size_t at)
{
	while (at && continues(l->text.data[--at]))
		;
	return at;
}

static size_t right_of(const struct line *l, size_t at)
{
	if (at < l->text.len)
		at++;
	while (at < l->text.len && continues(l->text.data[at]))
		at++;
	return at;
}

static void erase_left(struct line *l, size_t to)
{
	line_replace(l, l->at - to, "");
}

static void erase_right(struct line *l, size_t to)
{
	const size_t n = to - l->at;

	l->at = to;
	line_replace(l, n, "");
}

static size_t word_left(const struct line *l)
{
	size_t at = l->at;

	while (at && l->text.data[at - 1] == ' ')
		at--;
	while (at && l->text.data[at - 1] != ' ')
		at--;
	return at;
}

/* --- history --- */

void line_remember(struct line *l, const char *text)
{
	char *copy;

	if (!*text || (l->npast && !strcmp(l->past[l->npast - 1], text)))
		return;
	copy = strdup(text);
	if (!copy)
		return;
	if (l->npast == LINE_PAST_MAX) {
		free(l->past[0]);
		memmove(l->past, l->past + 1, sizeof(l->past[0]) * --l->npast);
	}
	l->past[l->npast++] = copy;
	l->shown = l->npast;
}

static void show_past(struct line *l, bool older)
{
	if (older ? !l->shown : l->shown == l->npast)
		return;
	if (l->shown == l->npast) {
		buf_clear(&l->own);
		buf_add(&l->own, buf_str(&l->text), l->text.len);
	}
	l->shown = older ? l->shown - 1 : l->shown + 1;
	set_text(l, l->shown < l->npast ? l->past[l->shown] : buf_str(&l->own));
}

/* --- keys --- */

static enum line_event sequence(struct line *l, char last)
{
	static const struct {
		const char *seq;
		char as;
	} tilde[] = { { "1", 'H' }, { "7", 'H' },   { "4", 'F' },  { "8", 'F' },
		      { "3", 'X' }, { "200", '(' }, { "201", ')' } };

	for (size_t i = 0; last == '~' && i < ARRAY_LEN(tilde); i++)
		if (!strcmp(l->seq, tilde[i].seq)) {
			last = tilde[i].as;
			break;
		}
	if (last == 'A' || last == 'B')
		show_past(l, last == 'A');
	else if (last == 'C')
		l->at = right_of(l, l->at);
	else if (last == 'D')
		l->at = left_of(l, l->at);
	else if (last == 'H')
		l->at = 0;
	else if (last == 'F')
		l->at = l->text.len;
	else if (last == 'X')
		erase_right(l, right_of(l, l->at));
	else if (last == '(' || last == ')')
		l->pasting = last == '(';
	return LINE_MORE;
}

static enum line_event escape(struct line *l, unsigned char c)
{
	if (!l->nseq && (c == '[' || c == 'O')) {
		l->seq[l->nseq++] = (char)c;
		return LINE_MORE;
	}
	if (l->nseq && c >= 0x20 && c < 0x40 && l->nseq < sizeof(l->seq) - 1) {
		l->seq[l->nseq++] = (char)c;
		return LINE_MORE;
	}
	l->escaped = false;
	if (!l->nseq)
		return LINE_MORE;
	l->seq[l->nseq] = '\0';
	memmove(l->seq, l->seq + 1, l->nseq);
	return sequence(l, (char)c);
}

static enum line_event control(struct line *l, unsigned char c)
{
	switch (c) {
	case 1: /* A */
		l->at = 0;
		break;
	case 2: /* B */
		l->at = left_of(l, l->at);
		break;
	case 3: /* C */
		return LINE_CANCEL;
	case 4: /* D */
		if (!l->text.len)
			return LINE_END;
		erase_right(l, right_of(l, l->at));
		break;
	case 5: /* E */
		l->at = l->text.len;
		break;
	case 6: /* F */
		l->at = right_of(l, l->at);
		break;
	case 8:
	case 127:
		erase_left(l, left_of(l, l->at));
		break;
	case 9:
		return LINE_TAB;
	case 11: /* K */
		erase_right(l, l->text.len);
		break;
	case 12: /* L */
		return LINE_CLEAR;
	case 14: /* N */
	case 16: /* P */
		show_past(l, c == 16);
		break;
	case 21: /* U */
		erase_left(l, 0);
		break;
	case 23: /* W */
		erase_left(l, word_left(l));
		break;
	default:
		break;
	}
	return LINE_MORE;
}

enum line_event line_feed(struct line *l, unsigned char c)
{
	const char text[2] = { (char)c, '\0' };
	const bool second = l->cr && c == '\n';

	l->cr = c == '\r';
	if (second)
		return LINE_MORE;
	if (l->escaped)
		return escape(l, c);
	if (c == '\r' || c == '\n')
		return l->pasting ? LINE_PASTED : LINE_DONE;
	if (c == 27) {
		l->escaped = true;
		l->nseq = 0;
		return LINE_MORE;
	}
	if ((c < 32 && !(c == '\t' && l->pasting)) || c == 127)
		return control(l, c);
	line_replace(l, 0, text);
	return LINE_MORE;
}

/* --- what is seen --- */

static size_t width(const char *text, size_t len)
{
	AUTO(buf_done) struct buf b = BUF_INIT(8 * LINE_MAX_BYTES);

	return text_escape(&b, text, len) < 0 ? 0 : text_width(buf_str(&b));
}

void line_draw(const struct line *l, const char *prompt, unsigned columns, struct buf *out)
{
	AUTO(buf_done) struct buf shown = BUF_INIT(8 * LINE_MAX_BYTES);
	const char *text = buf_str(&l->text);
	const size_t room = columns > strlen(prompt) + 2 ? columns - strlen(prompt) - 1 : 1;
	const size_t most = 8 * room + 64; /* bytes that can be seen: what is further away is not even measured */
	size_t from = l->at > most ? l->at - most : 0, before;

	while (from < l->at && continues(text[from]))
		from++;
	/* A long line is shown around its cursor. */
	while (from < l->at && width(text + from, l->at - from) > room)
		from = right_of(l, from + (l->at - from > 2 * room ? l->at - from - 2 * room : 0));
	before = width(text + from, l->at - from);
	text_escape(&shown, text + from, l->text.len - from < 2 * most ? l->text.len - from : 2 * most);
	buf_cut(&shown, text_cut(buf_str(&shown), room));
	buf_addf(out, "\r%s", prompt);
	buf_add(out, buf_str(&shown), shown.len);
	buf_adds(out, "\x1b[K\r");
	buf_addf(out, "\x1b[%zuC", strlen(prompt) + before);
}
