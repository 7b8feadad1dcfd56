/*
 * For tests: a real sandbox, its image made by a real cloche-dump, and another sandbox that is made from it, as the
 * warden does it, but without a warden that could repair anything.
 */
#pragma once
#include "layers/seal_test.h"
#include "linux/mount.h"
#include "proto/memory.h"
#include "proto/table.h"

#include <sys/mman.h>

struct rt_box {
	struct client_sandbox s;
	struct kt_peer p;
	pid_t agent; /* as the host numbers it */
	bool grouped; /* execs join the group that came with it */
};

struct rt_image {
	char dir[64];
	int out; /* that folder */
	char said[512]; /* cloche-dump's last word */
};

static inline pid_t rt_pid_of(int pidfd)
{
	char path[64], text[1024];
	char *at;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
		return -1;
	at = strstr(text, "Pid:");
	return at ? (pid_t)strtol(at + 4, NULL, 10) : -1;
}

static inline bool rt_create(struct wt *w, const struct sandbox_spec *spec, struct rt_box *b)
{
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	memset(b, 0, sizeof(*b));
	if (client_create(w->client, spec, &b->s, &e) < 0) {
		printf("# create: %s\n", e.msg);
		return false;
	}
	kt_open(&b->p, TAKE_FD(b->s.sock));
	b->agent = rt_pid_of(b->s.pidfd);
	return b->agent > 0 && kt_wait(&b->p, FRAME_UP, 0, &f, fds);
}

static inline bool rt_destroy(struct wt *w, struct rt_box *b)
{
	struct err e = { 0 };
	int r;

	kt_close(&b->p);
	r = client_destroy(w->client, b->s.handle, &e);
	client_sandbox_done(&b->s);
	return r == 0;
}

static inline void rt_forget(struct rt_image *m)
{
	if (m->out < 0)
		return;
	unlinkat(m->out, "meta", 0);
	unlinkat(m->out, "pages", 0);
	fd_close(m->out);
	m->out = -1;
	rmdir(m->dir);
}

static inline bool rt_hears(struct rt_image *m, int control, const char *word)
{
	struct pollfd p = { .fd = control, .events = POLLIN };
	ssize_t n = poll(&p, 1, 20000) == 1 ? recv(control, m->said, sizeof(m->said) - 1, 0) : -1;

	m->said[n > 0 ? n : 0] = '\0';
	if (!strcmp(m->said, word))
		return true;
	printf("# cloche-dump said '%s', not '%s'\n", m->said, word);
	return false;
}

/* Waits until the agent does nothing: what it has just done is in its table then. */
static inline bool rt_quiet(struct rt_box *b)
{
	AUTO_CLOSE int table = sys_pidfd_getfd(b->s.pidfd, FRAME_KEEP_TABLE);
	static struct table t;

	for (int i = 0; table >= 0 && i < 5000; i++) {
		if (table_read(table, &t) == 0)
			return true;
		wt_sleep_ms(1);
	}
	return false;
}

