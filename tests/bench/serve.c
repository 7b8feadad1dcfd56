/* A daemon, for a measurement. */
#include "daemon.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 20000
#define STOP_MS 60000
#define FAMILY 64
#define SETTLE_MS 20000
#define QUIET_MS 10

static int write_file(const struct serve *s, const char *name, const char *text)
{
	AUTO_CLOSE int fd = -1;
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", s->dir, name);
	fd = sys_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	return fd < 0 ? fd : fd_write_all(fd, text, strlen(text));
}

static _Noreturn void become(const struct serve *s, const struct bench *b, int out)
{
	char data[96], token[96], config[96], errors[96];
	const char *const argv[] = { "cloche",	     "serve", "--data",	  data,	  "--listen",	      "127.0.0.1:0",
				     "--token-file", token,   "--config", config, "--stop-sandboxes", NULL };
	char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", home[] = "HOME=/root";
	char *const envp[] = { path, home, NULL };
	char *copy[ARRAY_LEN(argv)];
	int err;

	snprintf(data, sizeof(data), "%s/data", s->dir);
	snprintf(token, sizeof(token), "%s/token", s->dir);
	snprintf(config, sizeof(config), "%s/config", s->dir);
	snprintf(errors, sizeof(errors), "%s/errors", s->dir);
	for (size_t i = 0; i < ARRAY_LEN(argv); i++)
		copy[i] = argv[i] ? strdup(argv[i]) : NULL;
	/* A benchmark that is interrupted ends it in order. */
	setpgid(0, 0);
	err = sys_openat(AT_FDCWD, errors, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	dup2(sys_openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0), 0);
	dup2(out, 1);
	dup2(err >= 0 ? err : out, 2);
	sys_execve(b->cloche, copy, envp);
	_exit(127);
}

/* What the daemon said when it did not start. */
static int failed(const struct serve *s, const char *out, struct err *e)
{
	char path[96], text[2048] = "";

	snprintf(path, sizeof(path), "%s/errors", s->dir);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) <= 0)
		snprintf(text, sizeof(text), "%.200s", out);
	text[strcspn(text, "\n")] = '\0';
	return err_set(e, ERR_LOST, -EIO, "the daemon did not start: %.160s", text);
}

/* "cloche V serving on http://127.0.0.1:PORT (data DIR)" */
static int wait_ready(struct serve *s, int out, struct err *e)
{
	static const char mark[] = "serving on http://127.0.0.1:";
	uint64_t end = clock_mono_ns() + START_MS * 1000000ULL;
	char text[4096] = "", *at;
	size_t n = 0;

	while (!(at = strstr(text, mark)) || !strchr(at, '\n')) {
		struct pollfd p = { .fd = out, .events = POLLIN };
		ssize_t r;

		if (n == sizeof(text) - 1 || clock_mono_ns() > end)
			return failed(s, text, e);
		if (poll(&p, 1, 100) <= 0)
			continue;
		r = read(out, text + n, sizeof(text) - 1 - n);
		if (r <= 0)
			return failed(s, text, e);
		n += (size_t)r;
		text[n] = '\0';
	}
	s->addr = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	s->addr.sin_port = htons((uint16_t)strtoul(at + sizeof(mark) - 1, NULL, 10));
	return 0;
}

static int read_token(struct serve *s, struct err *e)
{
	char path[96];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/token", s->dir);
	n = fd_get(AT_FDCWD, path, s->token, sizeof(s->token));
	if (n <= 0)
		return err_sys(e, ERR_LOST, n < 0 ? (int)n : -ENODATA, "read the daemon's token");
	s->token[strcspn(s->token, "\r\n")] = '\0';
	return 0;
}

static void remove_tree(int dirfd, const char *name)
{
	int fd = sys_openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *x;

	while (d && (x = readdir(d))) {
		if (!strcmp(x->d_name, ".") || !strcmp(x->d_name, ".."))
			continue;
		if (unlinkat(fd, x->d_name, 0) < 0)
			remove_tree(fd, x->d_name);
	}
	if (d)
		closedir(d);
	unlinkat(dirfd, name, AT_REMOVEDIR);
}

