/*
 * Inside of this layer: a server, its connections, the request each has under way.
 *
 * All work on a connection happens in a turn: the loop says that its socket is ready, or that something was put off
 * (kick). Only a turn calls back into the layers above; what they call meanwhile, or at any other time, writes what
 * can be written and notes the rest for a turn. So no callback ever runs inside a call, and nothing is freed under a
 * caller's feet: a request or connection that is over is only marked, and put away at the turn's end.
 */
#pragma once
#include <sys/queue.h>
#include <uv.h>

#include <llhttp.h>

#include "base/buf.h"
#include "http/http.h"

struct conn;
typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;

#define READ_SIZE (64U * 1024U) /* one per server; also the most a connection may keep of what it cannot use yet */
#define TLS_READ_SIZE (20U * 1024U) /* OpenSSL's buffer keeps the size it once had */
#define DISCARD_MAX (64U * 1024U) /* of a body that no handler reads */
#define LINGER_MAX                                                                                                     \
	(64U * 1024U * 1024U) /* read and thrown away after the last answer, so that it is not lost by a reset */
#define OUT_MAX (64U * 1024U * 1024U) /* copies waiting to be sent; a connection whose writer ignores this is cut */
#define SET_MAX (32U * 1024U) /* headers of an answer */
#define CHUNK_EXTRA_MAX 4096U /* bytes of a chunked body between two bytes of content, trailers too */
#define BODY_RATE_MIN 64U /* bytes a second, over any body_ms */
#define TURN_ROUNDS 32U /* steps of one connection before others have their turn */
#define TURN_REQUESTS 16U

/* Kinds of waiting. Each has one length, so a list in order of beginning is a list in order of ending. */
enum wait_kind {
	WAIT_NONE,
	WAIT_HEAD,
	WAIT_BODY,
	WAIT_IDLE,
	WAIT_LINGER,
	WAIT_SSE, /* until a comment is due */
	WAIT_FIN, /* a stream whose client will send nothing more may be a client that is gone */
	WAIT_PING,
	WAIT_SEND,
	WAIT_KINDS
};

struct wait {
	TAILQ_ENTRY(wait) link;
	struct conn *conn;
	uint64_t until;
	enum wait_kind kind;
};
TAILQ_HEAD(waits, wait);

/* Bytes to be sent: a copy (behind the struct), memory taken over (@own) or lent. */
struct out {
	TAILQ_ENTRY(out) link;
	const char *data;
	size_t len;
	size_t room; /* behind data + len, for a further copy */
	char *own;
	bool lent;
	char copy[];
};
TAILQ_HEAD(outs, out);

struct out_piece {
	const void *data;
	size_t len;
	bool lent;
};

enum body_mode { BODY_UNASKED, BODY_WHOLE, BODY_STREAM, BODY_DISCARD };
enum res_state { RES_NONE, RES_BEGUN, RES_ENDED };

struct header {
	const char *name, *value;
};

struct http_req {
	struct conn *conn;
	struct http_req *next; /* in the server's list of spare ones */

	/* The head, whole; everything below points into it. The path's parts are decoded behind it. */
	char *head;
	size_t head_len, head_cap;
	unsigned lines, blank; /* so far */
	size_t line_len;
	bool cr; /* the last byte was one */
	struct header headers[HTTP_HEADERS_MAX];
	unsigned n_headers;
	const char *url;
	size_t url_len;
	const char *path;
	const char *segments[HTTP_SEGMENTS_MAX];
	unsigned n_segments;
	struct header query[HTTP_QUERY_MAX];
	unsigned n_query;
	enum http_method method;
	const char *method_name;
	bool v10, keep, expect, upgrade, foreign;
	bool asks; /* at the end of input, whether the client is still there */
	const char *query_text;
	char id[72];
	uint64_t started;
	void (*gone)(void *arg);
	void *gone_arg;
	_Alignas(16) char note[64];