/* @older: the id of the image that this one is based on, or NULL; @older_meta and @older_pages are its files. */
static inline bool rt_dump_on(struct rt_box *b, struct rt_image *m, const char *older, int older_meta, int older_pages)
{
	AUTO_CLOSE int table = -1, control = -1;
	char program[512], arg[6][16], base[32], more[80];
	const char *argv[10] = { program };
	int pair[2], status = -1;
	bool ok;
	pid_t pid;

	m->out = -1;
	snprintf(m->dir, sizeof(m->dir), "/tmp/restore-test-XXXXXX");
	if (!rt_quiet(b) || !wt_program("cloche-dump", program, sizeof(program)) || !mkdtemp(m->dir) ||
	    (m->out = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	control = pair[0];
	table = sys_pidfd_getfd(b->s.pidfd, FRAME_KEEP_TABLE);
	const int number[] = { b->s.pidfd, b->agent, table, m->out, m->out, pair[1] };

	for (int i = 0; i < 6; i++) {
		snprintf(arg[i], sizeof(arg[i]), "%d", number[i]);
		argv[i + 1] = arg[i];
	}
	if (older) {
		snprintf(more, sizeof(more), "%s:%d", older, older_pages);
		snprintf(base, sizeof(base), "base=%d", older_meta);
		argv[7] = base;
		argv[8] = more;
	}
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < 6; i++)
			if (i != 1)
				fcntl(number[i], F_SETFD, 0);
		if (older) {
			fcntl(older_meta, F_SETFD, 0);
			fcntl(older_pages, F_SETFD, 0);
		}
		execv(program, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	fd_close(pair[1]);
	ok = send(control, "begin", 5, 0) == 5 && rt_hears(m, control, "seized") && rt_hears(m, control, "ready") &&
	     send(control, "go", 2, 0) == 2 && rt_hears(m, control, "copied") && rt_hears(m, control, "done");
	waitpid(pid, &status, 0);
	return ok && status == 0;
}

static inline bool rt_dump(struct rt_box *b, struct rt_image *m)
{
	return rt_dump_on(b, m, NULL, -1, -1);
}

/* Seals its files into a layer, and adds the layer to @spec. */
static inline bool rt_seal(struct wt *w, struct rt_box *b, struct sandbox_spec *spec)
{
	struct client_layer l;
	struct err e = { 0 };
	uint64_t pause;
	char id[ID_SIZE];

	id_new(id, ID_SIZE);
	if (client_seal(w->client, b->s.handle, id, &l, &pause, &e) < 0) {
		printf("# seal: %s\n", e.msg);
		return false;
	}
	st_stand_on(spec, id);
	return true;
}

struct rt_result {
	struct frame_restored done;
	char why[FRAME_FAILED_TEXT_MAX + 1]; /* "": it was restored */
	uint64_t ns;
};

/* The whole image ahead, as rt_restore() will send it again: true when the agent has done with that. */
static inline bool rt_hold(struct rt_box *b, const struct rt_image *m)
{
	struct frame_restore x = { .pages = 1, .groups = b->s.group >= 0, .nofile = 777 };
	int fds[3] = { openat(m->out, "meta", O_RDONLY | O_CLOEXEC), mount_open_file(m->out, "pages"), b->s.group };
	uint8_t out[128];
	long len = frame_restore_encode(&x, out, sizeof(out));
	struct frame f;
	int got[8];
	bool ok = kt_send(&b->p, FRAME_RESTORE, FRAME_RESTORE_AHEAD, out, (size_t)len, fds, frame_restore_fds(&x).n) &&
		  kt_send(&b->p, FRAME_PING, 3, NULL, 0, NULL, 0) && kt_wait(&b->p, FRAME_PONG, 3, &f, got);

	fd_close_many(fds, 2);
	return ok;
}

/* With descriptors of meta, pages, and a filter if @flags say so. True when there was an answer. */
static inline bool rt_send_flags(struct rt_box *b, const int *fds, uint32_t pages, uint32_t flags, uint32_t groups,
				 struct rt_result *ret)
{
	struct frame_restore x = { .flags = flags,
				   .pages = pages,
				   .groups = groups,
				   .nofile = 777,
				   .generation = { 0x1234, clock_mono_ns() } };
	uint64_t start = clock_mono_ns();
	struct frame_failed d;
	uint8_t out[128];
	long len = frame_restore_encode(&x, out, sizeof(out));
	struct frame f;
	int got[8];

	memset(ret, 0, sizeof(*ret));
	if (!kt_send(&b->p, FRAME_RESTORE, 0, out, (size_t)len, fds, frame_restore_fds(&x).n))
		return false;
	while (kt_next(&b->p, 40000, &f, got)) {
		ret->ns = clock_mono_ns() - start;
		if (f.type == FRAME_RESTORED)
			return frame_restored_decode(&f, &ret->done) == 0;
		if (f.type == FRAME_FAILED) {
			if (frame_failed_decode(&f, &d) < 0 || !d.text)
				return false;
			snprintf(ret->why, sizeof(ret->why), "%s", *d.text ? d.text : "?");
			return true;
		}
		fd_close_many(got, f.nfds);
	}
	return false;
}

static inline bool rt_send_fds(struct rt_box *b, const int *fds, uint32_t pages, struct rt_result *ret)
{
	return rt_send_flags(b, fds, pages, 0, 0, ret);
}

static inline bool rt_restore(struct rt_box *b, const struct rt_image *m, struct rt_result *ret)
{
	/* An image of one exec: it joins the group that came with the sandbox. */
	int fds[3] = { openat(m->out, "meta", O_RDONLY | O_CLOEXEC), mount_open_file(m->out, "pages"), b->s.group };
	bool ok = fds[0] >= 0 && fds[1] >= 0 && rt_send_flags(b, fds, 1, 0, b->s.group >= 0, ret);

	fd_close_many(fds, 2);
	if (ok && ret->why[0])
		printf("# %s\n", ret->why);
	return ok && !ret->why[0];
}

/* Any program, as @uid, kept, with its stdin; on a terminal when @ret is NULL (STARTED then brings it). */
static inline bool rt_exec(struct rt_box *b, uint32_t id, uint32_t uid, const char *const *argv, struct kt_pipes *ret)
{
	const char *envp[] = { "PATH=/usr/bin:/bin", "HOME=/home/user", "OPENBLAS_NUM_THREADS=1",
			       "PYTHONDONTWRITEBYTECODE=1" };
	struct frame_exec x = {
		.flags = FRAME_EXEC_KEEP | (ret ? FRAME_EXEC_STDIN : FRAME_EXEC_TTY) |
			 (ret && b->grouped ? FRAME_EXEC_GROUP : 0),
		.uid = uid,
		.gid = uid,
		.cwd = "/tmp",
		.rows = 30,
		.cols = 100,
		.envc = 4,
		.argv = argv,
		.envp = envp,
		.nofile = 777,
	};
	int pipes[3][2], fds[7], n = 0;
	uint8_t out[8000];
	long len;
	bool ok;

	while (argv[x.argc])
		x.argc++;
	len = frame_exec_encode(&x, out, sizeof(out));
	if (len < 0)
		return false;
	if (!ret)
		return kt_send(&b->p, FRAME_EXEC, id, out, (size_t)len, NULL, 0);
	for (int i = 0; i < 3; i++)
		if (pipe2(pipes[i], O_CLOEXEC) < 0)
			return false;
	fds[n++] = pipes[0][0];
	fds[n++] = pipes[1][1];
	fds[n++] = pipes[2][1];
	if (b->grouped)
		fds[n++] = b->s.group;
	fds[n++] = pipes[1][0];
	fds[n++] = pipes[2][0];
	fds[n++] = pipes[0][1];
	ok = kt_send(&b->p, FRAME_EXEC, id, out, (size_t)len, fds, (size_t)n);
	for (int i = 0; i < 3; i++)
		fd_close(fds[i]);
	*ret = (struct kt_pipes){ pipes[0][1], pipes[1][0], pipes[2][0] };
	return ok;
}

static inline bool rt_python(struct rt_box *b, uint32_t id, const char *code, struct kt_pipes *ret)
{
	return rt_exec(b, id, 1000, (const char *const[]){ "/usr/bin/python3", "-u", "-c", code, NULL }, ret);
}

/* What is held of the exec @id, by SYNC. */
static inline bool rt_attach(struct rt_box *b, uint32_t id, struct kt_pipes *ret)
{
	struct kt_held held[32];
	int n = kt_sync(&b->p, held, 32);
	bool found = false;

	for (int i = 0; i < n; i++) {
		if (held[i].id == id && !found) {
			*ret = held[i].pipes;
			found = true;
		} else {
			kt_pipes_close(&held[i].pipes);
		}
	}
	return found;
}
