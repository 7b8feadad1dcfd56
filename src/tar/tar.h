/*
 * cloche-tar's parts: a worker's host (host.c), folders in both directions (in.c, out.c), checkpoints (pack.c,
 * unpack.c), changes done again (apply.c), and locking up (confine.c).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "proto/change.h"
#include "proto/file.h"

enum { TAR_FILES = 3, TAR_STREAM = 4, TAR_MANIFEST = 5 }; /* numbers of the descriptors after the start, whatever they were passed as */

#define TAR_SKIPPED_NAMED 100

struct tar_opts {
	const char *path;
	bool zstd; /* out: whether it is compressed. In: detected from its bytes */
	uint64_t max_bytes, max_entries; /* 0 = no limit */
	uint64_t skip_dev; /* OUT: what lies on this device is left out; 0 = none */
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
	uint32_t tag; /* of the last operation that was asked for */
	uint32_t expect; /* of the one whose answer is next: that, unless somebody has asked ahead */
	int patience; /* ms a worker may be silent while it is waited for; 0 = for ever */
	uint8_t in[FILE_FRAME_MAX];
	uint8_t out[FILE_FRAME_MAX];
	struct file_end end; /* of the last operation */
	unsigned end_flags;
};
/* All: 0 or -errno with @e set; -EREMOTEIO when the worker is gone or talks nonsense. */
int host_ask(struct host *h, enum file_type type, unsigned flags, const struct file_request *q, struct err *e);
/* A DRESS. */
int host_dress(struct host *h, const struct file_dress *x, struct err *e);
int host_send(struct host *h, enum file_type type, const void *data, size_t len, struct err *e);
/* The next frame of this operation; good until the next call. */
int host_next(struct host *h, struct file_frame *ret, struct err *e);
/* Reads up to END: 0, or what the worker says as -errno (h->end has the step; @e is not set for these). */
int host_wait(struct host *h, struct err *e);
bool host_answered(void); /* something has come already */

/* --- content.c: the bytes of a file in an archive --- */
struct archive;
struct archive_entry;
struct content {
	uint64_t size, at; /* at: given already */
	bool over; /* what is left is zeros */
};
struct content content_of(struct archive_entry *n);
/* Bytes with all holes filled, 0 at the end; -1: the archive cannot be read. */
ssize_t content_read(struct content *c, struct archive *a, uint8_t *buf, size_t room);

/* --- links.c: files with several names --- */
struct links;
struct links *links_new(void); /* NULL: no memory */
/* The name it was met under first; NULL: now, and it is remembered. */
const char *links_find(struct links *l, uint64_t dev, uint64_t ino, const char *name);

/* --- stream.c: changes (proto/change.h) as the warden writes them --- */
struct changes {
	int fd;
	size_t have, used;
	uint8_t buf[2 * CHANGE_FRAME_MAX];
	struct change_frame next; /* peeked at */
	bool peeked;
	struct change_end end;
};
/* The next entry: 1, 0 at the end that says all came, or -errno. What it points to is good until the next call. */
int changes_entry(struct changes *c, struct change_entry *ret, struct err *e);
/*
 * The content of the entry before, in order and with its holes filled: bytes, 0 at the end. Of @size bytes, of which
 * *at were given already.
 */
ssize_t changes_data(struct changes *c, uint64_t size, uint64_t *at, uint8_t *buf, size_t room, struct err *e);

/* --- make.c: things made in a sandbox by its file worker, as root inside --- */
struct thing {
	const char *path; /* from the root, without the first slash */
	uint32_t mode; /* with its type; 0: there shall be nothing */
	uint32_t uid, gid;
	int64_t mtime;
	const char *target; /* of a symbolic link */
	const char *link; /* another name of this path, or NULL */
	const uint8_t *xattrs; /* as proto/change.h has them */
	uint32_t xattrs_len;
	ssize_t (*read)(void *arg, uint8_t *buf, size_t room, struct err *e); /* of a file; 0 at its end */
	void *arg;
};
/* Operations whose answers are due: where a worker is far away, waiting for each would be most of the time. What they are
 * answered with, a path of 4 KiB each, must fit into a socket: a worker that cannot tell does not read either. */
#define MAKE_AHEAD 12U
struct due {
	uint32_t tag;
	bool may_miss; /* what is not there is fine */
	char *path;
};
struct maker {
	struct host *h;
	struct due due[MAKE_AHEAD];
	unsigned ndue;
	struct tar_result *r;
	uint64_t max_bytes, max_entries, entries;
	struct folder *folders;
	bool replace; /* folders may be in the way of other things, and go */
};
/* Nothing is left out: what cannot be made is an error. */
int make_thing(struct maker *m, const struct thing *t, struct err *e);
/* Folders get what they shall have last, since what is made in them would change it. */
int make_finish(struct maker *m, struct err *e);

/*
 * What a packed checkpoint ends with: a zstd frame that unpackers skip, with the sum of all bytes before it. Any byte
 * that is changed, missing or too many is noticed.
 */
#define TRAILER 56U
void trailer_put(uint8_t out[TRAILER], const uint8_t sum[32]);
bool trailer_ok(const uint8_t in[TRAILER], const uint8_t sum[32]);
#define MANIFEST_MAX (4U << 20)

int tar_pack(const struct tar_opts *o, struct tar_result *r, struct err *e);
int tar_unpack(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);
int tar_apply(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);

int tar_out(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);
int tar_in(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);

/* Gives up everything that is not needed to turn bytes into bytes. */
int confine(struct err *e);
