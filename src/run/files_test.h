/* For tests: a sandbox, commands in it, and the host's end of a file worker, blocking. */
#pragma once
#include "base/base.h"
#include "proto/exec.h"
#include "run/remote_test.h"
#include "proto/file.h"
#include "warden/warden_test.h"

#include <sys/stat.h>

#define FT_LOST (-9999) /* the worker has ended */
#define FT_LATE (-9998) /* it does not answer */

struct ft {
	struct wt w;
	struct client *c;
	struct sandbox_spec spec;
	struct client_sandbox there;
	struct engine_sandbox s;
	bool made;
	uint32_t next;
	char out[65536]; /* output of the last command */
};

static inline bool ft_open(struct ft *t)
{
	struct err e = { 0 };
	bool ok;

	*t = (struct ft){ .next = 1 };
	wt_spec(&t->spec);
	t->spec.limits.memory = 500 * MIB;
	t->spec.limits.disk = 300 * MIB;
	t->spec.limits.pids = 256;
	if (!wt_start(&t->w, NULL))
		return false;
	ok = client_connect(TAKE_FD(t->w.sock), &t->c, &e) == 0 &&
	     remote_create(t->c, &t->spec, &t->there, &t->s, &e) == 0;
	t->made = ok;
	ok = ok && engine_wait_up(&t->s, 10000, &e) == 0;
	if (!ok)
		printf("# %s\n", e.msg);
	return ok;
}

static inline void ft_close(struct ft *t)
{
	struct err e = { 0 };

	if (t->made)
		remote_destroy(t->c, &t->there, &t->s, &e);
	client_free(t->c);
	wt_stop(&t->w);
	t->made = false;
	t->c = NULL;
}

/* Runs a shell line inside; its output is in t->out. Returns the exit code or -1. */
static inline int ft_sh(struct ft *t, uint32_t uid, const char *text)
{
	const char *const argv[] = { "/bin/sh", "-c", text, NULL };
	static const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/home/user" };
	struct exec_spec x = { .argv = argv,
			       .argc = 3,
			       .envp = env,
			       .envc = 2,
			       .cwd = "/home/user",
			       .uid = uid,
			       .gid = uid,
			       .filter = -1,
			       .nofile = 1024 };
	AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct err e = { 0 };
	size_t have = 0;
	int p[2], r;
	ssize_t n;

	t->out[0] = '\0';
	if (pipe2(p, O_CLOEXEC) < 0)
		return -1;
	r = exec_send(&t->s.link, t->next++, &x, (const int[]){ null, p[1], p[1] }, &e);
	fd_close(p[1]);
	while (r == 0 && (n = read(p[0], t->out + have, sizeof(t->out) - 1 - have)) > 0)
		have += (size_t)n;
	t->out[have] = '\0';
	fd_close(p[0]);
	while (r == 0) {
		struct frame_exited end;
		struct frame f;
		int fd = -1;

		if (link_next(&t->s.link, 60000, &f, &fd) <= 0)
			return -1;
		fd_close(fd);
		if (f.type == FRAME_EXITED && f.id == t->next - 1 && frame_exited_decode(&f, &end) == 0)
			return WIFEXITED(end.status) ? WEXITSTATUS(end.status) : 128 + WTERMSIG(end.status);
		if (f.type == FRAME_FAILED)
			return -1;
	}
	return -1;
}

struct fw {
	int sock;
	uint32_t tag;
	uint8_t buf[FILE_FRAME_MAX * 2];
	size_t have, used;
	/* result of the last operation */
	struct file_end end;
	unsigned end_flags;
	struct file_entry entry; /* the last entry; its strings are below */
	char path[FILE_PATH_MAX], target[FILE_PATH_MAX];
	unsigned entries;
	char names[65536]; /* each followed by a newline, those of links with " -> " */
	uint64_t bytes;
	char data[8192]; /* the first bytes, NUL-terminated */
};

