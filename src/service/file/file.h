/*
 * Files of a sandbox, worked on by a process inside of it (src/agent/files/files.c) over proto/file.h. One operation at a
 * time per worker; a worker that has nothing to do stays for a moment, for the next one.
 */
#pragma once
#include "proto/file.h"
#include "service/sandbox/sandbox.h"

struct file_op;

/* Each may be NULL. None is called from within a call below, nor after file_cancel. */
struct file_calls {
	void (*entry)(void *arg, const struct file_entry *x);
	void (*data)(void *arg, const uint8_t *p, size_t len);
	void (*event)(void *arg, const struct file_event *x);
	void (*drain)(void *arg); /* what file_feed queued has gone out */
	/* The end; @op is gone then. @flags of the END frame. */
	void (*done)(void *arg, int r, const struct file_end *x, unsigned flags, const struct err *e);
};

/* What a call has changed: an audit record, and an event. Stored with the turn. */
struct file_change {
	const char *kind; /* of both: "file.write" */
	const char *path, *to; /* ->to NULL: none */
	const char *user; /* as whom */
	uint64_t bytes;
};
void file_note(struct sandbox *b, const struct who *who, const struct file_change *x);

/* Begins an operation as @user. The request is copied. */
int file_begin(struct sandbox *b, const struct user_request *user, enum file_type type, unsigned flags,
	       const struct file_request *q, const struct file_calls *calls, void *arg, struct file_op **ret,
	       struct err *e);
/*
 * For FILE_WRITE: its bytes, then its end. Queues; stop feeding while file_queued() is above FILE_HIGH, until `drain`.
 */
#define FILE_HIGH (512U * 1024U)
void file_feed(struct file_op *op, const char *data, size_t len);
void file_feed_end(struct file_op *op);
size_t file_queued(const struct file_op *op);
/* Nothing more is read from the worker until file_go: it waits. */
void file_hold(struct file_op *op);
void file_go(struct file_op *op);
/* Gives it up: a file half written is removed again. No callback comes any more. */
void file_cancel(struct file_op *op);

/* A worker on @fd, which stays the caller's, in a sandbox that may be one in the making. */
int file_worker_give(struct sandbox *b, const struct user_request *user, int fd, struct err *e);
/* A worker's socket for another process (cloche-tar). */
int file_worker_open(struct sandbox *b, const struct user_request *user, int *ret_fd, struct err *e);
/* Idle workers of a sandbox that goes. */
void file_workers_drop(struct sandbox *b);
/* An answer's errno as an error: 404, 409, 403, or 422. */
int file_error(struct err *e, uint32_t errnum, uint32_t step, const char *path);
