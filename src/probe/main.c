/*
 * cloche-probe: tries to break out of the sandbox it runs in, and to abuse it.
 *
 * Theory of operation: main() notes the descriptors it was born with, then runs every chosen probe in a forked child
 * that reports one verdict byte and a detail through a pipe. The parent does nothing dangerous itself; it only waits
 * and prints. A probe is bounded in time by its own alarm, in memory and processes by --mib and --pids. All of them
 * can also be run outside any sandbox: nothing they do lasts, and nothing is aimed at the machine's own pid 1.
 *
 * The exit status is 0 when nothing is open, 1 when something is, 2 for a wrong command line.
 */
#include "probe/probe.h"
#include "base/base.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const verdict_names[PROBE_VERDICTS] = { "closed", "open", "na", "info" };
static const struct probe_set *const sets[] = { &probes_kernel, &probes_net, &probes_fs, &probes_proc, &probes_limits };

enum format { FORMAT_TSV, FORMAT_JSON };

struct options {
	struct probe_opts probe;
	enum format format;
	bool bombs, list;
	char **ids;
	int nids;
};

void probe_say(struct probe_run *p, const char *fmt, ...)
{
	size_t room = sizeof(p->detail) - p->len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(p->detail + p->len, room, fmt, ap);
	va_end(ap);
	if (n > 0)
		p->len += (size_t)n < room ? (size_t)n : room - 1;
}

long probe_call(long nr, ...)
{
	unsigned long a[6];
	va_list ap;
	long r;

	va_start(ap, nr);
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	r = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	return r < 0 ? -errno : r;
}

bool probe_refused(long r)
{
	return r == -EPERM || r == -EACCES || r == -ENOSYS || r == -EROFS || r == -EAFNOSUPPORT ||
	       r == -EPROTONOSUPPORT || r == -ESOCKTNOSUPPORT || r == -EOPNOTSUPP;
}

bool probe_reached(struct probe_run *p, const char *what, long r)
{
	if (probe_refused(r))
		return false;
	if (r < 0)
		probe_say(p, "%s reached \"%s\"; ", what, strerror((int)-r));
	else
		probe_say(p, "%s worked; ", what);
	return true;
}

enum verdict probe_end(struct probe_run *p, bool hole, const char *closed)
{
	if (hole)
		return PROBE_OPEN;
	probe_say(p, "%s", closed);
	return PROBE_CLOSED;
}

long long probe_field(const char *path, const char *key, int base)
{
	FILE *f = fopen(path, "re");
	size_t klen = strlen(key);
	long long v = -1;
	char line[512];

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, key, klen) && line[klen] == ':') {
			v = (long long)strtoull(line + klen + 1, NULL, base);
			break;
		}
	}
	fclose(f);
	return v;
}

bool probe_in_host_pidns(void)
{
	char link[64];
	ssize_t n = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);

	if (n < 0)
		return true; /* not known: be careful */
	link[n] = '\0';
	return !strcmp(link, "pid:[4026531836]"); /* the number is part of the kernel's interface */
}

static void child(const struct probe *pr, const struct options *o, int out)
{
	struct probe_run p = { .o = &o->probe };
	char msg[sizeof(p.detail) + 1];
	enum verdict v;

	alarm(pr->seconds ? pr->seconds : 5);
	v = pr->fn(&p);
	while (p.len && (p.detail[p.len - 1] == ' ' || p.detail[p.len - 1] == ';'))
		p.len--;
	msg[0] = (char)('0' + (int)v);
	memcpy(msg + 1, p.detail, p.len);
	_exit(fd_write_all(out, msg, 1 + p.len) < 0 ? 1 : 0);
}

/* A child that could not report: the signal that ended it is the answer. */
static enum verdict judge_death(const struct probe *pr, int status, char *detail, size_t size)
{
	int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	if (sig == SIGSYS) {
		snprintf(detail, size, "killed by the system call filter");
		return PROBE_CLOSED;
	}
	if ((sig == SIGKILL || sig == SIGXCPU || sig == SIGXFSZ) && (pr->flags & PROBE_BOMB)) {
		snprintf(detail, size, "killed by a limit (signal %d)", sig);
		return PROBE_CLOSED;
	}
	if (sig == SIGSEGV && (pr->flags & PROBE_SEGV_NA)) {
		snprintf(detail, size, "not supported by this kernel");
		return PROBE_NA;
	}
	/* An attack that hung or crashed was not turned away. */
	snprintf(detail, size, sig == SIGALRM ? "no answer in time" : "the probe died (status 0x%x)", (unsigned)status);
	return PROBE_OPEN;
}

static enum verdict run(const struct probe *pr, const struct options *o, char *detail, size_t size)
{
	int fds[2], status = 0;
	size_t have = 0;
	char msg[512];
	ssize_t n;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		snprintf(detail, size, "could not be started: %s", strerror(errno));
		return PROBE_OPEN; /* not shown to be closed */
	}
	if (pid == 0) {
		close(fds[0]);
		child(pr, o, fds[1]);
	}
	close(fds[1]);
	/* Only the probe itself writes, in one go; what it leaves behind may hold the pipe, so wait for it first. */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	while (have < sizeof(msg) && (n = read(fds[0], msg + have, sizeof(msg) - have)) > 0)
		have += (size_t)n;
	close(fds[0]);
	if (have == 0 || msg[0] < '0' || msg[0] >= '0' + PROBE_VERDICTS)
		return judge_death(pr, status, detail, size);
	snprintf(detail, size, "%.*s", (int)have - 1, msg + 1);
	return (enum verdict)(msg[0] - '0');
}