	int64_t body_len; /* -1: chunked */
	uint64_t body_left, body_seen, discarded;
	size_t chunk_extra;
	const char *frame; /* of chunks, not yet looked at */
	enum body_mode mode;
	bool body_done, body_told, paused, tell_gone;
	bool wiped; /* the body's bytes are, wherever they were */
	size_t body_max;
	struct buf body;
	size_t *body_share, body_counted, body_share_max; /* http_body_share(); NULL: none */
	void (*body_fn)(void *arg, const char *data, size_t len); /* whole, or a piece */
	void (*body_end)(void *arg);
	void *body_arg;
	uint64_t rate_from, rate_bytes; /* the running stretch of body_ms */

	enum res_state res;
	int status;
	struct buf set; /* "Name: value\r\n"… */
	http_shape *shape; /* of errors; NULL: our own */
	bool chunked, until_close, no_body, sse, bare;
	bool has_reason;
	char reason[64]; /* instead of ours, behind the status */
	int64_t res_left; /* of a Content-Length that was promised */
	void (*drain)(void *arg);
	void *drain_arg;
	bool above, drain_due; /* http_queued was high; it has fallen */
	void (*lent)(void *arg);
	void *lent_arg;
	bool lent_busy, lent_due; /* under way; done but not yet said */

	char small[2048]; /* where most heads fit */
};

enum conn_state {
	CONN_HEAD, /* idle, or in the middle of a head (req) */
	CONN_REQ,
	CONN_WS,
	CONN_TUNNEL,
	CONN_LINGER, /* sends what is left, then waits for the client to close */
	CONN_DEAD,
};

struct conn {
	struct http_server *server;
	uv_poll_t poll;
	int fd;
	int events; /* what is polled for */
	enum conn_state state;
	TAILQ_ENTRY(conn) link, ready_link;
	bool ready, turn;
	bool eof, hup, shut, reset;
	bool fresh; /* no request yet */
	bool seen; /* its first byte */
	bool not_tls; /* it speaks HTTP where HTTPS is spoken */
	bool started; /* the request has been handed up */
	unsigned served; /* requests, in this turn */
	struct http_req *req;
	struct ws *ws;
	struct tunnel *tunnel;
	llhttp_t parser;
	char *in_to; /* see parse_chunks */
	struct {
		char *data;
		size_t off, len;
	} in; /* read, but not to be used yet */
	struct outs out;
	size_t queued;
	unsigned *count; /* connections of the owner, and its bytes of ->queued */
	size_t *unsent;
	unsigned lent; /* nodes of out */
	size_t lingered;
	struct wait wait, send;
	SSL *ssl;
	bool tls_up;
	int64_t peer_uid;
	char peer[46];
};
TAILQ_HEAD(conns, conn);

struct listener {
	uv_poll_t poll;
	struct http_server *server;
	struct listener *next;
	int fd;
	bool tls, on;
};

struct http_server {
	uv_loop_t *loop;
	struct http_opts o;
	struct listener *listeners;
	struct conns conns, ready;
	unsigned n_conns;
	struct waits waits[WAIT_KINDS];
	uint64_t wait_ms[WAIT_KINDS];
	uv_timer_t timer, again; /* again: accepting is tried once more, or room made for it */
	bool scarce; /* no descriptors or memory for another connection: until ->again */
	uint64_t timer_at; /* 0: not running */
	uv_idle_t kick;
	unsigned handles; /* libuv still knows */
	bool draining, freed;
	void (*drained)(void *arg);
	void *drained_arg;
	struct http_req *spare;
	unsigned spares;
	char id_prefix[16];
	uint64_t id_next;
	SSL_CTX *tls;
	char read[READ_SIZE], plain[READ_SIZE];
};

/* --- server.c --- */
void server_gone(struct http_server *s); /* a connection has been put away */
void server_kick(struct http_server *s);
void server_alarm(struct http_server *s, uint64_t at);

/* --- conn.c --- */
int conn_new(struct http_server *s, int fd, bool tls, const char *peer, int64_t uid);
void conn_kick(struct conn *c); /* a turn, soon */
void conn_turn(struct conn *c);
/* After a call from above: the small things at once, a turn for what needs one. */
void conn_after(struct conn *c);
void conn_event(uv_poll_t *h, int status, int events);
void conn_kill(struct conn *c);
void conn_expired(struct conn *c, enum wait_kind kind);
void conn_stop(struct conn *c); /* nothing more is read as a request; what is queued is sent, then it closes */
void wait_set(struct wait *w, struct conn *c, enum wait_kind kind);
void wait_off(struct wait *w);

