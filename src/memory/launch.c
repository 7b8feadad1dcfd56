#include "memory/launch.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/sys.h"

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORD_MAX 512
#define SLICE_MS 20 /* how soon it is noticed that it should be given up */
#define STACK_SIZE 32768
/* Places in the program: these, then the ancestors' pages. */
enum { PLACE_CONTROL = 3, PLACE_PIDFD, PLACE_TABLE, PLACE_FREEZER, PLACE_OUT, PLACE_BASE, PLACE_PAGES };
#define PLACES_END (PLACE_PAGES + MEM_PAGE_FILES)

struct start {
	int program;
	int fd[PLACES_END]; /* -1: nothing goes there */
	char *argv[14 + MEM_PAGE_FILES];
	int error; /* written by the child */
};

void dump_init(struct dump *d)
{
	*d = (struct dump){ .control = -1 };
}

/* Two steps, since a place may be where another's source is. */
static int place(struct start *s)
{
	int r = 0;

	for (int i = PLACE_CONTROL; r >= 0 && i < PLACES_END; i++)
		if (s->fd[i] >= 0)
			r = s->fd[i] = sys_fcntl(s->fd[i], F_DUPFD_CLOEXEC, PLACES_END);
	if (r >= 0)
		r = s->program = sys_fcntl(s->program, F_DUPFD_CLOEXEC, PLACES_END);
	for (int i = PLACE_CONTROL; r >= 0 && i < PLACES_END; i++)
		if (s->fd[i] >= 0)
			r = sys_dup3(s->fd[i], i, 0);
		else
			r = sys_close_range((unsigned)i, (unsigned)i, 0);
	return r < 0 ? r : sys_close_range(PLACES_END, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
}

/* On the warden's memory, on a stack of its own: calls of base/sys.h, or such that cannot fail. */
static int child(void *arg)
{
	struct start *s = arg;
	char plain[] = "CLOCHE_PLAIN_CPU=1";
	char *envp[] = { cpu_plain() ? plain : NULL, NULL }; /* never but in a test build */
	uint64_t none = 0;
	int r = sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);

	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
	if (r == 0)
		r = place(s);
	if (r == 0)
		r = sys_execveat(s->program, "", s->argv, envp, AT_EMPTY_PATH);
	s->error = r;
	return 127;
}

static pid_t launch(struct start *s)
{
	AUTO_FREE char *stack = malloc(STACK_SIZE);
	pid_t pid;

	if (!stack)
		return -ENOMEM;
	/* The kernel holds this thread until the program runs, so that the stack can go. */
	pid = clone(child, stack + STACK_SIZE - 64, CLONE_VM | CLONE_VFORK | SIGCHLD, s);
	if (pid < 0)
		return -errno;
	if (s->error == 0)
		return pid;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return s->error;
}

int dump_start(const struct dump_source *from, struct dump *ret, struct err *e)
{
	char text[PLACES_END][48], pid[16], room[32];
	struct start s = { .program = from->program };
	AUTO_CLOSE int ours = -1, theirs = -1;
	int pair[2], r = from->program < 0 ? -ENOENT : 0, n = 0;

	if (r < 0) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "memory cannot be saved: cloche-dump is not installed");
		err_remedy(e, "install it beside cloche-warden");
		return -EOPNOTSUPP;
	}
	r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
	ours = pair[0];
	theirs = pair[1];
	for (int i = 0; i < PLACES_END; i++)
		s.fd[i] = -1;
	s.fd[PLACE_CONTROL] = theirs;
	s.fd[PLACE_PIDFD] = from->pidfd;
	s.fd[PLACE_TABLE] = from->table;
	s.fd[PLACE_FREEZER] = from->freezer;
	s.fd[PLACE_OUT] = from->out;
	for (int i = 0; i < PLACES_END; i++)
		snprintf(text[i], sizeof(text[i]), "%d", i);
	snprintf(pid, sizeof(pid), "%d", from->pid);
	s.argv[n++] = (char *)(uintptr_t) "cloche-dump";
	s.argv[n++] = text[PLACE_PIDFD];
	s.argv[n++] = pid;
	s.argv[n++] = text[PLACE_TABLE];
	s.argv[n++] = text[PLACE_FREEZER];
	s.argv[n++] = text[PLACE_OUT];
	s.argv[n++] = text[PLACE_CONTROL];
	if (from->room != UINT64_MAX) {
		snprintf(room, sizeof(room), "%llu", (unsigned long long)from->room);
		s.argv[n++] = room;
	}
	if (from->refuses_network)
		s.argv[n++] = (char *)(uintptr_t) "network=refuse";
	if (from->whole)
		s.argv[n++] = (char *)(uintptr_t) "whole";
	if (from->ancestors) {
		s.fd[PLACE_BASE] = from->base;
		snprintf(text[PLACE_BASE], sizeof(text[0]), "base=%d", PLACE_BASE);
		s.argv[n++] = text[PLACE_BASE];
	}
	for (unsigned i = 0; i < from->ancestors; i++) {
		s.fd[PLACE_PAGES + i] = from->pages[i];
		snprintf(text[PLACE_PAGES + i], sizeof(text[0]), "%s:%u", from->ancestor[i], PLACE_PAGES + i);
		s.argv[n++] = text[PLACE_PAGES + i];
	}
	r = launch(&s);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "start cloche-dump");
	*ret = (struct dump){ .pid = r, .control = TAKE_FD(ours), .sums = from->sums };
	return 0;
}

