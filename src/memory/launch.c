/* Starts cloche-dump and waits for it. */
#include "memory/launch.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "linux/spawn.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORD_MAX 512
#define SLICE_MS 20 /* interval in which it is checked whether to give up */
/* Places of descriptors in the program. The ancestors' pages follow. */
enum { PLACE_CONTROL = SPAWN_FIRST, PLACE_PIDFD, PLACE_TABLE, PLACE_FREEZER, PLACE_OUT, PLACE_BASE, PLACE_PAGES };
#define PLACES_END (PLACE_PAGES + MEM_PAGE_FILES)

void dump_init(struct dump *d)
{
	*d = (struct dump){ .control = -1 };
}

int dump_start(const struct dump_source *from, struct dump *ret, struct err *e)
{
	char text[PLACES_END][48], pid[16], room[32];
	char *argv[14 + MEM_PAGE_FILES] = { NULL };
	int fd[PLACES_END]; /* descriptors by place; -1: none */
	struct spawn s = {
		.program = from->program, .fd = fd + SPAWN_FIRST, .fds = PLACES_END - SPAWN_FIRST, .argv = argv
	};
	int sock, r, n = 0;

	if (from->program < 0)
		return err_advise(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "install it beside cloche-warden",
				  "memory cannot be saved: cloche-dump is not installed");
	for (int i = 0; i < PLACES_END; i++)
		fd[i] = -1;
	fd[PLACE_PIDFD] = from->pidfd;
	fd[PLACE_TABLE] = from->table;
	fd[PLACE_FREEZER] = from->freezer;
	fd[PLACE_OUT] = from->out;
	for (int i = 0; i < PLACES_END; i++)
		snprintf(text[i], sizeof(text[i]), "%d", i);
	snprintf(pid, sizeof(pid), "%d", from->pid);
	argv[n++] = (char *)(uintptr_t) "cloche-dump";
	argv[n++] = text[PLACE_PIDFD];
	argv[n++] = pid;
	argv[n++] = text[PLACE_TABLE];
	argv[n++] = text[PLACE_FREEZER];
	argv[n++] = text[PLACE_OUT];
	argv[n++] = text[PLACE_CONTROL];
	if (from->room != UINT64_MAX) {
		snprintf(room, sizeof(room), "%llu", (unsigned long long)from->room);
		argv[n++] = room;
	}
	if (from->refuses_network)
		argv[n++] = (char *)(uintptr_t) "network=refuse";
	if (from->whole)
		argv[n++] = (char *)(uintptr_t) "whole";
	if (from->ancestors) {
		fd[PLACE_BASE] = from->base;
		snprintf(text[PLACE_BASE], sizeof(text[0]), "base=%d", PLACE_BASE);
		argv[n++] = text[PLACE_BASE];
	}
	for (unsigned i = 0; i < from->ancestors; i++) {
		fd[PLACE_PAGES + i] = from->pages[i];
		snprintf(text[PLACE_PAGES + i], sizeof(text[0]), "%s:%u", from->ancestor[i], PLACE_PAGES + i);
		argv[n++] = text[PLACE_PAGES + i];
	}
	r = spawn_talking(&s, &sock);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "start cloche-dump");
	*ret = (struct dump){ .pid = r, .control = sock, .sums = from->sums };
	return 0;
}

static enum err_kind kind_of(const char *name, size_t len)
{
	for (unsigned i = 0; i < ERR_KIND_COUNT; i++)
		if (strlen(err_kind_name((enum err_kind)i)) == len &&
		    !memcmp(err_kind_name((enum err_kind)i), name, len))
			return (enum err_kind)i;
	return ERR_UNSUPPORTED;
}

static int gave_up(char *said, struct err *e)
{
	err_clean(said); /* the text has names of processes, which are hostile */
	if (!strncmp(said, "refused ", 8)) {
		const char *kind = said + 8;
		size_t n = strcspn(kind, " ");
		int r = kind_of(kind, n) == ERR_CONFLICT ? -EAGAIN : -EOPNOTSUPP;

		return err_advise(e, kind_of(kind, n), r,
				  r == -EAGAIN ? "try again" : "checkpoint only its files, or end what cannot be saved",
				  "%.220s", kind[n] ? kind + n + 1 : "refused");
	}
	if (!strncmp(said, "failed ", 7))
		return err_set(e, ERR_INTERNAL, -EIO, "save the memory: %.200s", said + 7);
	return err_set(e, ERR_INTERNAL, -EPROTO, "save the memory: cloche-dump answered '%.40s'", said);
}

/* Receives the program's next message, and terminates it with a NUL. Returns its length. */
static int hear(struct dump *d, const char *word, unsigned ms, const int *stop, char said[WORD_MAX + 1], struct err *e)
{
	const uint64_t until = clock_mono_ns() + ms * 1000000ULL;
	struct pollfd p = { .fd = d->control, .events = POLLIN };
	ssize_t n;

	while (poll(&p, 1, SLICE_MS) < 1) {
		if (__atomic_load_n(stop, __ATOMIC_RELAXED))
			return -ECANCELED;
		if (clock_mono_ns() > until)
			return err_set(e, ERR_TIMEOUT, -ETIMEDOUT, "save the memory: cloche-dump is not %s after %u s",
				       word, ms / 1000);
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
		kill(d->pid, SIGKILL); /* our child, and not reaped */
}

void dump_end(struct dump *d)
{
	fd_close(d->control);
	spawn_end(d->pid);
	dump_init(d);
}