/*
 * A benchmark that dies leaves no daemon: this process is told of the death, and ends the daemon and removes its
 * folder. The daemon cannot be told itself; the kernel forgets such wishes of processes that change their user.
 */
static _Noreturn void watch(const struct serve *s, int pidfd, pid_t parent)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	sigset_t term;

	signal(SIGINT, SIG_IGN);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	while (getppid() == parent)
		sigwaitinfo(&term, NULL);
	sys_pidfd_send_signal(pidfd, SIGTERM);
	poll(&p, 1, STOP_MS);
	remove_tree(AT_FDCWD, s->dir);
	_exit(0);
}

static int start_watcher(struct serve *s, struct err *e)
{
	AUTO_CLOSE int pidfd = sys_pidfd_open(s->pid, 0);
	pid_t self = getpid();

	s->watcher = pidfd < 0 ? -1 : fork();
	if (s->watcher == 0)
		watch(s, pidfd, self);
	if (s->watcher > 0)
		return 0;
	s->watcher = 0;
	return err_set(e, ERR_EXHAUSTED, -EAGAIN, "watch the daemon");
}

int serve_start(struct serve *s, const struct bench *b, const struct serve_opts *o, struct err *e)
{
	AUTO_CLOSE int in = -1;
	int p[2], r;

	/* On a disk, as a daemon's folder is, and where the API's user can get to. */
	*s = (struct serve){ .dir = "/var/tmp/cloche-bench.XXXXXX" };
	if (!mkdtemp(s->dir) || chmod(s->dir, 0755) < 0) {
		r = -errno;
		s->dir[0] = '\0';
		return err_sys(e, ERR_EXHAUSTED, r, "make a folder for the daemon");
	}
	r = write_file(s, "config", o->config ? o->config : "");
	if (r == 0)
		r = sys_pipe2(p, O_CLOEXEC);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "prepare the daemon's start");
	in = p[0];
	s->pid = fork();
	if (s->pid == 0)
		become(s, b, p[1]);
	close(p[1]);
	if (s->pid < 0) {
		s->pid = 0;
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "start the daemon");
	}
	r = start_watcher(s, e);
	if (r == 0)
		r = wait_ready(s, in, e);
	return r < 0 ? r : read_token(s, e);
}

void serve_stop(struct serve *s)
{
	uint64_t end = clock_mono_ns() + STOP_MS * 1000000ULL;

	if (s->pid > 0) {
		kill(s->pid, SIGTERM);
		while (waitpid(s->pid, NULL, WNOHANG) == 0) {
			if (clock_mono_ns() > end) {
				fprintf(stderr, "the daemon does not end; killed\n");
				kill(s->pid, SIGKILL);
				waitpid(s->pid, NULL, 0);
				break;
			}
			usleep(2000);
		}
	}
	s->pid = 0;
	if (s->watcher > 0) {
		kill(s->watcher, SIGKILL);
		waitpid(s->watcher, NULL, 0);
	}
	s->watcher = 0;
	if (s->dir[0])
		remove_tree(AT_FDCWD, s->dir);
	s->dir[0] = '\0';
}

/* ---- its processes ---- */

/* Children of a thread, in *@to; returns how many. */
static size_t children_of(pid_t pid, pid_t tid, pid_t *to, size_t max)
{
	char path[64], text[4096], *at = text;
	size_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, tid);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	while (n < max) {
		char *next;
		long v = strtol(at, &next, 10);

		if (next == at)
			break;
		to[n++] = (pid_t)v;
		at = next;
	}
	return n;
}

static bool is_named(pid_t pid, const char *name)
{
	char path[64], text[64];

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	return !strcmp(text, name);
}

static pid_t child_named(const struct serve *s, const char *name)
{
	pid_t list[FAMILY];
	size_t n = children_of(s->pid, s->pid, list, FAMILY);

	for (size_t i = 0; i < n; i++)
		if (is_named(list[i], name))
			return list[i];
	return 0;
}

