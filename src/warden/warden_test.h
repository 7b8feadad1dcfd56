/* For tests: a real cloche-warden in a process of its own, and what can be seen of it from outside. */
#pragma once
#include "base/base.h"
#include "base/sys.h"
#include "proto/frame.h"
#include "warden/client/client.h"

#include <dirent.h>
#include <limits.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct wt {
	pid_t pid; /* 0: it did not start */
	int sock; /* the test's end, until a client takes it over */
	struct client *client;
	char dir[512]; /* folder of the programs */
};

/*
 * Finds a program beside this test or above it; a build with sanitizers has none, so those of the plain build are used.
 */
static inline bool wt_program(const char *name, char *buf, size_t size)
{
	static const char *const folders[] = { "", "../", "../build/" };
	char self[400], path[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	bool found = false;

	if (n <= 0)
		return false;
	self[n] = '\0';
	*(strrchr(self, '/') + 1) = '\0';
	for (size_t i = 0; !found && i < ARRAY_LEN(folders); i++) {
		AUTO_FREE char *real = NULL;

		snprintf(path, sizeof(path), "%s%s%s", self, folders[i], name);
		real = realpath(path, NULL);
		found = real && (size_t)snprintf(buf, size, "%s", real) < size;
	}
	return found;
}

/* The program to start instead, such as "faulty/cloche-warden", which has another agent beside it. */
static const char *wt_warden = "cloche-warden";

/* Starts it on a socket pair with more arguments, NULL-terminated. */
static inline bool wt_start(struct wt *w, const char *const *more)
{
	char program[512], fd[16];
	const char *argv[24] = { program, "--socket-fd", fd };
	int pair[2], n = 3;

	*w = (struct wt){ .sock = -1 };
	if (!wt_program(wt_warden, program, sizeof(program)) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	for (; more && *more && n < 23; more++)
		argv[n++] = *more;
	snprintf(fd, sizeof(fd), "%d", pair[1]);
	w->pid = fork();
	if (w->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM); /* a test that fails half-way leaves no warden behind */
		fcntl(pair[1], F_SETFD, 0);
		execv(program, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	fd_close(pair[1]);
	w->sock = pair[0];
	return w->pid > 0;
}

/* A socket at @path that a warden can be started with, for several clients; given to the next program that is executed. */
static inline int wt_listener(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%.107s", path);
	return bind(fd, (const struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 16) == 0 ? fd : -1;
}

static inline bool wt_connect(struct wt *w)
{
	struct err e = { 0 };

	if (client_connect(TAKE_FD(w->sock), &w->client, &e) == 0)
		return true;
	printf("# connect: %s\n", e.msg);
	return false;
}

static inline bool wt_open(struct wt *w, const char *const *more)
{
	return wt_start(w, more) && wt_connect(w);
}

/* Sends SIGTERM, and waits. Returns the exit status as wait4 does. */
static inline int wt_stop(struct wt *w)
{
	int status = -1;

	if (w->pid > 0) {
		kill(w->pid, SIGTERM);
		while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	client_free(w->client);
	fd_close(w->sock);
	*w = (struct wt){ .sock = -1 };
	return status;
}

static inline bool wt_alive(const struct wt *w)
{
	int status;

	return w->pid > 0 && waitpid(w->pid, &status, WNOHANG) == 0;
}

static inline void wt_spec(struct sandbox_spec *s)
{
	memset(s, 0, sizeof(*s));
	snprintf(s->image, sizeof(s->image), "host");
	snprintf(s->hostname, sizeof(s->hostname), "test");
	snprintf(s->workdir, sizeof(s->workdir), "/home/user");
	s->uid = s->gid = 1000;
	s->limits.memory = 128 * MIB;
	s->limits.disk = 64 * MIB;
	s->limits.pids = 64;
	s->limits.cpu_milli = 1000;
}

static inline unsigned wt_count_dir(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/* Open descriptors of the warden itself: the least of a few counts, since a thread may open some for a moment. */
static inline unsigned wt_fds(pid_t pid)
{
	unsigned least = UINT_MAX;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	for (unsigned i = 0; i < 4; i++) {
		const unsigned n = wt_count_dir(path);

		least = n < least ? n : least;
		poll(NULL, 0, 2);
	}
	return least;
}

/*
 * Waits until there are at most @most: a thread that measures for the watch ends by itself, and may close one later.
 * Returns the number.
 */
static inline unsigned wt_fds_wait(pid_t pid, unsigned most)
{
	unsigned n;

	for (unsigned i = 0; (n = wt_fds(pid)) > most && i < 500; i++)
		poll(NULL, 0, 10);
	return n;
}

/* Children of all its threads, including zombies. */
static inline unsigned wt_children(pid_t pid)
{
	char path[96], text[65536];
	unsigned n = 0;
	struct dirent *d;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks && (d = readdir(tasks))) {
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)pid, d->d_name);
		len = fd_get(AT_FDCWD, path, text, sizeof(text));
		for (ssize_t i = 0; i < len; i++)
			n += text[i] == ' ';
	}
	if (tasks)
		closedir(tasks);
	return n;
}

static inline bool wt_is_helper(pid_t pid)
{
	char path[64], name[32];

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	return fd_get(AT_FDCWD, path, name, sizeof(name)) > 0 && !strncmp(name, "cloche-", 7);
}

/* The children that are sandboxes, or blanks: the warden's other programs (cloche-watch, cloche-layers) are left out. */
static inline unsigned wt_sandboxes(pid_t pid, pid_t *ret, unsigned max)
{
	char path[96], text[65536], *at, *end;
	struct dirent *d;
	unsigned n = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks && (d = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)pid, d->d_name);
		if (d->d_name[0] == '.' || fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
			continue;
		for (at = text; n < max && (ret[n] = (pid_t)strtol(at, &end, 10)) > 0; at = end)
			n += !wt_is_helper(ret[n]);
	}
	if (tasks)
		closedir(tasks);
	return n;
}

static inline unsigned wt_mounts(pid_t pid)
{
	static char text[1 << 20];
	char path[64];
	ssize_t len;
	unsigned n = 0;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	len = fd_get(AT_FDCWD, path, text, sizeof(text));
	for (ssize_t i = 0; i < len; i++)
		n += text[i] == '\n';
	return n;
}

/* Waits until there are at most @most: in the host's namespace other tests mount things, too. Returns the number. */
static inline unsigned wt_mounts_wait(pid_t pid, unsigned most)
{
	unsigned n;

	for (unsigned i = 0; (n = wt_mounts(pid)) > most && i < 500; i++)
		poll(NULL, 0, 10);
	return n;
}

/* The process behind a pidfd, -1 when it is gone. */
static inline pid_t wt_pid(int pidfd)
{
	char path[64], text[512], *at;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0 || !(at = strstr(text, "\nPid:")))
		return -1;
	return (pid_t)strtol(at + 5, NULL, 10);
}

static inline bool wt_gone(int pidfd, int ms)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* The group of a process, as a folder of the pids hierarchy (version 1) or the only one (version 2). */
static inline bool wt_cgroup(pid_t pid, char *ret, size_t size)
{
	char path[64], text[4096], *line, *save = NULL;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strstr(line, ":pids:") && strstr(line, "/cloche/"))
			return (size_t)snprintf(ret, size, "/sys/fs/cgroup/pids%s", strstr(line, ":pids:") + 6) < size;
		if (!strncmp(line, "0::", 3) && strstr(line, "/cloche/"))
			return (size_t)snprintf(ret, size, "/sys/fs/cgroup%s", line + 3) < size;
	}
	return false;
}

/* Reads an agent's frames until the sandbox is up. */
static inline bool wt_wait_up(int sock)
{
	uint8_t data[4096];
	size_t len = 0;

	for (;;) {
		struct pollfd p = { .fd = sock, .events = POLLIN };
		struct frame f;
		ssize_t n;
		long r;

		while ((r = frame_decode(data, len, &f)) > 0) {
			if (f.type != FRAME_READY)
				return f.type == FRAME_UP;
			memmove(data, data + r, len - (size_t)r);
			len -= (size_t)r;
		}
		if (r < 0 || poll(&p, 1, 10000) != 1)
			return false;
		n = read(sock, data + len, sizeof(data) - len);
		if (n <= 0)
			return false;
		len += (size_t)n;
	}
}

static inline void wt_sleep_ms(long ms)
{
	const struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}