/* Names of processes are in it, and those are anything. */
static void clean(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || (unsigned char)*text > '~')
			*text = '?';
}

static enum err_kind kind_of(const char *name, size_t len)
{
	for (unsigned i = 0; i < ERR_KIND_COUNT; i++)
		if (strlen(err_kind_name((enum err_kind)i)) == len && !memcmp(err_kind_name((enum err_kind)i), name, len))
			return (enum err_kind)i;
	return ERR_UNSUPPORTED;
}

static int gave_up(char *said, struct err *e)
{
	clean(said);
	if (!strncmp(said, "refused ", 8)) {
		const char *kind = said + 8;
		size_t n = strcspn(kind, " ");
		int r = kind_of(kind, n) == ERR_CONFLICT ? -EAGAIN : -EOPNOTSUPP;

		err_set(e, kind_of(kind, n), r, "%.220s", kind[n] ? kind + n + 1 : "refused");
		err_remedy(e, r == -EAGAIN ? "try again" : "checkpoint only its files, or end what cannot be saved");
		return r;
	}
	if (!strncmp(said, "failed ", 7))
		return err_set(e, ERR_INTERNAL, -EIO, "save the memory: %.200s", said + 7);
	return err_set(e, ERR_INTERNAL, -EPROTO, "save the memory: cloche-dump answered '%.40s'", said);
}

/* What it says next, with a zero behind it. Its length. */
static int hear(struct dump *d, const char *word, unsigned ms, const int *stop, char said[WORD_MAX + 1], struct err *e)
{
	const uint64_t until = clock_mono_ns() + ms * 1000000ULL;
	struct pollfd p = { .fd = d->control, .events = POLLIN };
	ssize_t n;

	while (poll(&p, 1, SLICE_MS) < 1) {
		if (__atomic_load_n(stop, __ATOMIC_RELAXED))
			return -ECANCELED;
		if (clock_mono_ns() > until)
			return err_set(e, ERR_TIMEOUT, -ETIMEDOUT, "save the memory: cloche-dump is not %s after %u s", word,
				       ms / 1000);
	}
	n = recv(d->control, said, WORD_MAX, MSG_DONTWAIT);
	if (n <= 0)
		return err_set(e, ERR_INTERNAL, -EIO, "save the memory: cloche-dump has ended");
	said[n] = '\0';
	return (int)n;
}

int dump_wait(struct dump *d, const char *word, unsigned ms, const int *stop, struct err *e)
{
	char said[WORD_MAX + 1];
	int r = hear(d, word, ms, stop, said, e);

	return r < 0 ? r : strcmp(said, word) ? gave_up(said, e) : 0;
}

int dump_wait_done(struct dump *d, unsigned ms, const int *stop, uint8_t ret_sum[SHA256_SIZE], struct err *e)
{
	char said[WORD_MAX + 1];
	int r = hear(d, "done", ms, stop, said, e);

	if (r < 0)
		return r;
	if (r != 4 + (d->sums ? SHA256_SIZE : 0) || memcmp(said, "done", 4) != 0)
		return gave_up(said, e);
	memcpy(ret_sum, said + 4, d->sums ? SHA256_SIZE : 0);
	return 0;
}

int dump_say(struct dump *d, const char *word, struct err *e)
{
	int r = fd_send_now(d->control, word, strlen(word), NULL, 0);

	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "save the memory: send to cloche-dump") : 0;
}

void dump_leave(struct dump *d)
{
	fd_close(TAKE_FD(d->control));
	if (d->pid > 0)
		kill(d->pid, SIGKILL); /* as below */
}

void dump_end(struct dump *d)
{
	fd_close(d->control);
	if (d->pid > 0) {
		kill(d->pid, SIGKILL); /* our child, and not reaped: nobody else has this number */
		while (waitpid(d->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	dump_init(d);
}
