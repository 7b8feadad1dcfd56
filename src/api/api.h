/*
 * The daemon's HTTP API: requests are routed, callers authenticated, and calls translated to service/ by one folder per
 * dialect.
 */
#pragma once
#include "base/map.h"
#include "http/http.h"
#include "http/router.h"
#include "service/sandbox/sandbox.h"
#include "service/service.h"
#include "service/state/turn.h"

#define API_BODY_MAX (4U * 1024U * 1024U)
#define API_UNSENT_MAX (64U * 1024U * 1024U) /* bytes of answers that a tenant has requested and not read */
#define API_ANSWER_MAX (208U * 1024U * 1024U) /* twice the largest output_limit, with each byte as an escape of six */

/*
 * A stream without an end of its own (events, a terminal): it is ended when the daemon stops, and when the token that
 * opened it is not valid any more.
 */
enum stream_end { STREAM_STOP, STREAM_DENIED };
typedef void stream_end_fn(void *arg, enum stream_end why); /* ends the stream; it is in no list any more */
struct api_stream {
	struct api_stream *next, **prev;
	struct token_mark mark;
	stream_end_fn *end;
	void *arg;
};

struct api {
	struct service *s;
	uv_loop_t *loop;
	struct access *access;
	struct audit *audit;
	struct turn *turn;
	struct router *router;
	uid_t owner; /* the user that started the daemon: needs no token on the unix socket */
	const char *noid_isolation;
	const char *ports_domain; /* servers inside are {port}-{id}.DOMAIN; "" = by path only */
	uint64_t started_ns;
	struct api_stream *streams;
	uv_timer_t *looks; /* checks the tokens of streams, while there are any */
	uint64_t requests, refused; /* for the metrics */
	uint64_t refused_noted_ns;
	unsigned archives; /* archives under way */
	bool verifying; /* a worker checks the audit log */
	struct map busy; /* idempotency keys whose first request is under way, by "tenant/key" */
};

struct api_opts { /* all pointers stay the caller's */
	uv_loop_t *loop;
	struct access *access;
	struct audit *audit;
	struct turn *turn;
	uid_t owner;
	const char *noid_isolation, *ports_domain;
};
int api_new(struct service *s, const struct api_opts *o, struct api **ret, struct err *e);
/* The http server's handler; @arg is the api. */
void api_request(void *arg, struct http_req *q);
/* The http server's `foreign`: whether a request is for a server inside a sandbox. */
bool api_foreign(void *arg, const struct http_req *q);
/* Every route of every dialect, for the router and for the test of the OpenAPI document. */
const struct route *api_routes(size_t *ret_n);

void api_stream_add(struct api *a, struct api_stream *s, const struct who *who, stream_end_fn *end, void *arg);
void api_stream_remove(struct api_stream *s); /* also allowed when it is in no list */
/* The daemon stops: ends every stream in the list. Running commands continue. */
void api_end_streams(struct api *a);
/* Tokens have changed: ends streams that are not allowed any more, at once instead of within a second. */
void api_check_streams(struct api *a);

/*
 * Whether the sandbox that a request needs is awake. If not it is woken up, and the request is handled, or refused,
 * after that. (wake.c)
 */
bool api_awake(struct api *a, struct http_req *q, const struct route *r);
/*
 * Admission in steps, for code that also accepts other credentials: api_try() checks the token and scope of the request,
 * api_note() stores its caller, api_share() checks the tenant's number of connections. Each fills @e and sends no
 * answer; api_refuse() does.
 */
const char *api_bearer(const struct http_req *q); /* the token that was sent, or NULL */
int api_try(struct api *a, struct http_req *q, enum scope scope, unsigned *ret_retry, struct err *e);
int api_note(struct http_req *q, struct tenant *t, enum scope scope, const char *token, struct err *e);
int api_share(struct http_req *q, struct err *e);
void api_refuse(struct api *a, struct http_req *q, const struct err *e, unsigned retry);
/* The caller of an admitted request. */
struct who api_who(struct http_req *q);

/*
 * Reads a boolean parameter of the query: without one *ret is not changed; `1`, `true` and a bare name are true, `0`
 * and `false` are false. Anything else is ERR_INVALID. (call.c)
 */
int api_flag(const struct http_req *q, const char *name, bool *ret, struct err *e);
/* `next` of a list, which is "NANOSECONDS-ID" of its last item. *ret_id is a part of @text. (call.c) */
int api_cursor(const char *text, uint64_t *ret_created_ns, const char **ret_id, struct err *e);

