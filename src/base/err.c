/* Fills and wraps errors. */
#include "base/base.h"

#include <stdarg.h>

#undef err_set /* for the analyzer these are macros, too */
#undef err_sys
#undef err_advise
#undef err_wrap

static const struct {
	const char *name;
	int status;
} kinds[] = {
#define X(kind, status_, name_) [ERR_##kind] = { name_, status_ },
	ERR_KINDS(X)
#undef X
};
static_assert(ARRAY_LEN(kinds) <= WHY_FIRST_, "kinds and reasons share their numbers");

static const struct {
	const char *name;
	enum err_kind kind;
	int status;
} reasons[] = {
#define X(reason, kind_, status_, name_, meaning) [WHY_##reason - WHY_FIRST_] = { name_, ERR_##kind_, status_ },
	ERR_REASONS(X)
#undef X
};

static bool is_reason(unsigned what)
{
	return what > WHY_FIRST_ && what < WHY_END_;
}

bool err_what_ok(unsigned what)
{
	return what < ERR_KIND_COUNT || is_reason(what);
}

const char *err_reason_name(enum err_reason why)
{
	return reasons[why - WHY_FIRST_].name;
}

int err_reason_status(enum err_reason why)
{
	return reasons[why - WHY_FIRST_].status;
}

enum err_kind err_reason_kind(enum err_reason why)
{
	return reasons[why - WHY_FIRST_].kind;
}

enum err_reason err_reason(const struct err *e)
{
	if (is_reason(e->reason) && err_reason_kind(e->reason) == e->kind)
		return e->reason;
	for (unsigned i = WHY_FIRST_ + 1; i < WHY_END_; i++)
		if (err_reason_kind((enum err_reason)i) == e->kind)
			return (enum err_reason)i;
	return WHY_INTERNAL;
}

enum err_reason err_reason_find(const char *name)
{
	for (unsigned i = WHY_FIRST_ + 1; name && i < WHY_END_; i++)
		if (!strcmp(name, err_reason_name((enum err_reason)i)))
			return (enum err_reason)i;
	return WHY_INTERNAL;
}

unsigned err_what(const struct err *e)
{
	return err_reason(e);
}

void err_because(struct err *e, unsigned what)
{
	if (!e)
		return;
	e->kind = is_reason(what) ? err_reason_kind((enum err_reason)what) : (enum err_kind)what;
	e->reason = is_reason(what) ? (enum err_reason)what : (enum err_reason)0;
}

const char *err_kind_name(enum err_kind kind)
{
	return kinds[kind].name;
}

int err_kind_status(enum err_kind kind)
{
	return kinds[kind].status;
}

__attribute__((format(printf, 4, 0))) static void set(struct err *e, unsigned what, int r, const char *fmt, va_list ap)
{
	*e = (struct err){ .errnum = r < 0 ? -r : r };
	err_because(e, what);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
}

int err_set(struct err *e, unsigned what, int r, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return r;
	va_start(ap, fmt);
	set(e, what, r, fmt, ap);
	va_end(ap);
	return r;
}

int err_advise(struct err *e, unsigned what, int r, const char *remedy, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return r;
	va_start(ap, fmt);
	set(e, what, r, fmt, ap);
	va_end(ap);
	snprintf(e->remedy, sizeof(e->remedy), "%s", remedy);
	return r;
}

int err_sys(struct err *e, unsigned what, int r, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	if (!e)
		return r;
	va_start(ap, fmt);
	set(e, what, r, fmt, ap);
	va_end(ap);
	n = strlen(e->msg);
	snprintf(e->msg + n, sizeof(e->msg) - n, ": %s", strerror(-r));
	return r;
}

int err_wrap(struct err *e, int r, const char *fmt, ...)
{
	char old[sizeof(e->msg)];
	va_list ap;
	size_t n;

	if (!e)
		return r;
	memcpy(old, e->msg, sizeof(old));
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	n = strlen(e->msg);
	snprintf(e->msg + n, sizeof(e->msg) - n, ": %s", old);
	return r;
}

void err_clean(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || (unsigned char)*text > '~')
			*text = '?';
}

bool err_received(struct err *e)
{
	e->msg[sizeof(e->msg) - 1] = e->remedy[sizeof(e->remedy) - 1] = '\0';
	err_clean(e->msg);
	err_clean(e->remedy);
	return (unsigned)e->kind < ERR_KIND_COUNT && (!e->reason || is_reason(e->reason)) && e->errnum >= 0 &&
	       e->errnum <= 4095;
}

void err_remedy(struct err *e, const char *fmt, ...)
{
	va_list ap;

	if (!e || e->remedy[0])
		return;
	va_start(ap, fmt);
	vsnprintf(e->remedy, sizeof(e->remedy), fmt, ap);
	va_end(ap);
}
