/*
 * The body of a request, fed into a stream socket whose reader sets the pace: what is not taken yet is queued, and the
 * body is paused while the queue is half full.
 */
#pragma once
#include "base/buf.h"
#include "http/http.h"

#include <uv.h>

struct feed {
	struct http_req *q; /* NULL: the client is gone, or has its answer; set by the caller then */
	uv_loop_t *loop;
	uv_poll_t *poll;
	int fd; /* -1: none yet, or not any more */
	struct buf queue;
	bool paused; /* the body, by us */
	bool ended; /* the body is complete */
	bool over; /* no more bytes are wanted: they are dropped */
	bool moved; /* a byte was taken, or the body has ended; for a caller that looks for progress, and clears it */
};

void feed_init(struct feed *f, uv_loop_t *loop, struct http_req *q);
/* Before the answer, and again when it is freed: closes all, and drops what else comes of the body. */
void feed_done(struct feed *f);
/* Takes @fd over, and sends what is queued. */
void feed_open(struct feed *f, int fd);
/* Streams the body of ->q into it. Without this, the caller passes pieces to feed_add(), and their end to feed_end(). */
void feed_body(struct feed *f);
/* Queues bytes for the next feed_add() or feed_end(). False: no more are wanted. */
bool feed_queue(struct feed *f, const void *p, size_t len);
void feed_add(struct feed *f, const void *p, size_t len);
/* The reader sees the end when it has taken the rest. */
void feed_end(struct feed *f);
/* Closes the socket and drops what is queued; the rest of the body is read and dropped. */
void feed_stop(struct feed *f);
