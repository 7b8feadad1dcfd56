/*
 * One error dialect: functions return 0 (or a useful value) or a negative errno, and leave the detail in a
 * caller-owned struct that never allocates. The kind gives the wire name and the HTTP status; the message says what
 * failed and why; the remedy says what to do. Set once where it happens, wrapped on the way up.
 */
#pragma once
#include <stdbool.h>

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
	int errnum; /* positive, 0 when none applies */
	char msg[240];
	char remedy[200];
};

/* All accept e == NULL. Return @r, a negative errno, so that callers can `return err_set(...)`. */
int err_set(struct err *e, enum err_kind kind, int r, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Like err_set, with ": strerror(-r)" at the end. */
int err_sys(struct err *e, enum err_kind kind, int r, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Puts "text: " before the message. */
int err_wrap(struct err *e, int r, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Sets the remedy; keeps an earlier, more specific one. */
void err_remedy(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *err_kind_name(enum err_kind kind);
int err_kind_status(enum err_kind kind);
