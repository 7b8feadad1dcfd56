/* For tests: speaking to an agent as a host does, and looking for what a kept sandbox may leave. */
#pragma once
#include "engine/blank/record.h"
#include "warden/warden_test.h"

#include <sys/file.h>
#include <sys/stat.h>

#define KT_WAIT 10000

struct kt_peer {
	int sock;
	uint8_t data[4096], last[4096];
	size_t len;
	int fds[32];
	size_t nfds;
};

static inline void kt_open(struct kt_peer *p, int sock)
{
	memset(p, 0, sizeof(*p));
	p->sock = sock;
}

static inline void kt_close(struct kt_peer *p)
{
	fd_close_many(p->fds, p->nfds);
	fd_close(p->sock);
	p->sock = -1;
	p->nfds = p->len = 0;
}

/* The next frame, good until the next call, and its descriptors. False when none came in time, or the end. */
static inline bool kt_next(struct kt_peer *p, int ms, struct frame *f, int *fds)
{
	for (;;) {
		struct pollfd poll_one = { .fd = p->sock, .events = POLLIN };
		size_t got = 0;
		ssize_t n;
		long r;

		memcpy(p->last, p->data, sizeof(p->data));
		r = frame_decode(p->last, p->len, f);
		if (r < 0 || (r > 0 && f->nfds > p->nfds))
			return false;
		if (r > 0) {
			memmove(p->data, p->data + r, p->len - (size_t)r);
			p->len -= (size_t)r;
			memcpy(fds, p->fds, f->nfds * sizeof(int));
			p->nfds -= f->nfds;
			memmove(p->fds, p->fds + f->nfds, p->nfds * sizeof(int));
			return true;
		}
		if (poll(&poll_one, 1, ms) != 1)
			return false;
		n = fd_recv(p->sock, p->data + p->len, sizeof(p->data) - p->len, p->fds + p->nfds,
			    ARRAY_LEN(p->fds) - p->nfds, &got);
		if (n <= 0)
			return false;
		p->len += (size_t)n;
		p->nfds += got;
	}
}

/* The next frame of that type for @id; others are passed over and their descriptors closed. */
static inline bool kt_wait(struct kt_peer *p, enum frame_type type, uint32_t id, struct frame *f, int *fds)
{
	while (kt_next(p, KT_WAIT, f, fds)) {
		if (f->type == type && f->id == id)
			return true;
		if (f->type == FRAME_FAILED)
			printf("# FAILED: %s, errno %u\n", frame_stage_text(f->payload[0]), f->payload[4]);
		fd_close_many(fds, f->nfds);
	}
	printf("# no frame %d for %u\n", (int)type, id);
	return false;
}

static inline bool kt_send(struct kt_peer *p, enum frame_type type, uint32_t id, const void *payload, size_t len,
			   const int *fds, size_t nfds)
{
	uint8_t out[8192];

	frame_head(out, type, (uint8_t)nfds, id, (uint32_t)len);
	if (len)
		memcpy(out + FRAME_HEAD, payload, len);
	return fd_send(p->sock, out, FRAME_HEAD + len, fds, nfds) == 0;
}

struct kt_pipes {
	int in, out, err; /* ours */
};

static inline void kt_pipes_close(struct kt_pipes *x)
{
	fd_close(x->in);
	fd_close(x->out);
	fd_close(x->err);
	*x = (struct kt_pipes){ -1, -1, -1 };
}

/* Runs @script with sh, kept, with its stdin kept too; joins by @group unless it is -1. */
static inline bool kt_exec(struct kt_peer *p, uint32_t id, const char *script, int group, struct kt_pipes *ret)
{
	const char *argv[] = { "/bin/sh", "-c", script }, *envp[] = { "PATH=/usr/bin:/bin" };
	struct frame_exec x = {
		.flags = FRAME_EXEC_KEEP | FRAME_EXEC_STDIN | (group >= 0 ? FRAME_EXEC_GROUP : 0),
		.uid = 1000,
		.gid = 1000,
		.cwd = "/",
		.argc = 3,
		.envc = 1,
		.argv = argv,
		.envp = envp,
	};
	int pipes[3][2], fds[8], n = 0;
	uint8_t out[4096];
	long len = frame_exec_encode(&x, out, sizeof(out));
	bool ok;

	for (int i = 0; i < 3; i++)
		if (pipe2(pipes[i], O_CLOEXEC) < 0)
			return false;
	fds[n++] = pipes[0][0];
	fds[n++] = pipes[1][1];
	fds[n++] = pipes[2][1];
	if (group >= 0)
		fds[n++] = group;
	fds[n++] = pipes[1][0];
	fds[n++] = pipes[2][0];
	fds[n++] = pipes[0][1];
	ok = len > 0 && kt_send(p, FRAME_EXEC, id, out, (size_t)len, fds, (size_t)n);
	fd_close(pipes[0][0]);
	fd_close(pipes[1][1]);
	fd_close(pipes[2][1]);
	*ret = (struct kt_pipes){ pipes[0][1], pipes[1][0], pipes[2][0] };
	return ok;
}