/* Makes a socket pair whose other end is served by a worker of @uid. */
static inline int ft_worker(struct ft *t, uint32_t uid, const char *cwd)
{
	const struct frame_files x = { .uid = uid, .gid = uid, .cwd = cwd };
	uint8_t payload[FILE_PATH_MAX + 64];
	long n = frame_files_encode(&x, payload, sizeof(payload));
	int p[2];

	if (n < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
		return -1;
	if (link_send(&t->s.link, FRAME_FILES, t->next++, payload, (size_t)n, &p[1], 1) < 0)
		fd_close(TAKE_FD(p[0]));
	fd_close(p[1]);
	return p[0];
}

static inline bool fw_open(struct fw *w, struct ft *t, uint32_t uid)
{
	*w = (struct fw){ .tag = 100 };
	w->sock = ft_worker(t, uid, "/home/user");
	return w->sock >= 0;
}

static inline void fw_close(struct fw *w)
{
	fd_close(TAKE_FD(w->sock));
}

/* Reads the next frame: 1, or FT_LOST, FT_LATE. */
static inline int fw_next(struct fw *w, struct file_frame *ret, int ms)
{
	for (;;) {
		long r = file_decode(FILE_FROM_WORKER, w->buf + w->used, w->have - w->used, ret);
		struct pollfd p = { .fd = w->sock, .events = POLLIN };
		ssize_t n;

		if (r > 0) {
			w->used += (size_t)r;
			return 1;
		}
		if (r < 0)
			return FT_LOST;
		memmove(w->buf, w->buf + w->used, w->have - w->used);
		w->have -= w->used;
		w->used = 0;
		if (poll(&p, 1, ms) != 1)
			return FT_LATE;
		n = read(w->sock, w->buf + w->have, sizeof(w->buf) - w->have);
		if (n <= 0)
			return FT_LOST;
		w->have += (size_t)n;
	}
}

static inline bool fw_send(struct fw *w, enum file_type type, unsigned flags, const void *payload, size_t len)
{
	static uint8_t out[FILE_FRAME_MAX];

	file_head(out, type, flags, w->tag, (uint32_t)len);
	if (len)
		memcpy(out + FILE_HEAD, payload, len);
	return fd_write_all(w->sock, out, FILE_HEAD + len) == 0;
}

static inline bool fw_ask(struct fw *w, enum file_type type, unsigned flags, const struct file_request *q)
{
	uint8_t payload[FILE_SMALL_MAX];
	long n = file_request_encode(q, payload, sizeof(payload));

	w->tag++;
	w->entries = 0;
	w->bytes = 0;
	w->names[0] = w->data[0] = '\0';
	w->end = (struct file_end){ 0 };
	return n > 0 && fw_send(w, type, flags, payload, (size_t)n);
}

static inline void fw_note(struct fw *w, const struct file_frame *f)
{
	size_t at = strlen(w->names);

	if (f->type == FILE_DATA) {
		if (w->bytes < sizeof(w->data) - 1) {
			size_t room = sizeof(w->data) - 1 - (size_t)w->bytes, n = f->len < room ? f->len : room;

			memcpy(w->data + w->bytes, f->payload, n);
			w->data[w->bytes + n] = '\0';
		}
		w->bytes += f->len;
	}
	if (f->type == FILE_ENTRY && file_entry_decode(f, &w->entry) == 0) {
		snprintf(w->path, sizeof(w->path), "%s", w->entry.path);
		snprintf(w->target, sizeof(w->target), "%s", w->entry.target);
		w->entry.path = w->path;
		w->entry.target = w->target;
		w->entries++;
		snprintf(w->names + at, sizeof(w->names) - at, "%s%s%s\n", w->path, *w->target ? " -> " : "",
			 w->target);
	}
}

/* Reads answers up to END. Returns 0, -errno of the worker, or FT_*. */
static inline int fw_wait(struct fw *w)
{
	struct file_frame f;

	for (;;) {
		int r = fw_next(w, &f, 30000);

		if (r < 0)
			return r;
		if (f.tag != w->tag)
			return -EBADMSG;
		fw_note(w, &f);
		if (f.type != FILE_END)
			continue;
		if (file_end_decode(&f, &w->end) < 0)
			return -EBADMSG;
		w->end_flags = f.flags;
		return -(int)w->end.errnum;
	}
}

static inline int fw_do(struct fw *w, enum file_type type, unsigned flags, const struct file_request *q)
{
	return fw_ask(w, type, flags, q) ? fw_wait(w) : FT_LOST;
}

static inline int fw_path(struct fw *w, enum file_type type, unsigned flags, const char *path)
{
	return fw_do(w, type, flags, &(struct file_request){ .path = path, .length = FILE_ALL, .depth = 1 });
}

static inline int fw_put(struct fw *w, const struct file_request *q, unsigned flags, const char *text)
{
	if (!fw_ask(w, FILE_WRITE, flags, q) || (*text && !fw_send(w, FILE_DATA, 0, text, strlen(text))) ||
	    !fw_send(w, FILE_END, 0, NULL, 0))
		return FT_LOST;
	return fw_wait(w);
}
