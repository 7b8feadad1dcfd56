/*
 * A file worker: the agent's child that serves proto/file.h as one user. One thread, blocking, bounded buffers. An
 * operation returns 0 or -errno with the step that failed in w->step; worker.c turns that into END. When the socket is
 * gone w->gone is set and everything unwinds.
 */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "proto/file.h"

#define WORKER_SOCK 3

struct worker {
	int root; /* "/", O_PATH */
	char cwd[FILE_PATH_MAX];
	bool gone; /* the host has closed its end */
	uint32_t tag;
	unsigned flags; /* of the operation under way */
	enum file_step step;
	unsigned end_flags;
	uint64_t count;
	uint8_t *in, *out; /* FILE_FRAME_MAX each */
};

/* --- worker.c --- */
/* Operations from WORKER_SOCK until it ends. */
void worker_serve(struct worker *w);
/* The next frame. 1, or 0 when the host is gone or sends an invalid frame. */
int worker_recv(struct worker *w, struct file_frame *ret);
/* Sends the @len bytes that are in w->out behind the space for the head. */
int worker_send(struct worker *w, enum file_type type, unsigned flags, size_t len);
/* @target NULL: none. @errnum: see struct file_entry. */
int worker_entry(struct worker *w, const char *path, const struct stat *st, const char *target, int errnum);
struct timespec worker_time(int64_t ns);
#define WORKER_TOLD 1 /* an operation's result: its END is sent already */
void worker_fail(struct worker *w, int r); /* END with -@r and w->step */
/* What is at @name in @dir, itself; "" is @dir. */
int worker_entry_at(struct worker *w, const char *path, int dir, const char *name);

/* --- path.c --- */
/* A path to be opened: its folder as text, relative to base, and its last part. */
struct spot {
	int base; /* closed by spot_done when owned */
	bool owned;
	uint64_t resolve;
	char full[FILE_PATH_MAX];
	char dir[FILE_PATH_MAX];
	char name[NAME_MAX + 1]; /* "": the path has no last part that is a name; dir is all of it */
};
int spot_init(struct spot *s, struct worker *w, const char *path, const char *under);
void spot_done(struct spot *s);
static inline void spot_donep(struct spot *s)
{
	spot_done(s);
}
/* Opens the whole path, or its folder (O_PATH). FILE_PARENTS in w->flags makes what is missing. */
int spot_open(const struct spot *s, int flags);
int spot_dir(struct worker *w, const struct spot *s);
/* Opens any other path by the same rules: links stay inside the root, magic links are refused. */
int path_open(int base, const char *path, int flags, uint64_t resolve);
/* Cuts @path into folder and last part. -ENAMETOOLONG, or 0 with "" for "/", "." and "..". */
int path_split(const char *path, char dir[FILE_PATH_MAX], char name[NAME_MAX + 1]);

/* --- tree.c --- */
struct level;
struct walk {
	int fd; /* the folder we are in */
	struct level *levels;
	size_t depth, room;
	char *batch;
	size_t have, used;
	int64_t at; /* position behind the entry given last */
	char path[FILE_PATH_MAX]; /* of the folder we are in, from where the walk began */
	size_t len;
	unsigned passes; /* over the folder we are in */
	bool seen; /* something in this pass */
};
struct dirent64_head {
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};
/* Takes @fd, a folder open for reading. */
int walk_init(struct walk *k, int fd);
void walk_done(struct walk *k);
static inline void walk_donep(struct walk *k)
{
	walk_done(k);
}
/* The next name in the folder: 1, 0 at its end, or -errno. */
int walk_next(struct walk *k, const struct dirent64_head **ret);
/* Takes @fd, the folder @name in this one. */
int walk_into(struct walk *k, int fd, const char *name);
/* Back to the folder above. -ESTALE when that is not the one we came from. */
int walk_up(struct walk *k);
/* path/name from where the walk began. -ENAMETOOLONG. */
int walk_name(const struct walk *k, const char *name, char ret[FILE_PATH_MAX]);
bool walk_foreign(int fd); /* a view of the kernel, not of files */

int files_read(struct worker *w, const struct file_request *q);
int files_list(struct worker *w, const struct file_request *q);
int files_remove(struct worker *w, const struct file_request *q);
/* With FILE_OVER: a folder @name in @dir goes, with all that is in it. 0 also when there is none. */
int files_make_way(struct worker *w, int dir, const char *name);

/* --- write.c, name.c, watch.c --- */
int files_write(struct worker *w, const struct file_request *q);
/* A new empty file in @dir under a name of its own, in @ret_name (32 bytes). */
int files_temp(int dir, char *ret_name);
int files_copy(int from, int to); /* all of it, to the end */
int files_stat(struct worker *w, const struct file_request *q);
int files_mkdir(struct worker *w, const struct file_request *q);
int files_move(struct worker *w, const struct file_request *q);
int files_symlink(struct worker *w, const struct file_request *q);
int files_link(struct worker *w, const struct file_request *q);
int files_fifo(struct worker *w, const struct file_request *q);
/* A request of its own layout. */
int files_dress(struct worker *w, const struct file_dress *x);
int files_attr(struct worker *w, const struct file_request *q);
int files_rename(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int files_watch(struct worker *w, const struct file_request *q);
