/* Makes text from elsewhere harmless for a terminal. */
#include "client/text.h"
#include "base/base.h"

#include <wchar.h>

/* Characters without a picture that change how others are read. */
static bool is_hidden(wchar_t c)
{
	return (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
	       c == 0xfeff || c == 0x61c || (c >= 0xe0000 && c <= 0xe0fff);
}

int text_escape(struct buf *b, const char *text, size_t len)
{
	mbstate_t state = { 0 };
	int r = 0;

	while (len && r == 0) {
		wchar_t c;
		size_t n = mbrtowc(&c, text, len, &state);

		if (n == 0)
			n = 1; /* a NUL byte */
		if (n > len) { /* (size_t)-1 and -2: no character */
			state = (mbstate_t){ 0 };
			r = buf_addf(b, "\\x%02x", (unsigned char)*text);
			n = 1;
		} else if (!c || wcwidth(c) < 0 || is_hidden(c)) {
			r = c == '\n' ? buf_adds(b, "\\n") :
			    c == '\t' ? buf_adds(b, "\\t") :
			    c < 0x80  ? buf_addf(b, "\\x%02x", (unsigned)c) :
					buf_addf(b, "\\u%04x", (unsigned)c);
		} else {
			r = buf_add(b, text, n);
		}
		text += n;
		len -= n;
	}
	return r;
}

size_t text_cut(const char *text, size_t columns)
{
	mbstate_t state = { 0 };
	size_t at = 0, width = 0, len = strlen(text);

	while (at < len) {
		wchar_t c;
		size_t n = mbrtowc(&c, text + at, len - at, &state);
		int w;

		if (n == 0 || n > len - at) {
			state = (mbstate_t){ 0 };
			n = 1;
			w = 1;
		} else {
			w = wcwidth(c) < 0 ? 1 : wcwidth(c);
		}
		if (width + (size_t)w > columns)
			break;
		width += (size_t)w;
		at += n;
	}
	return at;
}

size_t text_width(const char *text)
{
	mbstate_t state = { 0 };
	size_t width = 0, len = strlen(text);

	while (len) {
		wchar_t c;
		size_t n = mbrtowc(&c, text, len, &state);

		if (n == 0 || n > len) {
			state = (mbstate_t){ 0 };
			n = 1;
			c = '?';
		}
		width += wcwidth(c) < 0 ? 1 : (size_t)wcwidth(c);
		text += n;
		len -= n;
	}
	return width;
}

const char *text_size(uint64_t bytes, char *buf, size_t size)
{
	static const char units[] = "KMGTPE";
	uint64_t unit = 1024;
	size_t i = 0;

	if (bytes < 1024) {
		snprintf(buf, size, "%llu", (unsigned long long)bytes);
		return buf;
	}
	while (i < sizeof(units) - 2 && bytes / unit >= 1024) {
		unit *= 1024;
		i++;
	}
	if (bytes % unit && bytes / unit < 10)
		snprintf(buf, size, "%llu.%llu%c", (unsigned long long)(bytes / unit),
			 (unsigned long long)(bytes % unit / (unit / 10 + 1)), units[i]);
	else
		snprintf(buf, size, "%llu%c", (unsigned long long)(bytes / unit), units[i]);
	return buf;
}

const char *text_span(uint64_t seconds, char *buf, size_t size)
{
	unsigned long long s = seconds;

	if (s >= 172800)
		snprintf(buf, size, "%llud", s / 86400);
	else if (s >= 7200)
		snprintf(buf, size, "%lluh", s / 3600);
	else if (s >= 120)
		snprintf(buf, size, "%llum", s / 60);
	else
		snprintf(buf, size, "%llus", s);
	return buf;
}
