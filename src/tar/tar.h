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

/* numbers of the descriptors after the start, whatever they were passed as */
enum { TAR_FILES = 3, TAR_STREAM = 4, TAR_MANIFEST = 5, TAR_SPEC = 4, TAR_TO = 5, TAR_REPORT = 5 };

#define TAR_SKIPPED_NAMED 100
#define TAR_CONTEXT "/context" /* the folder of a sandbox that has the context of a build */

struct tar_opts {
	const char *path;
	bool zstd; /* out: whether it is compressed. In: detected from its bytes */
	uint64_t max_bytes, max_entries; /* 0 = no limit */
	uint64_t skip_dev; /* OUT: files on this device are left out; 0 = none */
	/* LAYER */
	uint64_t size; /* of the layer as it comes, which is then all that is read; 0 = to the end */
	const char *digest, *diff; /* what its bytes must be, as they come and uncompressed; NULL: whatever they are */
	bool lowest; /* there is no layer below: nothing is there to be removed */
	bool sums; /* the digests alone: nothing is made */
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
	/* LAYER: of its bytes. SELECT: of what is selected, without "sha256:". "" = none was computed */
	char digest[72];
	bool one_file; /* SELECT: what is selected is one file, and no folder */
	char made[FILE_PATH_MAX]; /* COPY: the topmost folder that was made for the destination, "" = none */
	/* LAYER */
	char diff[72];
	uint64_t in, out; /* bytes of the layer as it came, and uncompressed */
	/* BLOBS: JSON of what was found */
	struct buf found;
	bool has_found;
};

void tar_skip(struct tar_result *r, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A name that stays below where it is put: not empty, not absolute, no "..". */
bool tar_name_ok(const char *name);

/* --- host.c: the blocking host of a file worker --- */
struct host {
	int fd; /* the worker's socket */
	uint32_t tag; /* of the last operation that was asked for */
	uint32_t expect; /* tag of the operation whose answer comes next: ->tag, unless operations were sent ahead */
	int patience; /* ms a worker may be silent while it is waited for; 0 = for ever */
	uint8_t in[FILE_FRAME_MAX];
	uint8_t out[FILE_FRAME_MAX];
	struct file_end end; /* of the last operation */
	unsigned end_flags;
};
/* All: 0 or -errno with @e set; -EREMOTEIO when the worker is gone or sends an invalid frame. */
int host_ask(struct host *h, enum file_type type, unsigned flags, const struct file_request *q, struct err *e);
/* A DRESS. */
int host_dress(struct host *h, const struct file_dress *x, unsigned flags, struct err *e);
int host_send(struct host *h, enum file_type type, const void *data, size_t len, struct err *e);
/* The next frame of this operation; good until the next call. */
int host_next(struct host *h, struct file_frame *ret, struct err *e);
/* Reads up to END: 0, or what the worker says as -errno (h->end has the step; @e is not set for these). */
int host_wait(struct host *h, struct err *e);
bool host_answered(const struct host *h); /* something has come already */

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
void links_clear(struct links *l);
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
	/* or from this folder, out of which no link leads; as long as the maker is in use. NULL: the root */
	const char *under;
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
/*
 * Operations whose answers are due: with a distant worker, waiting for each answer would take most of the time.
 * Their answers, with a path of 4 KiB each, must fit into a socket's buffer: a worker that cannot send does not read
 * either.
 */
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
	bool over; /* likewise, without asking for them first */
	bool rooted; /* as a layer of an image: links on the way lead on inside the root, and folders in the way go */
};
/* Nothing is left out: what cannot be made is an error. */
int make_thing(struct maker *m, const struct thing *t, struct err *e);
/* The root itself gets what it shall have, at the end. */
int make_root(struct maker *m, const struct thing *t, struct err *e);
int make_settle(struct maker *m, struct err *e); /* no answer is due any more */
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

/*
 * --- one layer of an image: layer_hash.c, which passes its bytes through layer_unzip.c to layer.c, each in a process of its
 * own ---
 */
#define DIGEST_TEXT 72U /* "sha256:", 64 digits, NUL */
#define LAYER_SLACK (64 * MIB) /* of heads and padding, for a layer whose files have as many bytes as they may */
int tar_layer_hash(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e); /* confines itself */
int tar_layer_unzip(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);

#define LAYER_DEPTH 256U /* folders above a name */

/* --- whiteout.c: what a layer has made so far, and what it removes --- */
struct made;
struct made *made_new(void); /* NULL: no memory */
int made_add(struct made *m, const char *path, struct err *e); /* and the folders above it */
/* The entry ".wh.…" of a layer, by its whole name. Nothing that this layer has made is removed. */
int whiteout_apply(struct made *made, struct maker *m, const char *path, struct err *e);

int tar_layer(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);
int tar_layer_out(const struct tar_opts *o, struct tar_result *r, struct err *e);
int tar_blobs(const struct tar_opts *o, struct tar_result *r, struct err *e);
int tar_pack(const struct tar_opts *o, struct tar_result *r, struct err *e);
int tar_unpack(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);
int tar_apply(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);

/* --- thing.c: an entry of an archive as a thing to make --- */
/* Whether this path, from the root, is a folder that sandboxes have of their own, or below: no part of an image. */
bool tar_is_mounted(const char *path);
struct thing_room { /* what a thing points to */
	char path[CHANGE_PATH_MAX], link[CHANGE_PATH_MAX];
	uint8_t xattrs[CHANGE_XATTRS_MAX];
};
/*
 * Below @prefix (from the root, "" = the root). 1; 0 when it is left out, which is noted in @r; -errno. Its content is the
 * caller's to give.
 */
int thing_of(struct archive_entry *n, const char *prefix, struct thing_room *room, struct tar_result *r,
	     struct thing *ret, struct err *e);

/* --- context.c: an archive with everything that it says of files --- */
/*
 * Makes all that @read gives, a tar with any usual compression, below @prefix. @owner: all becomes root's. *ret_is: false
 * when it is no archive; then nothing was made, and it is no error. NULL: it is one.
 */
typedef ssize_t tar_read_fn(void *arg, const void **ret, struct err *e);
struct tree_in {
	tar_read_fn *read;
	void *arg;
	const char *prefix;
	const char *under; /* as of a thing */
	const uint32_t *uid, *gid; /* instead of the archive's; NULL: as it says */
	int (*begin)(void *arg, struct err *e); /* called when it is an archive, before anything is made; or NULL */
	bool *ret_is;
};
int tree_in(const struct tree_in *t, struct maker *m, struct err *e);
int tar_context(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);
/* copy.c. @to: NULL: nothing is copied, only r->digest is computed */
int tar_copy(const struct tar_opts *o, struct host *from, struct host *to, struct tar_result *r, struct err *e);

int tar_out(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);
int tar_in(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e);

/* sort.c: as qsort(), which needs more than confine() leaves. */
void sort(void *items, size_t n, size_t size, int (*order)(const void *a, const void *b));

/* Gives up everything that is not needed to turn bytes into bytes. */
int confine(struct err *e);