/* A program that a thread of the warden has started. 0: there is none. */
static pid_t started_by(pid_t warden, const char *name)
{
	pid_t list[FAMILY], found = 0;
	struct dirent *x;
	char path[64];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", warden);
	d = opendir(path);
	while (d && !found && (x = readdir(d))) {
		size_t n =
			x->d_name[0] == '.' ? 0 : children_of(warden, (pid_t)strtol(x->d_name, NULL, 10), list, FAMILY);

		for (size_t i = 0; i < n; i++)
			found = is_named(list[i], name) ? list[i] : found;
	}
	if (d)
		closedir(d);
	return found;
}

static double mib_of(pid_t pid, const char *key)
{
	char path[64], text[4096], *at;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	at = strstr(text, key);
	return at ? (double)strtoull(at + strlen(key), NULL, 10) / 1024.0 : 0;
}

int serve_memory(const struct serve *s, struct serve_memory *ret, struct err *e)
{
	pid_t api = child_named(s, "cloche-serve"), warden = child_named(s, "cloche-warden"),
	      watch = started_by(warden, "cloche-watch"), layers = started_by(warden, "cloche-layers");

	if (!api || !warden || !watch)
		return err_set(e, ERR_LOST, -ESRCH, "the daemon's processes are not all there");
	ret->api_mib = mib_of(api, "\nRss:");
	ret->warden_mib = mib_of(warden, "\nRss:");
	ret->rss_mib = mib_of(s->pid, "\nRss:") + ret->api_mib + ret->warden_mib + mib_of(watch, "\nRss:") +
		       mib_of(layers, "\nRss:");
	ret->pss_mib = mib_of(s->pid, "\nPss:") + mib_of(api, "\nPss:") + mib_of(warden, "\nPss:") +
		       mib_of(watch, "\nPss:") + mib_of(layers, "\nPss:");
	return 0;
}

/* utime, stime, cutime, cstime: fields 14 to 17, counted behind the name's last parenthesis. */
static uint64_t ticks_of(pid_t pid)
{
	char path[64], text[1024], *at;
	uint64_t sum = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (pid <= 0 || fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	at = strrchr(text, ')');
	for (unsigned field = 3; at && field <= 17; field++) {
		at = strchr(at + 1, ' ');
		if (at && field >= 14)
			sum += strtoull(at, NULL, 10);
	}
	return sum;
}

uint64_t serve_cpu_ns(const struct serve *s)
{
	pid_t warden = child_named(s, "cloche-warden");
	uint64_t ticks = ticks_of(s->pid) + ticks_of(child_named(s, "cloche-serve")) + ticks_of(warden) +
			 ticks_of(started_by(warden, "cloche-watch")) + ticks_of(started_by(warden, "cloche-layers"));

	return ticks * 1000000000ULL / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* How long the warden's threads have run, to the nanosecond. */
static uint64_t ran_ns(pid_t pid)
{
	char path[64], text[128];
	struct dirent *x;
	uint64_t sum = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	d = opendir(path);
	while (d && (x = readdir(d))) {
		snprintf(path, sizeof(path), "%.16s/schedstat", x->d_name);
		if (x->d_name[0] != '.' && fd_get(dirfd(d), path, text, sizeof(text)) > 0)
			sum += strtoull(text, NULL, 10);
	}
	if (d)
		closedir(d);
	return sum;
}

uint64_t serve_settle(const struct serve *s)
{
	pid_t warden = child_named(s, "cloche-warden");
	uint64_t now = clock_mono_ns(), last = now, end = now + SETTLE_MS * 1000000ULL, ran = ran_ns(warden);

	while (now < last + QUIET_MS * 1000000ULL && now < end) {
		uint64_t more;

		usleep(1000);
		more = ran_ns(warden);
		now = clock_mono_ns();
		if (more != ran)
			last = now;
		ran = more;
	}
	return last;
}
