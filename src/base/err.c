#include "base/base.h"

#include <stdarg.h>

static const struct {
	const char *name;
	int status;
} kinds[] = {
#define X(kind, status_, name_) [ERR_##kind] = { name_, status_ },
	ERR_KINDS(X)
#undef X
};

const char *err_kind_name(enum err_kind kind)
{
	return kinds[kind].name;
}

int err_kind_status(enum err_kind kind)
{
	return kinds[kind].status;
}

__attribute__((format(printf, 4, 0))) static void set(struct err *e, enum err_kind kind, int r, const char *fmt,
						      va_list ap)
{
	*e = (struct err){ .kind = kind, .errnum = r < 0 ? -r : r };
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
}

int err_set(struct err *e, enum err_kind kind, int r, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return r;
	va_start(ap, fmt);
	set(e, kind, r, fmt, ap);
	va_end(ap);
	return r;
}

int err_sys(struct err *e, enum err_kind kind, int r, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	if (!e)
		return r;
	va_start(ap, fmt);
	set(e, kind, r, fmt, ap);
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

void err_remedy(struct err *e, const char *fmt, ...)
{
	va_list ap;

	if (!e || e->remedy[0])
		return;
	va_start(ap, fmt);
	vsnprintf(e->remedy, sizeof(e->remedy), fmt, ap);
	va_end(ap);
}
