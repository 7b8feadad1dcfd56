/*
 * HTTP/1.1 on one libuv loop: connections in, requests out to a handler, answers back. Knows nothing of what is
 * served.
 *
 * Bytes are parsed by llhttp in its strict mode; WebSocket frames by wslay; TLS by OpenSSL over memory BIOs. What is
 * ambiguous (two lengths, a length and chunks, bare LF, folded headers) is answered 400 once, and the connection
 * closed.
 *
 * Life of a request: the handler is called when the head is complete. It answers at once or later, with one of
 * http_send, http_begin … http_end, sse_begin … http_end, ws_accept. Until then the request lives, and exactly one
 * thing ends it: the answer's end, or `gone` (the client hung up or was cut), after which it must not be touched
 * again. The next request of a connection is not looked at before the last has ended. Everything happens on the
 * loop's thread; no callback is called from within a call of these functions. So `gone` may be due but not yet called:
 * code that ends the request in between gets no call of `gone`, and what is written in between is dropped.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct uv_loop_s;
struct http_server;
struct http_req;
struct ws;
struct tunnel;

#define HTTP_HEAD_MAX (64U * 1024U) /* request line and headers; 431 beyond */
#define HTTP_PATH_MAX 8192U /* 414 beyond */
#define HTTP_HEADERS_MAX 100U
#define HTTP_SEGMENTS_MAX 16U
#define HTTP_QUERY_MAX 32U /* parameters */

enum http_method { HTTP_M_GET, HTTP_M_HEAD, HTTP_M_POST, HTTP_M_PUT, HTTP_M_PATCH, HTTP_M_DELETE, HTTP_M_OTHER };

struct http_opts {
	struct uv_loop_s *loop;
	void (*request)(void *arg, struct http_req *q);
	/*
	 * Whether a request is for another server and is forwarded: its path and query are then not parsed (no segments,
	 * no parameters). Called when headers and http_path() are known; NULL: no request is foreign.
	 */
	bool (*foreign)(void *arg, const struct http_req *q);
	void *arg;
	unsigned conns_max; /* further ones wait in the backlog */
	/* Milliseconds; 0 = the default. */
	unsigned head_ms; /* from a request's first byte (or a new connection) to the end of its head: 10,000 */
	unsigned body_ms; /* without a byte of a body that is waited for: 25,000 */
	unsigned idle_ms; /* between requests: 300,000 */
	unsigned send_ms; /* without a byte going out of what is to be sent: 120,000 */
	const char *tls_cert, *tls_key; /* PEM files; NULL: listeners are plain */
};

int http_server_new(const struct http_opts *o, struct http_server **ret, struct err *e);
/* A listening stream socket (TCP or unix), taken over. @tls: only with tls_cert. */
int http_server_listen(struct http_server *s, int fd, bool tls, struct err *e);
/* Stops accepting, closes idle connections; busy ones close after their answer. @done is called when none is left. */
void http_server_drain(struct http_server *s, void (*done)(void *arg), void *arg);
/* Closes everything at once; `gone` is called for what was under way. The loop must run once more before the end. */
void http_server_free(struct http_server *s);
unsigned http_server_conns(const struct http_server *s);

/* --- the request --- */
enum http_method http_method(const struct http_req *q);
const char *http_method_name(const struct http_req *q);
/* The path as sent, without the query. */
const char *http_path(const struct http_req *q);
bool http_foreign(const struct http_req *q);
/* The text after the "?", as sent; NULL without one. Only for a foreign request. */
const char *http_query_text(const struct http_req *q);
/*
 * Its parts, decoded: "/v1/sandboxes/a%20b" has three. A path with an empty part, "." or "..", a NUL, a slash or a
 * control character (raw or encoded), or bad encoding never reaches the handler: 400.
 */
size_t http_segments(const struct http_req *q);
const char *http_segment(const struct http_req *q, size_t i);
/* A parameter, decoded (UTF-8 and no NUL are checked before the handler: 400); NULL when it is not there. */
const char *http_query(const struct http_req *q, const char *name);
size_t http_query_count(const struct http_req *q);
void http_query_at(const struct http_req *q, size_t i, const char **ret_name, const char **ret_value);
/*
 * A header's value, names in any case; NULL when it is not there. Repeated ones: the first. Never holds control
 * bytes.
 */
