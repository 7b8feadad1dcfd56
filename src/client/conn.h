/*
 * The connection to a daemon: its address, the caller's token, and calls. Calls run on one libcurl multi handle, so that
 * several can be in progress; waiting for one advances all.
 *
 * Address and token come from the first source that has them: the options, CLOCHE_URL and CLOCHE_TOKEN,
 * ~/.config/cloche/config (lines `url = …`, `token = …`; only when no other user can read it), the local unix sockets.
 * The file's token is only sent to the file's URL. CLOCHE_CACERT, or `cacert = …`, names the certificates to trust.
 */
#pragma once
#include <curl/curl.h>
#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"

#define CONN_ANSWER_MAX (256 * MIB)

static inline void json_decrefpp(json_t **p)
{
	json_decref(*p);
}
#define AUTO_JSON __attribute__((cleanup(json_decrefpp)))

struct conn_opts {
	const char *url, *token;
	long timeout_ms; /* of a whole call; 0 = none */
};

struct conn;
int conn_open(const struct conn_opts *o, struct conn **ret, struct err *e);
void conn_close(struct conn *c);
DEFINE_AUTO(struct conn, conn_close)

/* A new handle with everything about this daemon set but the path. */
CURL *conn_easy(struct conn *c, const char *path, struct err *e);
const char *conn_host(const struct conn *c); /* for a Host header */
const char *conn_prefix(const struct conn *c); /* the path of the URL, without its last slash */
const char *conn_token(const struct conn *c); /* NULL when there is none */
/* What a failure of libcurl means to a user. */
int conn_curl_error(const struct conn *c, CURLcode code, const char *detail, struct err *e);
/* Turns an error answer into @e. Always negative. */
int conn_answer_error(const char *body, size_t len, long status, struct err *e);

/* Appends @fmt, in which each %s is a string to be percent-encoded and %u an unsigned long long. */
int url_add(struct buf *b, const char *fmt, ...);

struct call_spec {
	const char *method, *path;
	const json_t *body;
	const char *accept; /* NULL: JSON */
	const char *header; /* one more, whole */
	/* The request's raw body: up to @len bytes, 0 at the end, or a negative errno that ends the call. */
	ssize_t (*source)(void *arg, char *buf, size_t len);
	int64_t size; /* of all that @source gives; below 0: unknown */
	/* Bytes of a good answer. Without it they are collected (CONN_ANSWER_MAX), or, with @pull, wait for a read. */
	int (*sink)(void *arg, const void *data, size_t len);
	bool pull;
	void *arg;
};

struct call;
/* The strings of @s need to last until it returns, @body too; the functions' @arg as long as the call. */
int call_start(struct conn *c, const struct call_spec *s, struct call **ret, struct err *e);
/* Until the whole answer is there. An answer of 400 and above is an error. */
int call_wait(struct call *c, struct err *e);
/* Until the head of the answer is there, and it is a good one. */
int call_head(struct call *c, struct err *e);
/* For @pull: some bytes, 0 at the end. */
ssize_t call_read(struct call *c, void *buf, size_t len, struct err *e);
/* A header of the answer, NULL when it has none; good until the next call of this. */
const char *call_header(struct call *c, const char *name);
const struct buf *call_body(const struct call *c);
void call_free(struct call *c);
DEFINE_AUTO(struct call, call_free)

/* Waits until something happened to any call of @c, or @timeout_ms passed. */
int conn_turn(struct conn *c, int timeout_ms, struct err *e);
bool call_ended(const struct call *c);

/* What calls from here on are for, when one takes long: a line on the terminal says so. NULL: nothing does. The text must last. */
void conn_doing(struct conn *c, const char *what);
/* One call, with JSON in both directions. @ret may be NULL; *ret is NULL for an answer without content. */
int conn_json(struct conn *c, const char *method, const char *path, const json_t *body, json_t **ret, struct err *e);
int conn_get(struct conn *c, const char *path, json_t **ret, struct err *e);
