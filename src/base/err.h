/*
 * One error dialect: functions return 0 (or a useful value) or a negative errno, and leave the detail in a
 * caller-owned struct that never allocates. The kind gives the wire name and the HTTP status; the message says what
 * failed and why; the remedy says what to do; the reason (reason.h) is for programs. Set once where it happens, wrapped on
 * the way up.
 */
#pragma once
#include <stdbool.h>

#include "base/reason.h"

/* The number travels in the warden's messages: new kinds come last. */
#define ERR_KINDS(X)                                                                                                   \
	X(INTERNAL, 500, "internal")                                                                                   \
	X(INVALID, 400, "invalid")                                                                                     \
	X(DENIED, 403, "denied")                                                                                       \
	X(NOT_FOUND, 404, "not_found")                                                                                 \
	X(CONFLICT, 409, "conflict")                                                                                   \
	X(TOO_LARGE, 413, "too_large")                                                                                 \
	X(UNSUPPORTED, 501, "unsupported")                                                                             \
	X(EXHAUSTED, 503, "exhausted")                                                                                 \
	X(LOST, 502, "lost")                                                                                           \
	X(TIMEOUT, 504, "timeout")                                                                                     \
	X(UNAUTHORIZED, 401, "unauthorized")                                                                           \
	X(RATE, 429, "rate")                                                                                           \
	X(QUOTA, 429, "quota")                                                                                         \
	X(REFUSED, 422, "refused")                                                                                     \
	X(METHOD, 405, "method")

enum err_kind {
#define X(kind, status, name) ERR_##kind,
	ERR_KINDS(X)
#undef X
};
#define X(kind, status, name) +1
enum { ERR_KIND_COUNT = 0 ERR_KINDS(X) };
#undef X

struct err {
	enum err_kind kind;
	enum err_reason reason; /* 0, or not one of @kind: that of the kind; read it with err_reason() */
	int errnum; /* positive, 0 when none applies */
	char msg[240];
	char remedy[200];
};

/* @what is a kind (ERR_…) or, better, a reason (WHY_…), which says the kind, too. All accept e == NULL. Return @r, a negative errno, so that callers can `return err_set(...)`. */
int err_set(struct err *e, unsigned what, int r, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Like err_set, with ": strerror(-r)" at the end. */
int err_sys(struct err *e, unsigned what, int r, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Puts "text: " before the message. */
int err_wrap(struct err *e, int r, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Sets the remedy; keeps an earlier, more specific one. */
void err_remedy(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* err_set(), and then err_remedy() with @remedy as it is: for the many that say both. */
int err_advise(struct err *e, unsigned what, int r, const char *remedy, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
#ifdef __clang_analyzer__
/* Of these functions clang's static analyzer, which reads one file at a time, knows only this: what they return is @r, and below 0. */
#define ERR_RETURNS(f, e, what, r, ...)                                                                                \
	({                                                                                                             \
		const int err_r_ = (r);                                                                                \
		(void)(f)(e, what, err_r_, __VA_ARGS__);                                                               \
		if (err_r_ >= 0)                                                                                       \
			__builtin_unreachable();                                                                       \
		err_r_;                                                                                                \
	})
#define err_set(e, what, r, ...) ERR_RETURNS(err_set, e, what, r, __VA_ARGS__)
#define err_sys(e, what, r, ...) ERR_RETURNS(err_sys, e, what, r, __VA_ARGS__)
#define err_advise(e, what, r, ...) ERR_RETURNS(err_advise, e, what, r, __VA_ARGS__)
#define err_wrap(e, r, ...) ((void)err_wrap(e, r, __VA_ARGS__), (r))
#endif

/*
 * For an error, and the texts beside it, that another process has sent: whether it is valid. Its texts are terminated, and what is
 * not printable in them becomes '?'.
 */
bool err_received(struct err *e);
void err_clean(char *text);

/* Says more precisely why: kind and reason of @what, the rest stays. */
void err_because(struct err *e, unsigned what);

/* What programs are given: of the table, and of the error's kind. */
enum err_reason err_reason(const struct err *e);
const char *err_reason_name(enum err_reason why);
int err_reason_status(enum err_reason why);
enum err_kind err_reason_kind(enum err_reason why);
/* The reason of that name, or WHY_INTERNAL. */
enum err_reason err_reason_find(const char *name);
/* For messages between processes: one number for kind and reason, which err_set() takes; and whether a number is one. */
unsigned err_what(const struct err *e);
bool err_what_ok(unsigned what);

const char *err_kind_name(enum err_kind kind);
int err_kind_status(enum err_kind kind);
