/* Shared by files.c, archive.c and watch.c: a call about one path. */
#pragma once
#include "api/api.h"
#include "service/file/file.h"

struct file_call {
	struct call *c;
	struct file_op *op; /* the operation under way, or NULL */
	char *path;
	char to_buf[FILE_PATH_MAX];
	const char *to; /* destination of a move, else NULL */
	struct user_request user;
	struct buf out;
	struct json json; /* writes into ->out */
	const char *kind; /* of the audit record */
	bool kind_bytes;
	bool is_folder, begun, ranged, head;
	uint64_t offset, length, left;
	void (*on_drain)(void *arg);
	void *more; /* state of archive.c */
	struct api_stream registered; /* for watch.c */
};

/* NULL: the call has been answered. */
struct file_call *file_call_new(void *arg, struct http_req *q, const struct route *r);
void file_call_free(struct file_call *f);
void file_call_fail(struct file_call *f, const struct err *e);
/* Records a change, then answers: with ->out if that is not empty, else 204. */
void file_call_note(struct file_call *f, const char *kind, uint64_t bytes, const char *to);
int file_call_begin(struct file_call *f, enum file_type type, unsigned flags, struct file_request *q,
		    const struct file_calls *calls);

/* archive.c */
void archive_out(struct file_call *f);
void archive_in(struct file_call *f);
/* watch.c */
void watch_files(struct file_call *f);
