/* cloche-tar's parts: a worker's host (host.c), the two directions (in.c, out.c), and locking up (confine.c). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "proto/file.h"

enum { TAR_FILES = 3, TAR_STREAM = 4 }; /* where the two descriptors stand, whatever they were given as */

#define TAR_SKIPPED_NAMED 100

struct tar_opts {
	const char *path;
	bool zstd; /* out: how it is packed. In: its bytes tell */
	uint64_t max_bytes, max_entries; /* 0 = no limit */
};

struct tar_skipped {
	char *name;
	char why[80];
};

struct tar_result {
	uint64_t files; /* files and links; folders are not counted */
	uint64_t bytes; /* of files */
	uint64_t skipped; /* all; the first are named */
	struct tar_skipped named[TAR_SKIPPED_NAMED];
};

void tar_skip(struct tar_result *r, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A name that stays below where it is put: not empty, not absolute, no "..". */
bool tar_name_ok(const char *name);

/* --- host.c: the blocking host of a file worker --- */
struct host {
	uint32_t tag;
	uint8_t in[FILE_FRAME_MAX];
	uint8_t out[FILE_FRAME_MAX];
	struct file_end end; /* of the last operation */
	unsigned end_flags;
};
/* All: 0 or -errno with @e set; -EREMOTEIO when the worker is gone or talks nonsense. */
int host_ask(struct host *h, enum file_type type, unsigned flags, const struct file_request *q, struct err *e);
int host_send(struct host *h, enum file_type type, const void *data, size_t len, struct err *e);
/* The next frame of this operation; good until the next call. */
int host_next(struct host *h, struct file_frame *ret, struct err *e);
/* Reads up to END: 0, or what the worker says as -errno (h->end has the step; @e is not set for these). */
int host_wait(struct host *h, struct err *e);
bool host_answered(void); /* something has come already */

int tar_out(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);
int tar_in(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);

/* Gives up everything that is not needed to turn bytes into bytes. */
int confine(struct err *e);
