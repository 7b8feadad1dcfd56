/* Starts processes from a small process, so that forks are cheap. */
#include "bench.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_MAX 6000
#define WORKERS_MAX 32
#define TIMES_MAX 65536

struct request {
	uint32_t count, workers, ms, argc, len;
	char text[TEXT_MAX]; /* the file for errors (may be empty), then the arguments, each ended by a NUL */
};

struct answer {
	int32_t status; /* of the first that did not end well, else 0; negative: could not be started */
	struct spawn_time time;
};

/* Cleans up after our own process when that dies, too. */
static int enter_view(enum spawner_view view)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (view == VIEW_HOST)
		return 0;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	/* crun takes a host with a v2 hierarchy beside v1 ones for a v2 host when that one has a controller. */
	umount2("/sys/fs/cgroup/unified", MNT_DETACH);
	return 0;
}

static pid_t start_one(const struct request *q, unsigned worker, int null, int errors)
{
	static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	static char home[] = "HOME=/root", user[] = "USER=root", lang[] = "LANG=C.UTF-8";
	static char *const envp[] = { path, home, user, lang, NULL };
	char text[TEXT_MAX], *argv[PEER_ARGS + 1], *at = text;
	posix_spawn_file_actions_t fa;
	pid_t pid;
	int r;

	memcpy(text, q->text, q->len);
	at += strlen(at) + 1;
	for (uint32_t i = 0; i < q->argc; i++) {
		char *mark = strchr(at, '@');

		if (mark)
			*mark = worker < 26 ? (char)('a' + worker) : (char)('0' + worker - 26);
		argv[i] = at;
		at += strlen(at) + 1;
	}
	argv[q->argc] = NULL;
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, null, 0);
	posix_spawn_file_actions_adddup2(&fa, null, 1);
	posix_spawn_file_actions_adddup2(&fa, errors, 2);
	r = posix_spawn(&pid, argv[0], &fa, NULL, argv, envp);
	posix_spawn_file_actions_destroy(&fa);
	return r ? -r : pid;
}

static uint64_t cpu_of_children(void)
{
	struct rusage u;

	getrusage(RUSAGE_CHILDREN, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000ULL +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000ULL;
}

static int compare_u64(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static bool is_over(const struct request *q, const struct answer *a, unsigned started, uint64_t since)
{
	return a->status || (q->ms ? clock_mono_ns() - since >= q->ms * 1000000ULL : started >= q->count);
}

static void serve_one(const struct request *q, int null, struct answer *a)
{
	static uint64_t times[TIMES_MAX];
	unsigned started = 0, running = 0, ended = 0;
	uint64_t since[WORKERS_MAX];
	pid_t pids[WORKERS_MAX] = { 0 };
	AUTO_CLOSE int errors = -1;
	uint64_t t, cpu = cpu_of_children();

	if (q->text[0])
		errors = sys_openat(AT_FDCWD, q->text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	*a = (struct answer){ 0 };
	t = clock_mono_ns();
	for (;;) {
		int status;
		pid_t pid;

		for (unsigned i = 0; i < q->workers && !is_over(q, a, started, t); i++) {
			if (pids[i])
				continue;
			since[i] = clock_mono_ns();
			pids[i] = start_one(q, i, null, errors >= 0 ? errors : null);
			if (pids[i] < 0) {
				a->status = pids[i];
				pids[i] = 0;
				break;
			}
			started++;
			running++;
		}
		if (!running)
			break;
		pid = waitpid(-1, &status, 0);
		for (unsigned i = 0; i < q->workers; i++) {
			if (pids[i] != pid)
				continue;
			pids[i] = 0;
			running--;
			if (ended < TIMES_MAX)
				times[ended++] = clock_mono_ns() - since[i];
			if (status && !a->status)
				a->status = status;
		}
	}
	a->time.ns = clock_mono_ns() - t;
	a->time.cpu_ns = cpu_of_children() - cpu;
	a->time.count = started;
	qsort(times, ended, sizeof(times[0]), compare_u64);
	a->time.p50_ns = ended ? times[ended / 2] : 0;
	a->time.p99_ns = ended ? times[ended * 99 / 100] : 0;
}

static _Noreturn void serve(int sock, enum spawner_view view)
{
	int null = sys_openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0), r = enter_view(view);
	static struct request q;
	struct answer a = { .status = r };

	if (null < 0 || write(sock, &a, sizeof(a)) < 0 || r < 0)
		_exit(1);
	while (read(sock, &q, sizeof(q)) > 0) {
		serve_one(&q, null, &a);
		if (write(sock, &a, sizeof(a)) < 0)
			break;
	}
	_exit(0);
}

int spawner_start(struct spawner *s, enum spawner_view view, struct err *e)
{
	struct answer a;
	int sp[2], r;

	r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sp);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
	s->pid = fork();
	if (s->pid == 0) {
		close(sp[0]);
		/* An interrupted run is ended by its parent, in order. */
		signal(SIGINT, SIG_IGN);
		signal(SIGCHLD, SIG_DFL);
		serve(sp[1], view);
	}
	close(sp[1]);
	s->sock = sp[0];
	if (s->pid < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "start a helper");
	if (read(s->sock, &a, sizeof(a)) != (ssize_t)sizeof(a))
		return err_set(e, ERR_INTERNAL, -EIO, "the helper did not start");
	return a.status < 0 ? err_sys(e, ERR_UNSUPPORTED, a.status, "give the peers a mount namespace") : 0;
}

void spawner_stop(struct spawner *s)
{
	if (s->pid <= 0)
		return;
	/* Closing would not do: those started later have a copy. */
	shutdown(s->sock, SHUT_RDWR);
	fd_close(s->sock);
	waitpid(s->pid, NULL, 0);
	s->pid = 0;
}

static bool put(struct request *q, const char *text)
{
	size_t n = strlen(text) + 1;

	if (q->len + n > sizeof(q->text))
		return false;
	memcpy(q->text + q->len, text, n);
	q->len += (uint32_t)n;
	return true;
}

int spawner_run(struct spawner *s, const char *const *argv, const struct spawn_opts *o, struct spawn_time *ret,
		struct err *e)
{
	static struct request q;
	struct answer a;

	q.count = o->count ? o->count : 1;
	q.workers = o->workers ? o->workers : 1;
	q.ms = o->ms;
	q.argc = q.len = 0;
	put(&q, o->errors ? o->errors : "");
	for (; argv[q.argc]; q.argc++)
		if (q.argc == PEER_ARGS || !put(&q, argv[q.argc]))
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "a long command");
	if (write(s->sock, &q, offsetof(struct request, text) + q.len) < 0 ||
	    read(s->sock, &a, sizeof(a)) != (ssize_t)sizeof(a))
		return err_set(e, ERR_LOST, -EIO, "the helper that starts commands is gone");
	if (a.status < 0)
		return err_sys(e, ERR_NOT_FOUND, a.status, "start %s", argv[0]);
	if (a.status)
		return err_set(e, ERR_LOST, -EIO, "%s ended with status 0x%x", argv[0], (unsigned)a.status);
	if (ret)
		*ret = a.time;
	return 0;
}
