/* For tests of layers: a warden with a store of its own, sandboxes in it, and commands in those. */
#pragma once
#include "engine/sandbox/persist_test.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/sys.h"

static char st_store[96];

static inline const char *const *st_args(void)
{
	static const char *args[] = { "--keep", "--state", kt_dir, "--layers", st_store, "--pool", "4", NULL };

	return args;
}

static inline void st_fresh(void)
{
	static unsigned n;

	kt_fresh();
	snprintf(st_store, sizeof(st_store), "/var/tmp/cloche-seal-test-%d-%u", (int)getpid(), n++);
}

/*
 * For a test whose warden is in this process: cloche-layers is another process, and both count calls together, so that
 * any call of either can be made to fail.
 */
#ifdef CLOCHE_FAULTS
static inline bool st_share_faults(void)
{
	static char path[] = "/var/tmp/cloche-faults-test-XXXXXX";
	char text[80];
	int fd = mkstemp(path);
	bool ok = fd >= 0 && ftruncate(fd, SYS_TEST_SHARED) == 0;

	fd_close(fd);
	snprintf(text, sizeof(text), "@%s", path);
	ok = ok && sys_test_parse(text) == 0 && setenv("CLOCHE_FAULT_LAYERS", text, 1) == 0;
	return ok;
}

/* Waits until the next layer's folder is made ahead, or cannot be: that is not part of the test. */
static inline void st_wait_ready(void)
{
	bool ready = false;

	for (int i = 0; i < 100 && !ready; i++) {
		DIR *d = opendir(st_store);
		const struct dirent *x;

		while (d && (x = readdir(d)))
			ready = ready || !strncmp(x->d_name, "ready-", 6);
		if (d)
			closedir(d);
		usleep(2000);
	}
	usleep(3000);
}

static inline void st_unshare_faults(void)
{
	const char *text = getenv("CLOCHE_FAULT_LAYERS");

	if (text)
		unlink(text + 1);
	unsetenv("CLOCHE_FAULT_LAYERS");
}
#endif

/* Runs a script on the host. Returns the exit status as wait() does. */
static inline int st_shell(const char *script)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", script, NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status;
}

static inline void st_remove_store(void)
{
	char cmd[160];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", st_store);
	st_shell(cmd);
}

struct st_box {
	struct client_sandbox s;
	struct kt_peer p;
	uint32_t id; /* of the last exec */
	char out[8192];
};

static inline bool st_create(struct wt *w, const struct sandbox_spec *spec, struct st_box *b)
{
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	memset(b, 0, sizeof(*b));
	if (client_create(w->client, spec, &b->s, &e) < 0) {
		printf("# create: %s; %s\n", e.msg, e.remedy);
		return false;
	}
	kt_open(&b->p, TAKE_FD(b->s.sock));
	return kt_wait(&b->p, FRAME_UP, 0, &f, fds);
}

/* Starts @script as @uid; its output is read from the descriptor. */
static inline int st_start(struct st_box *b, uint32_t uid, const char *script)
{
	const char *argv[] = { "/bin/sh", "-c", script }, *envp[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin" };
	struct frame_exec x = { .uid = uid, .gid = uid, .cwd = "/", .argc = 3, .envc = 1, .argv = argv, .envp = envp };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), pipes[2];
	uint8_t out[8192];
	long len = frame_exec_encode(&x, out, sizeof(out));
	bool ok = pipe2(pipes, O_CLOEXEC) == 0 && len > 0 &&
		  kt_send(&b->p, FRAME_EXEC, ++b->id, out, (size_t)len, (int[]){ null, pipes[1], pipes[1] }, 3);

	fd_close(null);
	fd_close(pipes[1]);
	return ok ? pipes[0] : -1;
}

/* Runs it to its end; the output is in ->out. Its exit code, or -1. */
static inline int st_run(struct st_box *b, uint32_t uid, const char *script)
{
	AUTO_CLOSE int fd = st_start(b, uid, script);
	struct frame_exited x;
	struct frame f;
	size_t have = 0;
	ssize_t n;
	int fds[8];

	if (fd < 0)
		return -1;
	while (have < sizeof(b->out) - 1 && (n = read(fd, b->out + have, sizeof(b->out) - 1 - have)) > 0)
		have += (size_t)n;
	b->out[have] = '\0';
	if (!kt_wait(&b->p, FRAME_EXITED, b->id, &f, fds) || frame_exited_decode(&f, &x) < 0 || !WIFEXITED(x.status))
		return -1;
	if (WEXITSTATUS(x.status))
		printf("# '%s': exit %d, said: %s\n", script, WEXITSTATUS(x.status), b->out);
	return WEXITSTATUS(x.status);
}

static inline bool st_end(struct wt *w, struct st_box *b)
{
	struct err e = { 0 };
	bool ok = client_destroy(w->client, b->s.handle, &e) == 0 && wt_gone(b->s.pidfd, 5000);

	kt_close(&b->p);
	client_sandbox_done(&b->s);
	return ok;
}

static inline bool st_seal(struct wt *w, struct st_box *b, char id[ID_SIZE], struct client_layer *l, uint64_t *pause)
{
	struct err e = { 0 };

	id_new(id, ID_SIZE);
	if (client_seal(w->client, b->s.handle, id, l, pause, &e) == 0)
		return true;
	printf("# seal: %s; %s\n", e.msg, e.remedy);
	return false;
}

static inline void st_stand_on(struct sandbox_spec *spec, const char *id)
{
	memcpy(spec->layer[spec->layers++], id, ID_SIZE);
}

static inline bool st_stop(struct wt *w)
{
	bool ok = kt_settled(w) && kt_records() == 0;

	ok = wt_stop(w) == 0 && ok;
	kt_remove_state();
	st_remove_store();
	return ok;
}

/* Counts half-made and half-removed folders in the store; one that was made ahead is neither. */
static inline unsigned half_made(void)
{
	DIR *d = opendir(st_store);
	const struct dirent *x;
	unsigned n = 0, ready = 0;

	while (d && (x = readdir(d))) {
		n += strlen(x->d_name) > ID_LEN;
		ready += !strncmp(x->d_name, "ready-", 6);
	}
	if (d)
		closedir(d);
	/* What a killed process had made ready stays until the store is swept: beside the one for the next layer, two. */
	return n + (ready > 3 ? ready - 3 : 0);
}

static inline bool none_half_made(void)
{
	for (int i = 0; i < 3000; i++) {
		if (!half_made())
			return true;
		wt_sleep_ms(10);
	}
	return false;
}

/*
 * An access list that also applies to everything that is made in a folder: user 1234 may do everything. For python3,
 * which sets it on @folder.
 */
#define ST_GIVES_RIGHTS(folder)                                                                                        \
	"import os, struct; os.setxattr('" folder "', 'system.posix_acl_default', struct.pack('<I', 2) + b''.join("    \
	"struct.pack('<HHi', *x) for x in ((1, 7, -1), (2, 7, 1234), (4, 5, -1), (16, 7, -1), (32, 5, -1))))"
