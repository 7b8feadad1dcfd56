/* Prints answers as text or JSON. */
#include "client/show.h"
#include "base/base.h"
#include "base/clock.h"
#include "client/text.h"

#include <stdarg.h>
#include <time.h>

const char *show_str(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

uint64_t show_u64(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_integer(v))
		return json_integer_value(v) < 0 ? 0 : (uint64_t)json_integer_value(v);
	if (json_is_real(v) && json_real_value(v) > 0 && json_real_value(v) < 1e18)
		return (uint64_t)json_real_value(v);
	return 0;
}

int show_dump(const json_t *v, enum show_style style, struct buf *b)
{
	AUTO_FREE char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) |
						     (style == SHOW_PRETTY ? JSON_INDENT(2) : JSON_COMPACT));
	int r = 0;

	if (!text)
		return -ENOMEM;
	/* jansson leaves DEL and the C1 controls as they are; they can only occur within strings. */
	for (const unsigned char *p = (unsigned char *)text; *p && r == 0; p++) {
		if (*p == 0x7f)
			r = buf_adds(b, "\\u007f");
		else if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
			r = buf_addf(b, "\\u%04x", *++p);
		else
			r = buf_addc(b, (char)*p);
	}
	return r;
}

int show_json(const json_t *v, enum show_style style, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(512 * MIB);
	int r = show_dump(v, style, &b);

	if (r == 0)
		r = buf_addc(&b, '\n');
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "write JSON");
	fwrite(b.data, 1, b.len, stdout);
	return 0;
}

void show_line(const char *text)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1 * MIB);

	text_escape(&b, text, strlen(text));
	puts(buf_str(&b));
}

void show_warn(const char *fmt, ...)
{
	AUTO(buf_done) struct buf raw = BUF_INIT(64 * KIB), b = BUF_INIT(1 * MIB);
	va_list ap;

	va_start(ap, fmt);
	buf_addv(&raw, fmt, ap);
	va_end(ap);
	text_escape(&b, buf_str(&raw), raw.len);
	fprintf(stderr, "cloche: %s\n", buf_str(&b));
}

void show_gap(char *text, size_t size, const char *stream, uint64_t lost, uint64_t offset)
{
	snprintf(text, size, "note: %llu bytes of %.10s were not kept (the output continues at byte %llu)",
		 (unsigned long long)lost, stream, (unsigned long long)offset);
}

void show_error(const struct err *e)
{
	json_t *v = json_pack("{s:{s:s, s:s, s:s, s:s?, s:s?, s:n}}", "error", "code", err_kind_name(e->kind), "reason",
			      err_reason_name(err_reason(e)), "message", e->msg, "cause",
			      e->errnum ? strerror(e->errnum) : NULL, "remedy", e->remedy[0] ? e->remedy : NULL,
			      "request_id");

	/* NULL when a message is not UTF-8; the line on stderr contains it then. */
	if (v)
		show_json(v, SHOW_LINE, NULL);
	json_decref(v);
}

uint64_t show_time_ms(const char *iso)
{
	struct tm t = { 0 };
	int ms = 0;
	time_t s;

	if (sscanf(iso, "%4d-%2d-%2dT%2d:%2d:%2d.%3d", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min,
		   &t.tm_sec, &ms) < 6)
		return 0;
	t.tm_year -= 1900;
	t.tm_mon -= 1;
	s = timegm(&t);
	return s < 0 ? 0 : (uint64_t)s * 1000 + (uint64_t)(ms < 0 ? 0 : ms);
}

const char *show_age(const char *iso, char *buf, size_t size)
{
	uint64_t then = show_time_ms(iso), now = clock_real_ns() / 1000000;

	if (!then)
		return "-";
	return text_span(now > then ? (now - then) / 1000 : (then - now) / 1000, buf, size);
}

int show_pairs(const json_t *o, struct buf *b)
{
	void *it;
	int r = 0;

	for (it = json_object_iter((json_t *)(uintptr_t)o); it && r == 0;
	     it = json_object_iter_next((json_t *)(uintptr_t)o, it)) {
		const char *value = json_string_value(json_object_iter_value(it));

		r = buf_addf(b, "%s%s=%s", b->len ? " " : "", json_object_iter_key(it), value ? value : "?");
	}
	return r;
}

int show_set_pair(json_t *o, const char *text, struct err *e)
{
	const char *value = strchr(text, '=');
	AUTO_FREE char *key = NULL;

	if (!value || value == text)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be NAME=VALUE", text);
	key = strndup(text, (size_t)(value - text));
	if (!key)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	if (json_object_set_new(o, key, json_string(value + 1)) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", text);
	return 0;
}

void show_cut(const json_t *answer)
{
	const json_t *cut = json_object_get(answer, "cut"), *list = json_object_get(cut, "connections"), *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		const char *host = show_str(one, "host");

		show_warn("note: cut: %s (process %llu, descriptor %llu): %s %s%s%s", show_str(one, "command"),
			  (unsigned long long)show_u64(one, "pid"), (unsigned long long)show_u64(one, "fd"),
			  show_str(one, "protocol"), host, *host ? " " : "", show_str(one, "remote"));
	}
	if (show_u64(cut, "count") > json_array_size(list))
		show_warn("note: cut: and %llu more",
			  (unsigned long long)(show_u64(cut, "count") - json_array_size(list)));
}

void show_not_done(const json_t *sandbox, enum show_much much)
{
	const json_t *restored = json_object_get(sandbox, "restored"), *one;
	const json_t *list = json_object_get(restored, "not_done");
	const bool runs = json_is_true(json_object_get(restored, "memory"));
	size_t i;

	if (much == SHOW_NOTES)
		show_cut(sandbox);
	/* Without processes only one entry matters: why there are none. */
	json_array_foreach(list, i, one)
	{
		if (!strcmp(show_str(one, "what"), "memory"))
			show_warn("files only: %s", show_str(one, "why"));
		else if (runs && much == SHOW_NOTES)
			show_warn("note: %s: %s", show_str(one, "what"), show_str(one, "why"));
	}
}

int show_made(bool json, const json_t *answer, struct err *e)
{
	const json_t *list = json_object_get(answer, "sandboxes"), *one, *told = NULL;
	size_t i;

	/* All came from the same, so most have the same to say. */
	json_array_foreach(list, i, one)
	{
		const json_t *now = json_object_get(json_object_get(one, "restored"), "not_done");

		if (!told || !json_equal(told, now))
			show_not_done(one, SHOW_NOTES);
		told = now;
	}
	if (*show_str(answer, "memory_refused"))
		show_warn("files only: %s", show_str(answer, "memory_refused"));
	if (json)
		return show_json(answer, SHOW_LINE, e);
	json_array_foreach(list, i, one) show_line(show_str(one, "id"));
	return 0;
}