/* --- out.c --- */
/* Sends what the socket takes and queues the rest. */
void conn_write(struct conn *c, const struct out_piece *p, size_t n);
/* The same, as bytes on the wire: below TLS. */
void conn_write_raw(struct conn *c, const struct out_piece *p, size_t n);
/* Takes ownership of @own (malloc'ed); @data points into it. */
void conn_write_own(struct conn *c, char *own, const char *data, size_t len);
void conn_flush(struct conn *c);
void conn_out_free(struct conn *c);
void conn_give(struct conn *c, unsigned *count, size_t *unsent); /* NULL: without an owner */
/* Lent memory still queued becomes copies. */
void conn_unlend(struct conn *c);

/* --- parse.c --- */
bool parse_is_token(unsigned char ch); /* allowed in a header's name */
/*
 * Takes bytes of a head. Returns how many were used; *ret_status is 0 when more are needed, 1 when the head is whole,
 * else the HTTP status it is refused with and *ret_why the reason.
 */
size_t parse_head(struct http_req *q, const char *p, size_t n, int *ret_status, const char **ret_why);
/*
 * Takes bytes of a chunked body and leaves its content at @p, *ret_len bytes. Returns how many bytes were used, or
 * -EBADMSG. Sets q->body_done at the end.
 */
ssize_t parse_chunks(struct http_req *q, char *p, size_t n, size_t *ret_len);

/* --- req.c --- */
struct http_req *req_new(struct conn *c);
void req_free(struct http_req *q);
/* Path and query of a whole head, which has room behind it. Returns 0 or the status to refuse with. */
int req_target(struct http_req *q, const char **ret_why);
/* Takes bytes of the body; 0: none can be taken now. */
size_t req_feed(struct http_req *q, char *p, size_t n);
/* Calls back what is due. True when it did. */
bool req_callbacks(struct http_req *q);
bool req_wants_body(const struct http_req *q);

/* --- res.c --- */
/* An answer in the shape of every error. */
void res_refuse(struct http_req *q, enum err_reason why, const char *message);
#define RES_PIECES_MAX 8U
void res_write(struct http_req *q, const struct http_piece *p, size_t n); /* copies, as one chunk */
void res_queue_fell(struct conn *c); /* something was sent */

/* --- sse.c --- */
void sse_comment(struct http_req *q);
void req_probe(struct http_req *q); /* an interim answer, if there can be one: it fails when the client has left */

/* --- ws.c --- */
size_t ws_feed(struct ws *w, const char *p, size_t n);
bool ws_callbacks(struct ws *w);
void ws_queue_fell(struct ws *w);
bool ws_wants(const struct ws *w);
void ws_ping(struct ws *w);
/* The connection was closed: calls the layer above unless that closed it, and frees. */
void ws_gone(struct ws *w);

/* --- tunnel.c --- */
size_t tunnel_feed(struct tunnel *t, const char *p, size_t n);
bool tunnel_callbacks(struct tunnel *t);
void tunnel_queue_fell(struct tunnel *t);
bool tunnel_wants(const struct tunnel *t);
bool tunnel_eof(struct tunnel *t); /* true when this call has reported the end */
bool tunnel_shuts(const struct tunnel *t); /* it is to be shut once all is sent */
/* As ws_gone. */
void tunnel_gone(struct tunnel *t);

/* --- tls.c --- */
int tls_new(const char *cert, const char *key, SSL_CTX **ret, struct err *e);
void tls_free(SSL_CTX *ctx);
int tls_conn_new(struct conn *c);
void tls_conn_free(struct conn *c);
void tls_write(struct conn *c, const struct out_piece *p, size_t n);
void tls_shut(struct conn *c);
/* Bytes from the wire in; then tls_read: bytes of content, 0 when there are none yet, -errno. */
int tls_feed(struct conn *c, const char *p, size_t n);
ssize_t tls_read(struct conn *c, char *p, size_t n);
