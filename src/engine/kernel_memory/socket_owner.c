/* The search for the process that has a socket, through /proc. */
#include "engine/kernel_memory/socket_owner.h"
#include "base/base.h"
#include "base/sys.h"

#include <dirent.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 512U
#define THREADS 64U /* of one process, whose children are asked for */
#define TIME_NS 20000000ULL /* in all, of this thread; all other requests wait meanwhile */

struct search {
	uint64_t until;
	char want[40];
	pid_t queue[PROCESSES];
	unsigned n;
};

/* What we have used: a machine that is busy with others is no reason to give up. */
static uint64_t used_ns(void)
{
	struct timespec t = { 0 };

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static bool late(const struct search *s)
{
	return used_ns() > s->until;
}

static DIR *open_dir(int at, const char *name)
{
	int fd = sys_openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !d)
		fd_close(fd);
	return d;
}

static bool holds(struct search *s, int proc)
{
	DIR *d = open_dir(proc, "fd");
	struct dirent *x;
	bool found = false;
	char to[64];

	while (d && !found && !late(s) && (x = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), x->d_name, to, sizeof(to) - 1);

		if (n > 0)
			to[n] = '\0';
		found = n > 0 && !strcmp(to, s->want);
	}
	if (d)
		closedir(d);
	return found;
}

/* As much as fits. */
static ssize_t read_some(int at, const char *path, char *text, size_t size)
{
	AUTO_CLOSE int fd = sys_openat(at, path, O_RDONLY | O_CLOEXEC, 0);
	ssize_t n = fd < 0 ? fd : sys_read(fd, text, size - 1);

	if (n >= 0)
		text[n] = '\0';
	return n;
}

static void add_children(struct search *s, int proc)
{
	DIR *d = open_dir(proc, "task");
	struct dirent *x;
	unsigned threads = 0;
	char path[300], text[4096];

	while (d && threads < THREADS && !late(s) && (x = readdir(d))) {
		char *at = text, *end;

		if (x->d_name[0] == '.')
			continue;
		threads++;
		snprintf(path, sizeof(path), "%s/children", x->d_name);
		if (read_some(dirfd(d), path, text, sizeof(text)) < 0)
			continue;
		while (s->n < PROCESSES) {
			long pid = strtol(at, &end, 10);

			/* The last number may have been cut off. */
			if (end == at || *end != ' ' || pid <= 0)
				break;
			s->queue[s->n++] = (pid_t)pid;
			at = end;
		}
	}
	if (d)
		closedir(d);
}

/* As it is called inside: the last number of the line. */
static uint32_t inner_pid(int proc)
{
	char text[4096], *line, *end;

	if (read_some(proc, "status", text, sizeof(text)) < 0)
		return 0;
	line = strstr(text, "\nNSpid:");
	if (!line)
		return 0;
	line += 7;
	end = line + strcspn(line, "\n");
	*end = '\0';
	while (end > line && end[-1] >= '0' && end[-1] <= '9')
		end--;
	return (uint32_t)strtoul(end, NULL, 10);
}

static void describe(int proc, struct socket_owner *ret)
{
	ssize_t n = read_some(proc, "cmdline", ret->command, sizeof(ret->command));

	if (n <= 0) {
		n = read_some(proc, "comm", ret->command, sizeof(ret->command));
		n = n > 0 ? n - 1 : 0; /* without its newline */
	}
	while (n > 0 && !ret->command[n - 1])
		n--;
	for (ssize_t i = 0; i < n; i++)
		if ((unsigned char)ret->command[i] < 0x20 || (unsigned char)ret->command[i] > 0x7e)
			ret->command[i] = ret->command[i] ? '?' : ' ';
	memset(ret->command + n, 0, sizeof(ret->command) - (size_t)n);
}

bool socket_owner_find(pid_t first, uint64_t inode, struct socket_owner *ret)
{
	struct search s = { .until = used_ns() + TIME_NS, .n = 1, .queue = { first } };

	*ret = (struct socket_owner){ 0 };
	snprintf(s.want, sizeof(s.want), "socket:[%llu]", (unsigned long long)inode);
	for (unsigned i = 0; i < s.n && !late(&s); i++) {
		AUTO_CLOSE int proc = -1;
		char path[32];

		snprintf(path, sizeof(path), "/proc/%d", (int)s.queue[i]);
		proc = sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
		if (proc < 0)
			continue;
		/*
		 * @proc is a descriptor, so all that follows is about this very process, whatever its number means by
		 * now.
		 */
		if (i && holds(&s, proc)) {
			ret->pid = inner_pid(proc);
			describe(proc, ret);
			return true;
		}
		add_children(&s, proc);
	}
	return !late(&s);
}
