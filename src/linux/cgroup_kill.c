/* Kills the members of a control group. */
#include "base/base.h"
#include "base/fd.h"
#include "base/sys.h"
#include "linux/cgroup_impl.h"
#include "linux/cgroup_parse.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define BATCH 64

/* A group's processes, however many there are, some at a time. */
struct members {
	int dir, fd, error;
	bool threads; /* of a threaded group, which lists no processes */
	size_t at, len;
	char text[4 * KIB];
};

static void members_open(struct members *m, int dir)
{
	m->at = m->len = 0;
	m->error = 0;
	m->dir = dir;
	m->threads = false;
	m->fd = sys_openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC, 0);
	if (m->fd < 0 && m->fd != -ENOENT && m->fd != -ENODEV)
		m->error = m->fd;
}

/* How many were put to @ret: 0 at the end, and when ->error says that it cannot be read. */
static size_t members_next(struct members *m, pid_t *ret, size_t max)
{
	size_t n = 0;

	while (n < max && m->fd >= 0) {
		char *line = m->text + m->at, *end = memchr(line, '\n', m->len - m->at);
		ssize_t more;

		if (end) {
			n += cgroup_parse_pids(line, (size_t)(end + 1 - line), ret + n, 1);
			m->at += (size_t)(end + 1 - line);
			continue;
		}
		m->len -= m->at;
		memmove(m->text, line, m->len);
		m->at = 0;
		more = sys_read(m->fd, m->text + m->len, sizeof(m->text) - m->len);
		if (more == -EOPNOTSUPP && !m->threads) {
			fd_close(m->fd);
			m->threads = true;
			m->fd = sys_openat(m->dir, "cgroup.threads", O_RDONLY | O_CLOEXEC, 0);
			continue;
		}
		if (more <= 0) {
			if (more < 0 && more != -ENODEV) /* removed meanwhile, so empty */
				m->error = (int)more;
			break;
		}
		m->len += (size_t)more;
	}
	return n;
}

static bool is_member(int dir, pid_t pid, int *ret_error)
{
	struct members m;
	bool found = false;
	pid_t p;

	members_open(&m, dir);
	while (!found && members_next(&m, &p, 1))
		found = p == pid;
	fd_close(m.fd);
	*ret_error = m.error;
	return found;
}

/* The process of a thread; 0: there is none. */
static pid_t process_of(pid_t tid)
{
	char path[32], text[512]; /* the first lines; the rest may be long */
	AUTO_CLOSE int fd = -1;
	const char *line = NULL;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	n = fd < 0 ? fd : sys_read(fd, text, sizeof(text) - 1);
	if (n > 0) {
		text[n] = '\0';
		line = strstr(text, "\nTgid:\t");
	}
	return line ? (pid_t)strtol(line + strlen("\nTgid:\t"), NULL, 10) : 0;
}

/* Of a process, by any of its threads. */
static int open_pid(pid_t pid, pid_t *ret_process)
{
	int fd = sys_pidfd_open(pid, 0);

	*ret_process = pid;
	if (fd != -EINVAL && fd != -ENOENT)
		return fd;
	*ret_process = process_of(pid);
	return *ret_process > 0 ? sys_pidfd_open(*ret_process, 0) : -ESRCH;
}

/*
 * Between reading a number and using it the process may be gone and the number given to a stranger. So: take pidfds,
 * read the members again, and signal only those still listed. A stranger is not in the second list; and if the number
 * is back in the group with another process, the pidfd's process is gone, which makes the signal harmless. Of a number that
 * is not a process's first thread the process is asked for twice, too.
 */
static int kill_some(int dir, const pid_t *pids, size_t n)
{
	bool still[BATCH] = { false };
	struct members m;
	int fds[BATCH], r;
	pid_t p, whose[BATCH];

	for (size_t i = 0; i < n; i++)
		fds[i] = pids[i] > 0 ? open_pid(pids[i], &whose[i]) : -ESRCH;
	members_open(&m, dir);
	while (members_next(&m, &p, 1))
		for (size_t i = 0; i < n; i++)
			still[i] = still[i] || pids[i] == p;
	fd_close(m.fd);
	r = m.error;
	for (size_t i = 0; i < n; i++) {
		int q = fds[i];

		if (q >= 0 && still[i] && (whose[i] == pids[i] || process_of(pids[i]) == whose[i]))
			q = sys_pidfd_send_signal(fds[i], SIGKILL);
		if (q < 0 && q != -ESRCH)
			r = q;
		if (!pids[i])
			r = -ESRCH; /* not in our pid namespace, so it cannot be killed from here */
		if (fds[i] >= 0)
			fd_close(fds[i]);
	}
	return r;
}

/*
 * Sends SIGKILL to all of them in every round: on a busy machine, the first ones may take long to end, and those behind
 * them in the list must not live on for that.
 */
int cgroup_kill_members(int dir)
{
	bool anybody = false;
	struct members m;
	pid_t pids[BATCH];
	size_t n;
	int r = 0;

	members_open(&m, dir);
	while ((n = members_next(&m, pids, BATCH))) {
		int q = 0;

		if (!anybody && is_member(dir, getpid(), &q))
			r = -EDEADLK;
		anybody = true;
		if (r == -EDEADLK)
			break;
		q = kill_some(dir, pids, n);
		if (q < 0)
			r = q;
	}
	fd_close(m.fd);
	if (m.error)
		return m.error;
	return anybody ? r : 1;
}

int cgroup_kill_now(const struct cgroup_host *h, const char *name)
{
	const int base = h->base[h->version == 2 ? 0 : CGROUP_MEMORY];
	AUTO_CLOSE int dir = base < 0 ? -ENOENT : sys_openat(base, name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	int r = dir;

	if (dir < 0)
		return dir;
	if (h->version == 2)
		r = fd_put(dir, "cgroup.kill", "1");
	if (h->version != 2 || r == -ENOENT) /* before 5.14 there is none */
		r = cgroup_kill_members(dir);
	return r < 0 ? r : 0;
}