const char *http_header(const struct http_req *q, const char *name);
/* All of them, in order. */
size_t http_header_count(const struct http_req *q);
void http_header_at(const struct http_req *q, size_t i, const char **ret_name, const char **ret_value);
/* Bytes the client said the body has; 0 = none, -1 = chunked. */
int64_t http_body_len(const struct http_req *q);
bool http_is_ws(const struct http_req *q); /* asks for an upgrade */
/* To anything; a GET without a body. The header says to what. */
bool http_is_upgrade(const struct http_req *q);
bool http_is_tls(const struct http_req *q);
/* The peer: -1 unless it came over a unix socket. */
int64_t http_peer_uid(const struct http_req *q);
/* "127.0.0.1", "unix". */
const char *http_peer(const struct http_req *q);
/* The client's X-Request-Id when it is fit, else a new one. Also sent back. */
const char *http_request_id(const struct http_req *q);

/* The handler's own pointer, and what is called when the client is gone before the answer ended. */
void http_set_gone(struct http_req *q, void (*gone)(void *arg), void *arg);
/*
 * For an answer that takes long, and is of no use when the client has left: one that sends no more gets an interim
 * answer (102), and if that cannot be delivered, `gone` is called. Without this it is only noticed by the answer.
 */
void http_ask_gone(struct http_req *q);
/* 64 bytes, zeroed and aligned, in which the layers above keep what they know of a request, such as its caller. */
void *http_note(struct http_req *q);

/*
 * Assigns the connection to an owner whose use is limited: the connection is counted in @count, and the bytes of answers
 * that its client has not read yet in @unsent, until it closes or is given to another owner.
 */
void http_give(struct http_req *q, unsigned *count, size_t *unsent);
unsigned http_conns_max(const struct http_req *q);
void http_last(struct http_req *q); /* the connection closes after this answer */

/* Before its body is asked for: nothing of it stays in memory behind the request. */
void http_body_wiped(struct http_req *q);
/* Wipes and frees the body now instead of when the request ends: it is large, or the answer promises that it was forgotten. */
void http_body_forget(struct http_req *q);
/*
 * Before its body is asked for, as a whole: a large one counts in *@count as far as it has come and until it is freed, and gets 503
 * when that would be more than @max.
 */
void http_body_share(struct http_req *q, size_t *count, size_t max);
/* --- its body: one of these, in the handler or later; without any, it is thrown away (64 KiB, then cut) --- */
/*
 * @done gets the whole body, NUL-ended, good until the request ends. Beyond @max: 413, and @done is not called but
 * `gone` is.
 */
void http_read_body(struct http_req *q, size_t max, void (*done)(void *arg, const char *data, size_t len), void *arg);
/*
 * Piece by piece. @data may pause the flow with http_body_pause(), until http_body_resume(); @end follows the last
 * piece. "Expect: 100-continue" is answered when reading begins.
 */
void http_stream_body(struct http_req *q, void (*data)(void *arg, const char *p, size_t len), void (*end)(void *arg),
		      void *arg);
void http_body_pause(struct http_req *q);
void http_body_resume(struct http_req *q);
/* What else comes of a streamed body is dropped; neither @data nor @end is called any more. */
void http_body_drop(struct http_req *q);