/* Reads until @want was read, until the end, or for a bounded time. */
static inline bool kt_reads(int fd, const char *want)
{
	char text[256] = "";
	size_t have = 0;

	while (have < sizeof(text) - 1) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (strstr(text, want))
			return true;
		if (poll(&p, 1, KT_WAIT) != 1 || (n = read(fd, text + have, sizeof(text) - 1 - have)) <= 0)
			break;
		have += (size_t)n;
		text[have] = '\0';
	}
	if (strstr(text, want))
		return true;
	for (char *p = text; (p = strchr(p, '\n'));) /* a comment is one line */
		*p = ' ';
	printf("# read '%s', not '%.*s'\n", text, (int)strcspn(want, "\n"), want);
	return false;
}

static inline bool kt_exited(struct kt_peer *p, uint32_t id, int status)
{
	struct frame_exited x;
	struct frame f;
	int fds[8];

	if (!kt_wait(p, FRAME_EXITED, id, &f, fds) || frame_exited_decode(&f, &x) < 0)
		return false;
	if (x.status != status)
		printf("# status %x\n", x.status);
	return x.status == status;
}

struct kt_held {
	uint32_t id;
	struct frame_held held;
	struct kt_pipes pipes;
};

/* SYNC, and what is held by its answer. How many, or -1. */
static inline int kt_sync(struct kt_peer *p, struct kt_held *ret, int max)
{
	struct frame f;
	int fds[8], n = 0;

	if (!kt_send(p, FRAME_SYNC, 0, NULL, 0, NULL, 0))
		return -1;
	while (kt_next(p, KT_WAIT, &f, fds)) {
		struct kt_held h = { .id = f.id, .pipes = { -1, -1, -1 } };

		if (f.type == FRAME_SYNCED)
			return n;
		if (f.type != FRAME_HELD) {
			fd_close_many(fds, f.nfds);
			continue;
		}
		if (frame_held_decode(&f, &h.held) < 0 || n == max)
			return -1;
		h.pipes.out = fds[0];
		h.pipes.err = f.nfds > 1 ? fds[1] : -1;
		h.pipes.in = f.nfds > 2 ? fds[2] : -1;
		ret[n++] = h;
	}
	return -1;
}

static char kt_dir[64];

static inline const char *const *kt_args(void)
{
	static const char *args[] = { "--keep", "--state", kt_dir, "--pool", "2", NULL };

	return args;
}

/* A state folder of its own for each test, so that a failed test does not disturb the others. */
static inline void kt_fresh(void)
{
	static unsigned n;

	snprintf(kt_dir, sizeof(kt_dir), "/run/cloche-keep-test-%d-%u", (int)getpid(), n++);
}

/* As a crash would: no goodbye. */
static inline void kt_crash(struct wt *w)
{
	int status;

	kill(w->pid, SIGKILL);
	while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
		;
	w->pid = 0;
	wt_stop(w);
}

/* Records that say something. */
static inline unsigned kt_records(void)
{
	uint8_t rec[sizeof(struct record)];
	char path[96];
	unsigned n = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/boxes", kt_dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && read(fd, rec, sizeof(rec)) == (ssize_t)sizeof(rec))
		for (size_t i = 0; i < sizeof(rec); i++)
			if (rec[i]) {
				n++;
				break;
			}
	fd_close(fd);
	return n;
}

static inline void kt_remove_state(void)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/boxes", kt_dir);
	unlink(path);
	rmdir(kt_dir);
}

/* Waits until the warden is done with what was destroyed. */
static inline bool kt_settled(struct wt *w)
{
	struct warden_counts n = { 0 };
	struct err e = { 0 };

	for (int i = 0; i < 500; i++) {
		if (client_counts(w->client, &n, &e) < 0)
			return false;
		if (!n.alive && !n.cleaning)
			return n.cleanup_failures == 0;
		wt_sleep_ms(10);
	}
	return false;
}
