/* The daemon's side of the benchmark: one that runs on a folder of its own, and a client that costs next to nothing. */
#pragma once
#include "bench.h"
#include "base/buf.h"

#include <netinet/in.h>
#include <sys/types.h>

/* ---- serve.c: a daemon on a temporary folder and a port of its own ---- */
struct serve {
	pid_t pid; /* the supervisor; 0 when none runs */
	pid_t watcher; /* ends it should this process die */
	char dir[64];
	struct sockaddr_in addr;
	char token[128];
};
struct serve_opts {
	const char *config; /* `key = value` lines beyond the defaults; NULL: none */
};
struct serve_memory {
	double rss_mib,
		pss_mib; /* supervisor, API and warden together; the first counts shared pages for each of them */
	double api_mib, warden_mib; /* RSS */
};
int serve_start(struct serve *s, const struct bench *b, const struct serve_opts *o, struct err *e);
/* Ends its sandboxes, too, and removes the folder. */
void serve_stop(struct serve *s);
int serve_memory(const struct serve *s, struct serve_memory *ret, struct err *e);
/* CPU time of supervisor, API and warden, and of what they have waited for. */
uint64_t serve_cpu_ns(const struct serve *s);
/*
 * Waits until the daemon has caught up with what it does behind its answers: cleaning up, filling the pool. That is
 * when its warden has not run for a while; returns when it last did.
 */
uint64_t serve_settle(const struct serve *s);

/* ---- client.c: one keep-alive connection ---- */
struct client {
	int fd;
	const struct serve *serve;
	struct buf in; /* from the start of the answer on */
};
struct answer {
	int status;
	const char *body; /* good until the next call on the client */
	size_t len;
};
int client_open(struct client *c, const struct serve *s, struct err *e);
void client_close(struct client *c);
/* Sends a request; @body may be NULL, @accept too. */
int client_send(struct client *c, const char *method, const char *path, const char *accept, const char *body,
		struct err *e);
/* One read: 1 when the answer is whole, 0 when not yet. Blocks when nothing has come. */
int client_step(struct client *c, struct answer *ret, struct err *e);
/* Sends and waits. An answer with another status than @want is an error that quotes it. */
int client_call(struct client *c, const char *method, const char *path, const char *body, int want, struct answer *ret,
		struct err *e);
int answer_check(const struct answer *a, int want, const char *what, struct err *e);
/* Waits for an answer's head only: what came behind it stays in ->in. */
int client_head(struct client *c, int want, struct err *e);

#define API_ID 40
#define API_TRUE "{\"cmd\":[\"/bin/true\"]}"
/* The answer's own "id". */
int answer_id(const struct answer *a, char ret[API_ID], struct err *e);
/* POST /v1/sandboxes; @body may be NULL. */
int api_create(struct client *c, const char *body, char ret_id[API_ID], struct err *e);
/* /bin/true, until its end. */
int api_exec(struct client *c, const char *id, struct err *e);
int api_delete(struct client *c, const char *id, struct err *e);
int answer_ended_well(const struct answer *a, struct err *e);

/* What the client itself costs: CPU time of this process. */
uint64_t own_cpu_ns(void);

/* ---- flow.c: what a long answer carries ---- */
enum flow_kind {
	FLOW_RAW, /* bytes as they are, until the end of the file: a pipe */
	FLOW_CHUNKED, /* a body in chunks */
	FLOW_SSE, /* events in a body in chunks: the text of stdout's */
	FLOW_WEBSOCKET, /* binary frames that start with a 1 */
	FLOW_COUNTED, /* a body whose length is known: @want */
};
/*
 * Reads @fd until the stream's own end and checks that exactly @want bytes of stdout came. @first is what was read
 * already. All kinds read into the same buffer; what differs is how the bytes are counted.
 */
int flow_drain(int fd, enum flow_kind kind, const struct buf *first, uint64_t want, struct err *e);