/* --- the answer --- */
/* Before http_send/http_begin; text is copied; a value with control bytes is dropped. */
void http_set(struct http_req *q, const char *name, const char *value);
void http_setf(struct http_req *q, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The answer comes from another server and is forwarded: only the headers that the message itself needs are added. */
void http_bare(struct http_req *q);
/* Whole answer; @body is copied (or, when small, sent at once). Ends the request. */
void http_send(struct http_req *q, int status, const char *type, const void *body, size_t len);
/* The same, taking @body (malloc'ed) over without a copy. */
void http_send_take(struct http_req *q, int status, const char *type, char *body, size_t len);
/*
 * How errors of this request are written, those of this layer and the router too; @code is the kind's name.
 * Without it: {"error":{"code","reason","message","cause","remedy","request_id"}}.
 */
struct json;
typedef void http_shape(struct json *j, const char *code, const char *message, const char *cause, const char *remedy);
void http_set_shape(struct http_req *q, http_shape *shape);
/* An error with the kind's status; adds Retry-After when @retry_after. Ends the request. */
void http_fail(struct http_req *q, const struct err *e);
void http_fail_retry(struct http_req *q, const struct err *e, unsigned retry_after_s);
/* The same with the parts of an error: @cause and @remedy may be NULL. */
void http_fail_as(struct http_req *q, enum err_reason why, const char *message, const char *cause, const char *remedy);
/* Of the answer that is begun next: the words behind its status, instead of ours. Left out where they cannot be sent. */
void http_reason(struct http_req *q, const char *text);
/*
 * A streamed answer: @len bytes follow (Content-Length), or -1: chunked until http_end (to HTTP/1.0: until the
 * connection closes). It may be quiet for as long as it likes: send_ms counts only while bytes wait. Fewer than @len
 * bytes at http_end cut the connection; what is beyond them is dropped. An answer without a body (HEAD, 204, 304)
 * drops all.
 */
void http_begin(struct http_req *q, int status, const char *type, int64_t len);
/* Queues a copy. A writer should stop while http_queued() is above HTTP_HIGH, and continue when @drain is called. */
#define HTTP_HIGH (1U << 20)
void http_write(struct http_req *q, const void *data, size_t len);
/*
 * Without the copy: @data stays the caller's and must not change until @done. At most one such write is under way;
 * the fastest way for output. Several pieces (up to HTTP_PIECES_MAX) are sent as one. The request's end (http_end,
 * http_cut, gone) gives the memory back as well; @done is not called then.
 */
#define HTTP_PIECES_MAX 60U
struct http_piece {
	const void *data;
	size_t len;
};
void http_write_lent(struct http_req *q, const struct http_piece *p, size_t n, void (*done)(void *arg), void *arg);
size_t http_queued(const struct http_req *q);
/* Called when it falls below HTTP_HIGH / 2, having been above. */
void http_set_drain(struct http_req *q, void (*drain)(void *arg), void *arg);
void http_end(struct http_req *q);
/*
 * The answer cannot be finished: cuts the connection so that the client notices. Ends the request; `gone` is not
 * called.
 */
void http_cut(struct http_req *q);

/* --- server-sent events: http_write and http_end work on it too --- */
void sse_begin(struct http_req *q); /* sends a comment every 15 s while quiet */
/* @id and @event may be NULL; @json is one line. */
void sse_event(struct http_req *q, const char *id, const char *event, const char *json, size_t len);

/* --- WebSocket --- */
struct ws_calls {
	void (*message)(void *arg, bool text, const uint8_t *data, size_t len); /* whole messages, up to @max */
	void (*drain)(void *arg); /* ws_queued fell below HTTP_HIGH / 2 */
	void (*gone)(void *arg); /* closed by either side; the last call. Not called after ws_close() */
	size_t max; /* a longer message closes with 1009 */
	/* the client's first message is its request: a client that has not sent it by the first ping is cut */
	bool asks;
	const char *protocol; /* Sec-WebSocket-Protocol to answer with, or NULL */
};
/*
 * Ends the request. -EPROTO when it is no proper upgrade: the request is still to be answered then. Pings every 25 s.
 */
int ws_accept(struct http_req *q, const struct ws_calls *calls, void *arg, struct ws **ret);
/* One message of up to eight pieces, copied. */
void ws_send(struct ws *w, bool text, const struct http_piece *p, size_t n);
size_t ws_queued(const struct ws *w);
/* No more messages are delivered until ws_resume: the client is held by TCP. */
void ws_pause(struct ws *w);
void ws_resume(struct ws *w);
/* Sends what is queued, then the close frame; @w must not be touched afterwards. */
void ws_close(struct ws *w, unsigned code, const char *reason);

/* --- bytes: a connection that was upgraded to something we do not know --- */
struct tunnel_calls {
	/* may tunnel_pause(); what came with it is still delivered */
	void (*data)(void *arg, const char *p, size_t len);
	void (*eof)(void *arg); /* the client sends nothing more; it may still read */
	void (*drain)(void *arg); /* tunnel_queued fell below HTTP_HIGH / 2 */
	void (*gone)(void *arg); /* broken, or cut; the last call. Not called after tunnel_end() or tunnel_cut() */
};
/*
 * Answers 101 with what http_set said and "Upgrade: @protocol", and ends the request. -EPROTO when none was asked for:
 * the request is still to be answered then.
 */
int tunnel_accept(struct http_req *q, const char *protocol, const struct tunnel_calls *calls, void *arg,
		  struct tunnel **ret);
void tunnel_write(struct tunnel *t, const void *data, size_t len); /* queues a copy */
size_t tunnel_queued(const struct tunnel *t);
void tunnel_pause(struct tunnel *t);
void tunnel_resume(struct tunnel *t);
void tunnel_shut(struct tunnel *t); /* nothing more will be written: the client sees an end, and may continue to send */
/* Sends what is queued and closes; @t must not be touched afterwards. */
void tunnel_end(struct tunnel *t);
/* Closes so that the client sees that something broke. */
void tunnel_cut(struct tunnel *t);