/* The tenant that an admin names with ?tenant=, else the caller's own. NULL and ERR_NOT_FOUND. */
struct tenant *api_tenant(struct api *a, struct http_req *q, const struct who *who, struct err *e);

/*
 * A request that takes time. It outlives the client: when the client hangs up, ->q becomes NULL, and the work that was
 * begun continues.
 */
struct call {
	struct api *api;
	struct http_req *q; /* NULL: gone */
	struct who who;
	bool pending; /* something will call back and end it */
	const struct route *route;
	void (*gone)(struct call *c); /* called when the client hangs up, or NULL */
	void (*body)(struct call *c, const char *data, size_t len);
	struct sandbox *sandbox; /* referenced and in use, or NULL */
	struct exec *exec; /* referenced, or NULL */
	struct turn_wait wait;
	char *busy; /* its idempotency key, when it has one */
	struct buf answer; /* for call_stored, until it is sent */
	int status;
	void *data;
};

struct call *call_new(struct api *a, struct http_req *q, const struct route *r);
/* Ends the call; the request must have been answered, or be gone. */
void call_free(struct call *c);
/* Each answers (if the client is still connected) and ends the call. */
void call_fail(struct call *c, const struct err *e);
/*
 * Likewise for a call that was done, and whose answer cannot be given: clients repeat a call that says ERR_EXHAUSTED, and not
 * one beyond a limit.
 */
void call_fail_done(struct call *c, const struct err *e);
void call_json(struct call *c, int status, struct buf *b); /* takes the content over */
void call_empty(struct call *c, int status);
/* Whether the caller may get a large answer now: a caller with too many unread bytes must read them first. */
int call_room(const struct call *c, size_t more, struct err *e);
/* A long answer: fails when it did not fit into the buffer. */
void call_list(struct call *c, struct json *j);
/* Answers a change when it is stored on the disk. Takes the content over; NULL: an answer without a body. */
void call_stored(struct call *c, int status, struct buf *b);
/* Finds the sandbox named in the path. On failure it has been answered and ended: returns -errno. */
int call_sandbox(struct call *c);
/*
 * For a call that has found its sandbox in another way: referenced and in use until call_leave_sandbox(), at the latest
 * when the call ends.
 */
void call_enter_sandbox(struct call *c, struct sandbox *b);
void call_leave_sandbox(struct call *c);
int call_exec(struct call *c); /* finds the sandbox and the exec */
/* Reads the whole body, then calls @fn. */
/* As http_read_body(); of tenants, large bodies that have not come whole are bounded together. */
void call_read_body(struct call *c, size_t max, void (*done)(void *arg, const char *data, size_t len), void *arg);
void call_body(struct call *c, void (*fn)(struct call *c, const char *data, size_t len));
/* answers with the sandbox. (native/sandboxes.c) */
void call_sandbox_json(struct call *c, int status, const struct sandbox *b);
/* Answers with the call's sandbox, as it is now. */
void call_answer_sandbox(void *arg);
/* Sets X-Cloche-Audit, for calls that changed something. To be called before the answer. */
void call_audited(struct call *c);

void dto_time(struct json *j, const char *key, uint64_t ns); /* null when 0 */
/* An error as one object: code, message, cause, remedy, request_id. */
void dto_error(struct json *j, const char *key, const struct err *e, const char *request_id);
/* A sandbox as one object. */
void dto_sandbox(struct json *j, const char *key, const struct sandbox *b);

/*
 * What the router does besides calling the handler. scripts/openapi.py reads the tables of routes, too: the API's
 * document describes the consequences of these flags.
 */
enum route_flag {
	ROUTE_USES = 1, /* counts as use of its sandbox: its idle time starts again */
	ROUTE_WAKES = 2, /* a paused or hibernated sandbox is woken up before the handler is called */
	ROUTE_OPENS = 4, /* with ROUTE_WAKES: opens the disk of a stopped or lost sandbox, without starting it */
	ROUTE_RESUMES = 8, /* with ROUTE_WAKES: `?memory=0` wakes it without its processes */
	ROUTE_NO_DISK = 16, /* allowed when the disk is almost full: it stores nothing, or frees something */
	ROUTE_STREAMS = 32, /* the answer may be a stream of events, a WebSocket or a tunnel */
};

#define ROUTE(method_, pattern_, scope_, fn_, flags_)                                                                  \
	{                                                                                                              \
		.method = HTTP_M_##method_, .pattern = pattern_, .scope = SCOPE_##scope_, .flags = flags_,             \
		.handle = fn_                                                                                          \
	}
