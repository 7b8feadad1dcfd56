/* Where threads spend their time: CPU time by thread name, and what threads wait for that cannot be interrupted. */
#include "scale.h"
#include "base/base.h"
#include "base/fd.h"
#include "base/sys.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define MARKS 8192

struct scale_mark {
	struct {
		pid_t tid;
		uint64_t ns;
	} at[MARKS];
	size_t n;
};

static void read_name(int dir, const char *file, char *ret, size_t size)
{
	char text[64];
	ssize_t n = fd_get(dir, file, text, sizeof(text));

	text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
	snprintf(ret, size, "%.30s", text);
}

/* Calls @fn for each thread of the processes whose name begins with "cloche"; with @all, of every process. */
static void each_thread(bool all, void (*fn)(int task, const char *tid, const char *process, void *arg), void *arg)
{
	DIR *proc = opendir("/proc");
	struct dirent *p, *t;

	while (proc && (p = readdir(proc))) {
		char path[300], name[40];
		DIR *task;

		if (!isdigit((unsigned char)p->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "%s/comm", p->d_name);
		read_name(dirfd(proc), path, name, sizeof(name));
		if (!all && strncmp(name, "cloche", 6) != 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%s/task", p->d_name);
		task = opendir(path);
		while (task && (t = readdir(task)))
			if (t->d_name[0] != '.')
				fn(dirfd(task), t->d_name, name, arg);
		if (task)
			closedir(task);
	}
	if (proc)
		closedir(proc);
}

static uint64_t ran_ns(int task, const char *tid)
{
	char path[64], text[128];

	snprintf(path, sizeof(path), "%.16s/schedstat", tid);
	return fd_get(task, path, text, sizeof(text)) > 0 ? strtoull(text, NULL, 10) : 0;
}

static void mark(int task, const char *tid, const char *process, void *arg)
{
	struct scale_mark *m = arg;

	(void)process;
	if (m->n == MARKS)
		return;
	m->at[m->n].tid = (pid_t)strtol(tid, NULL, 10);
	m->at[m->n++].ns = ran_ns(task, tid);
}

struct scale_mark *scale_mark_new(void)
{
	struct scale_mark *m = calloc(1, sizeof(*m));

	if (m)
		each_thread(false, mark, m);
	return m;
}

struct since {
	struct scale_mark *from;
	struct scale_cpu *to;
};

/* Threads that are numbered alike ("maker 3") count as one name. */
static void count(int task, const char *tid, const char *process, void *arg)
{
	struct since *s = arg;
	char path[64], thread[40], name[40];
	uint64_t ns = ran_ns(task, tid);
	pid_t id = (pid_t)strtol(tid, NULL, 10);
	struct scale_thread *x = NULL;
	size_t n;

	snprintf(path, sizeof(path), "%.16s/comm", tid);
	read_name(task, path, thread, sizeof(thread));
	for (n = strlen(thread); n && (isdigit((unsigned char)thread[n - 1]) || thread[n - 1] == ' '); n--)
		thread[n - 1] = '\0';
	snprintf(name, sizeof(name), "%.18s: %.18s", process, thread);
	for (size_t i = 0; i < s->from->n; i++)
		if (s->from->at[i].tid == id)
			ns = ns > s->from->at[i].ns ? ns - s->from->at[i].ns : 0;
	for (size_t i = 0; i < s->to->n; i++)
		if (!strcmp(s->to->by[i].name, name))
			x = &s->to->by[i];
	if (!x && s->to->n < SCALE_THREADS) {
		x = &s->to->by[s->to->n++];
		snprintf(x->name, sizeof(x->name), "%s", name);
	}
	if (!x)
		return;
	x->sum_ns += ns;
	x->most_ns = ns > x->most_ns ? ns : x->most_ns;
	x->count++;
}

void scale_since(struct scale_mark *from, struct scale_cpu *ret)
{
	struct since s = { from, ret };

	*ret = (struct scale_cpu){ .n = 0 };
	if (from)
		each_thread(false, count, &s);
	free(from);
}

/* user nice system idle iowait irq softirq steal: all but the fourth and fifth, and the last, which others had. */
uint64_t scale_machine_ns(void)
{
	char text[512], *at = text + 3;
	uint64_t sum = 0;

	if (fd_get(AT_FDCWD, "/proc/stat", text, sizeof(text)) < 0 && errno != EFBIG) {
		/* Longer than what is needed of it. */
		AUTO_CLOSE int fd = sys_openat(AT_FDCWD, "/proc/stat", O_RDONLY | O_CLOEXEC, 0);
		ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

		text[n > 0 ? n : 0] = '\0';
	}
	for (unsigned i = 0; strlen(text) > 3 && i < 7; i++) {
		uint64_t v = strtoull(at, &at, 10);

		sum += i == 3 || i == 4 ? 0 : v;
	}
	return sum * 1000000000ULL / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* The names of the innermost functions, the outermost last, without the scheduler's own. */
static void read_stack(int task, const char *tid, char *ret, size_t size)
{
	char path[64], text[4096], *rest = text, *line;
	unsigned kept = 0;
	size_t n = 0;

	snprintf(path, sizeof(path), "%.16s/stack", tid);
	ret[0] = '\0';
	if (fd_get(task, path, text, sizeof(text)) <= 0) {
		snprintf(path, sizeof(path), "%.16s/wchan", tid);
		read_name(task, path, ret, size);
		return;
	}
	while ((line = strsep(&rest, "\n")) && kept < 6) {
		char *name = strstr(line, "] "), *end = name ? strchr(name, '+') : NULL;

		if (!end)
			continue;
		*end = '\0';
		name += 2;
		if (strstr(name, "schedule") || strstr(name, "wait_for_completion") || strstr(name, "__x64_sys") ||
		    strstr(name, "do_syscall") || strstr(name, "entry_SYSCALL") || strstr(name, "ret_from_fork"))
			continue;
		n += (size_t)snprintf(ret + n, size - n, "%s%s", kept ? " < " : "", name);
		kept++;
		if (n >= size)
			return;
	}
}

static void look(int task, const char *tid, const char *process, void *arg)
{
	struct scale_where *w = arg;
	char path[64], text[512], stack[160], place[200], thread[40], *state;
	size_t i, n;

	snprintf(path, sizeof(path), "%.16s/stat", tid);
	if (fd_get(task, path, text, sizeof(text)) <= 0 || !(state = strrchr(text, ')')) || state[1] == '\0' ||
	    (state[2] != 'D' && (state[2] != 'R' || strncmp(process, "cloche", 6) != 0)))
		return;
	snprintf(path, sizeof(path), "%.16s/comm", tid);
	read_name(task, path, thread, sizeof(thread));
	for (n = strlen(thread); n && (isdigit((unsigned char)thread[n - 1]) || thread[n - 1] == ' '); n--)
		thread[n - 1] = '\0';
	if (!strncmp(process, "kworker", 7))
		snprintf(thread, sizeof(thread), "kworker");
	if (state[2] == 'R')
		snprintf(stack, sizeof(stack), "(runs)");
	else
		read_stack(task, tid, stack, sizeof(stack));
	snprintf(place, sizeof(place), "%-16s %s", thread, stack[0] ? stack : "?");
	for (i = 0; i < w->n && strcmp(w->by[i].place, place) != 0; i++)
		;
	if (i == ARRAY_LEN(w->by))
		return;
	if (i == w->n)
		snprintf(w->by[w->n++].place, sizeof(w->by[0].place), "%s", place);
	w->by[i].count++;
}

void scale_watch(struct scale_where *w, const volatile bool *stop, unsigned every_ms)
{
	while (!*stop) {
		each_thread(true, look, w);
		w->looks++;
		usleep(every_ms * 1000);
	}
}

static int more_first(const void *a, const void *b)
{
	const unsigned x = *(const unsigned *)(const void *)((const char *)a +
							     sizeof(((struct scale_where *)0)->by[0].place)),
		       y = *(const unsigned *)(const void *)((const char *)b +
							     sizeof(((struct scale_where *)0)->by[0].place));

	return x < y ? 1 : x > y ? -1 : 0;
}

void scale_where_print(struct scale_where *w, const char *what)
{
	qsort(w->by, w->n, sizeof(w->by[0]), more_first);
	printf("\nwaiting in the kernel, or running, %s: threads per look (%u looks)\n", what, w->looks);
	for (size_t i = 0; i < w->n && i < SCALE_PLACES; i++)
		printf("%8.2f  %s\n", ratio(w->by[i].count, w->looks), w->by[i].place);
}