static void print_json_text(const char *s)
{
	putchar('"');
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void print(const struct options *o, const struct probe *pr, enum verdict v, char *detail, bool first)
{
	if (o->format == FORMAT_JSON) {
		printf("%s{\"id\":\"%s\",\"verdict\":\"%s\",\"name\":", first ? "[" : ",\n", pr->id, verdict_names[v]);
		print_json_text(pr->name);
		printf(",\"anchor\":");
		print_json_text(pr->anchor);
		printf(",\"detail\":");
		print_json_text(detail);
		printf("}");
	} else {
		for (char *c = detail; *c; c++)
			if ((unsigned char)*c < 0x20 || *c == 0x7f)
				*c = ' ';
		printf("%s\t%s\t%s\t%s\n", pr->id, verdict_names[v], pr->name, detail);
	}
	fflush(stdout);
}

/* A whole id, or its letter for all of a theme. */
static bool id_matches(const char *want, const struct probe *pr)
{
	return !strcmp(want, pr->id) || (strlen(want) == 1 && want[0] == pr->id[0]);
}

static bool chosen(const struct options *o, const struct probe *pr)
{
	if (o->nids == 0)
		return o->list || o->bombs == !!(pr->flags & PROBE_BOMB);
	for (int i = 0; i < o->nids; i++)
		if (id_matches(o->ids[i], pr))
			return true;
	return false;
}

static bool known(const char *id)
{
	for (size_t s = 0; s < ARRAY_LEN(sets); s++)
		for (size_t i = 0; i < sets[s]->n; i++)
			if (id_matches(id, &sets[s]->probes[i]))
				return true;
	return false;
}

static int run_all(const struct options *o)
{
	bool first = true, hole = false;

	for (size_t s = 0; s < ARRAY_LEN(sets); s++) {
		for (size_t i = 0; i < sets[s]->n; i++) {
			const struct probe *pr = &sets[s]->probes[i];
			char detail[512] = "";
			enum verdict v;

			if (!chosen(o, pr))
				continue;
			if (o->list) {
				printf("%s\t%s\t%s\n", pr->id, pr->name, pr->anchor);
				continue;
			}
			v = run(pr, o, detail, sizeof(detail));
			print(o, pr, v, detail, first);
			first = false;
			hole = hole || v == PROBE_OPEN;
		}
	}
	if (o->format == FORMAT_JSON && !o->list)
		printf("%s]\n", first ? "[" : "");
	return hole ? 1 : 0;
}

static int usage(const char *why)
{
	fprintf(stderr,
		"cloche-probe: %s\n"
		"usage: cloche-probe [--json|--tsv] [--list] [--canary PATH TEXT] [--ro PATH] [--port N] [--abstract "
		"NAME]\n"
		"                    [--bombs] [--mib N] [--pids N] [ID...]\n",
		why);
	return 2;
}

static int number(const char *s, unsigned max, unsigned *ret)
{
	char *end;
	unsigned long v = strtoul(s, &end, 10);

	if (end == s || *end || v == 0 || v > max)
		return -EINVAL;
	*ret = (unsigned)v;
	return 0;
}

/* Returns how many arguments were used, 0 when it is no option, negative when it is a bad one. */
static int option(struct options *o, char **a, int left)
{
	if (!strcmp(a[0], "--json"))
		return o->format = FORMAT_JSON, 1;
	if (!strcmp(a[0], "--tsv"))
		return o->format = FORMAT_TSV, 1;
	if (!strcmp(a[0], "--list"))
		return o->list = true, 1;
	if (!strcmp(a[0], "--bombs"))
		return o->bombs = true, 1;
	if (!strcmp(a[0], "--canary") && left > 2 && a[1][0] == '/' && a[2][0])
		return o->probe.canary = a[1], o->probe.canary_text = a[2], 3;
	if (!strcmp(a[0], "--ro") && left > 1)
		return o->probe.read_only = a[1], 2;
	if (!strcmp(a[0], "--abstract") && left > 1)
		return o->probe.abstract = a[1], 2;
	if (!strcmp(a[0], "--port") && left > 1)
		return number(a[1], 65535, &o->probe.port) < 0 ? -1 : 2;
	if (!strcmp(a[0], "--mib") && left > 1)
		return number(a[1], 8192, &o->probe.bound_mib) < 0 ? -1 : 2;
	if (!strcmp(a[0], "--pids") && left > 1)
		return number(a[1], 20000, &o->probe.bound_pids) < 0 ? -1 : 2;
	return a[0][0] == '-' ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct options o = { .probe = { .bound_mib = 256, .bound_pids = 512 } };
	int i = 1;

	/* A setuid copy of us, made by a probe, answers with what it became. */
	if (argc == 2 && !strcmp(argv[1], "--euid"))
		return geteuid() == 0 ? 77 : 0;

	for (int fd = 3; fd < 65536 && o.probe.nfds < PROBE_FD_MAX; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			o.probe.fds[o.probe.nfds++] = fd;

	while (i < argc) {
		int used = option(&o, argv + i, argc - i);

		if (used < 0)
			return usage("invalid option or value");
		if (used == 0)
			break;
		i += used;
	}
	o.ids = argv + i;
	o.nids = argc - i;
	for (; i < argc; i++)
		if (!known(argv[i]))
			return usage("unknown probe; --list names all");
	return run_all(&o);
}
