/*
 * cloche-agent: PID 1 of a sandbox.
 *
 * Theory of operation. The host clones this program into new namespaces, as root of the sandbox's user namespace, with
 * a stream socket on descriptor 3 and mounts of the device and base folders on 4 and 5. It first builds everything that
 * needs no image and locks itself (blank.c), sends READY, then serves frames one by one: MOUNTS ahead, if any, SETUP
 * once (setup.c), then any number of EXEC and SIGNAL. It is single-threaded and waits on two descriptors: the socket
 * and a signalfd for SIGCHLD.
 *
 * It is not dumpable, so no process inside may trace it or read its memory; it has no signal handlers, so no process
 * inside can signal it (PID 1 gets no default actions from its own namespace). When the host's end closes it exits, and
 * the kernel ends every process of the sandbox with it: a crashed host leaves no process running.
 *
 * With KEEP, the agent outlives its host. It holds what a later host needs to find the whole sandbox again, on fixed
 * descriptors, and waits for a new socket to come through the rendezvous. Only a process that may take descriptors out
 * of this one (CAP_SYS_PTRACE over it, so none inside) can send one.
 */
#include "agent/restore/stash.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/stash.h"
#include "proto/table.h"
#include "proto/warm.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SMALL 4096
#define ROOM_MS 5000 /* a host that does not read for so long is no host */
#define LATE_READS 1024 /* reads from a socket that is left for a new one, at most */

/*
 * Bytes and descriptors that have arrived and are not served yet. A frame larger than SMALL gets a buffer of its own.
 */
struct inbox {
	uint8_t small[SMALL];
	uint8_t *data;
	size_t len, size;
	int fds[FRAME_FDS_MAX * 2];
	size_t nfds;
};

/* The connection to the host. It is not in struct agent, because every function that sends needs it. */
static struct {
	bool kept; /* KEEP is in effect: the connection may end without ending the agent */
	/* the table of a KEEP that came ahead, which takes effect as soon as the table says so */
	const struct table *table;
	bool gone; /* the connection has ended: there is nothing to read or write */
	bool mute; /* the host does not read any more; frames that it sent before can still be read */
} ctl;

/*
 * Whether KEEP is in effect. A KEEP that came ahead is polled for here, since no frame announces that it took
 * effect.
 */
static bool kept(void)
{
	if (!ctl.kept && ctl.table)
		ctl.kept = !__atomic_load_n(&ctl.table->ahead, __ATOMIC_ACQUIRE);
	return ctl.kept;
}

/* The descriptor's place stays taken, so that no descriptor that arrives next gets it. */
static void hang_up(void)
{
	if (!kept() || sys_dup3(0, AGENT_CTL, O_CLOEXEC) < 0)
		_exit(1);
	ctl.gone = ctl.mute = true;
}

/* Waits until the host has read something: for a bounded time, and not while another host waits to take over. */
static bool wait_room(void)
{
	struct pollfd p[] = { { .fd = AGENT_CTL, .events = POLLOUT }, { .fd = FRAME_KEEP_TAKE, .events = POLLIN } };
	int n;

	do {
		n = poll(p, ARRAY_LEN(p), ROOM_MS);
	} while (n < 0 && errno == EINTR);
	return n > 0 && p[0].revents;
}

static void send_kept(const uint8_t *data, size_t len, const int *fds, size_t nfds)
{
	int r;

	while ((r = fd_send_now(AGENT_CTL, data, len, fds, nfds)) == -EAGAIN)
		if (!wait_room())
			break;
	if (r == -EAGAIN)
		hang_up();
	else if (r < 0)
		ctl.mute = true;
}

void agent_send(enum frame_type type, uint32_t id, const void *payload, size_t len, const int *fds, size_t nfds)
{
	uint8_t out[FRAME_HEAD + 320];

	assert(len <= sizeof(out) - FRAME_HEAD);
	if (ctl.mute)
		return;
	frame_head(out, type, (uint8_t)nfds, id, (uint32_t)len);
	if (len)
		memcpy(out + FRAME_HEAD, payload, len);
	if (kept())
		send_kept(out, FRAME_HEAD + len, fds, nfds);
	else if (fd_send(AGENT_CTL, out, FRAME_HEAD + len, fds, nfds) < 0)
		_exit(1);
}

void agent_fail(uint32_t id, enum frame_stage stage, int r, uint32_t which)
{
	struct frame_failed f = { .stage = stage, .errnum = (uint32_t)-r, .which = which };
	uint8_t out[16];
	long n = frame_failed_encode(&f, out, sizeof(out));

	agent_send(FRAME_FAILED, id, out, (size_t)n, NULL, 0);
}

static void put_u32s(uint8_t *out, uint32_t a, uint32_t b)
{
	for (unsigned i = 0; i < 4; i++) {
		out[i] = (uint8_t)(a >> (8 * i));
		out[4 + i] = (uint8_t)(b >> (8 * i));
	}
}

static void send_ready(const struct agent *a)
{
	uint8_t out[8];

	put_u32s(out, FRAME_VERSION, (uint32_t)a->landlock);
	agent_send(FRAME_READY, 0, out, sizeof(out), NULL, 0);
}

static void serve_mounts(struct agent *a, const struct frame *f, const int *fds)
{
	struct frame_mounts m;
	uint32_t which = 0;
	int r = a->up ? -EALREADY : frame_mounts_decode(f, &m);

	if (r == 0)
		r = setup_premounts(a, &m, fds, &which);
	if (r < 0) {
		agent_fail(0, FRAME_STAGE_MOUNT, r, which);
		_exit(1);
	}
}

static void serve_setup(struct agent *a, const struct frame *f, const int *fds)
{
	enum frame_stage stage = FRAME_STAGE_PROTOCOL;
	struct frame_setup s;
	uint32_t which = 0;
	uint8_t out[8];
	int r;

	r = a->up ? -EALREADY : frame_setup_decode(f, &s);
	if (r == 0)
		r = setup_apply(a, &s, fds, &stage, &which);
	if (r < 0) {
		/* A half-made sandbox is never used. */
		agent_fail(0, stage, r, which);
		_exit(1);
	}
	a->up = true;
	put_u32s(out, a->fresh, 0);
	agent_send(FRAME_UP, 0, out, s.flags & FRAME_SETUP_FRESH ? 4 : 0, NULL, 0);
}

/* The other end is not our host. Without KEEP there can be no other host, so the agent ends. */
static void nonsense(void)
{
	if (!kept())
		_exit(1);
	hang_up();
}

/* Moves the descriptors that a later host takes to their fixed places. */
static void serve_keep(struct agent *a, const struct frame *f, const int *fds)
{
	const bool known = f->nfds == FRAME_KEEP_FDS || f->nfds == FRAME_KEEP_FDS + FRAME_KEEP_VM_FDS;
	const bool first = !ctl.table;
	int r = a->up && first && known && !f->len && f->id <= FRAME_KEEP_AHEAD ? 0 : -EBADMSG;

	for (int i = 0; r >= 0 && i < (int)f->nfds; i++)
		r = sys_dup3(fds[i], FRAME_KEEP_SLOT + i, O_CLOEXEC);
	if (r >= 0)
		r = table_open(a, FRAME_KEEP_TABLE);
	if (r >= 0) {
		ctl.kept = f->id != FRAME_KEEP_AHEAD;
		ctl.table = a->table;
		return;
	}
	/* A second KEEP is an error of the host, and the sandbox must not end because of it. */
	if (kept()) {
		nonsense();
		return;
	}
	agent_fail(0, FRAME_STAGE_PROTOCOL, r, 0);
	_exit(1);
}

static void serve_exec(struct agent *a, const struct frame *f, int *fds)
{
	enum frame_stage stage = FRAME_STAGE_PROTOCOL;
	struct agent_exec *slot = held_free(a);
	struct exec_started new;
	struct frame_exec x;
	uint8_t out[8];
	int r;

	r = a->up ? frame_exec_decode(f, &x) : -EBADMSG;
	if (r == 0 && x.flags & FRAME_EXEC_KEEP && held_find(a, f->id))
		r = -EEXIST;
	if (r == 0 && !slot) {
		stage = FRAME_STAGE_LIMIT;
		r = -EAGAIN;
	}
	if (r == 0)
		r = exec_start(a, &x, fds, &new, &stage);
	if (r < 0) {
		agent_fail(f->id, stage, r, 0);
		return;
	}
	held_start(a, slot, f->id, &x, new.pid, fds, new.master, new.warm);
	a->began = true;
	if (!slot->tty)
		return;
	put_u32s(out, (uint32_t) new.pid, 0);
	agent_send(FRAME_STARTED, f->id, out, 4, &new.master, 1);
	if (!slot->keep)
		fd_close(new.master);
}

static void serve_signal(struct agent *a, const struct frame *f)
{
	uint32_t sig, scope;

	if (f->len != 8)
		return;
	memcpy(&sig, f->payload, 4); /* both supported architectures are little-endian */
	memcpy(&scope, f->payload + 4, 4);
	if (scope == FRAME_SCOPE_ALL) {
		kill(-1, (int)sig);
		return;
	}
	for (size_t i = 0; i < a->top; i++) {
		if (!a->execs[i].pid || a->execs[i].id != f->id)
			continue;
		/* A process that was just cloned may not lead a group yet, so it is signalled by its id. */
		if (scope != FRAME_SCOPE_GROUP || kill(-a->execs[i].pid, (int)sig) < 0)
			kill(a->execs[i].pid, (int)sig);
	}
}

static void serve(struct agent *a, const struct frame *f, int *fds)
{
	switch (f->type) {
	case FRAME_MOUNTS:
		serve_mounts(a, f, fds);
		break;
	case FRAME_SETUP:
		serve_setup(a, f, fds);
		break;
	case FRAME_EXEC:
		stash_drop(a);
		agent_forget(a);
		serve_exec(a, f, fds);
		break;
	case FRAME_SIGNAL:
		serve_signal(a, f);
		break;
	case FRAME_PING:
		agent_send(FRAME_PONG, f->id, NULL, 0, NULL, 0);
		break;
	case FRAME_KEEP:
		serve_keep(a, f, fds);
		break;
	case FRAME_FILES:
		stash_drop(a);
		agent_forget(a);
		files_serve(a, f, fds);
		break;
	case FRAME_RESTORE:
		if (f->id == FRAME_RESTORE_AHEAD)
			restore_ahead(a, f, fds);
		else
			restore_serve(a, f, fds);
		break;
	case FRAME_RELEASE:
		held_release(a, f->id);
		break;
	case FRAME_CLOSE_STDIN:
		held_close_stdin(a, f->id);
		break;
	case FRAME_SYNC:
		held_tell(a);
		break;
	case FRAME_WARM:
		warm_prepare(a, f->id == FRAME_WARM_WAKE ? WARM_WAKE : WARM_PREPARE);
		break;
	default:
		nonsense(); /* an agent's own frame, or one with the wrong direction */
	}
}

static void shrink(struct inbox *in)
{
	if (in->data == in->small || in->len > SMALL)
		return;
	memcpy(in->small, in->data, in->len);
	munmap(in->data, in->size);
	in->data = in->small;
	in->size = SMALL;
}

/* Drops all bytes and descriptors in the inbox. */
static void empty(struct inbox *in)
{
	fd_close_many(in->fds, in->nfds);
	in->nfds = 0;
	in->len = 0;
	shrink(in);
}

/* Serves every whole frame in the inbox. */
static void drain(struct agent *a, struct inbox *in)
{
	struct frame f;
	size_t used = 0;
	long n;

	while ((n = frame_decode(in->data + used, in->len - used, &f)) > 0) {
		if (f.nfds > in->nfds) {
			n = -EBADMSG;
			break;
		}
		serve(a, &f, in->fds);
		for (size_t i = 0; i < f.nfds; i++)
			fd_close(in->fds[i]);
		in->nfds -= f.nfds;
		memmove(in->fds, in->fds + f.nfds, in->nfds * sizeof(int));
		used += (size_t)n;
	}
	/*
	 * A short command has ended by now, since it ran on the agent's CPU. Its end is reported without another wait,
	 * but only after the agent's copies of its pipes are closed: the host then checks whether any process still
	 * writes.
	 */
	if (a->began)
		held_reap(a);
	a->began = false;
	if (n < 0)
		nonsense();
	in->len -= used;
	memmove(in->data, in->data + used, in->len);
	if (ctl.gone)
		empty(in);
	shrink(in);
}

static bool grow(struct inbox *in)
{
	size_t size = FRAME_HEAD + FRAME_PAYLOAD_MAX;
	uint8_t *data;

	if (in->data != in->small)
		return false;
	data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		return false;
	memcpy(data, in->small, in->len);
	in->data = data;
	in->size = size;
	return true;
}

static void receive(struct agent *a, struct inbox *in)
{
	size_t got;
	ssize_t n;

	if (in->len == in->size && !grow(in)) {
		nonsense();
		empty(in);
		return;
	}
	n = fd_recv(AGENT_CTL, in->data + in->len, in->size - in->len, in->fds + in->nfds,
		    ARRAY_LEN(in->fds) - in->nfds, &got);
	if (n <= 0) {
		if (!kept())
			_exit(0); /* the host is gone: the kernel ends all processes of the sandbox with this one */
		hang_up();
		empty(in);
		return;
	}
	in->len += (size_t)n;
	in->nfds += got;
	drain(a, in);
}

/* Serves what the last host had sent before its connection ended. */
static void finish(struct agent *a, struct inbox *in)
{
	struct pollfd p = { .fd = AGENT_CTL, .events = POLLIN };

	for (unsigned i = 0; i < LATE_READS && !ctl.gone && poll(&p, 1, 0) == 1; i++)
		receive(a, in);
	empty(in);
}

/* A new socket: the old one may be cut in the middle of a frame, so nothing of it is used any more. */
static void meet(struct agent *a, struct inbox *in)
{
	size_t nfds = 0;
	char byte[16];
	int fds[4];

	if (fd_recv(FRAME_KEEP_TAKE, byte, sizeof(byte), fds, ARRAY_LEN(fds), &nfds) > 0 && nfds == 1) {
		finish(a, in);
		if (sys_dup3(fds[0], AGENT_CTL, O_CLOEXEC) < 0)
			_exit(1);
		ctl.gone = ctl.mute = false;
		send_ready(a);
		agent_send(FRAME_UP, 0, NULL, 0, NULL, 0);
	}
	fd_close_many(fds, nfds);
}

/* Reserves the places of KEEP's descriptors, which come later, so that no other descriptor gets them. */
static int reserve_places(void)
{
	int r = 0;

	for (int fd = FRAME_KEEP_SLOT; r >= 0 && fd < AGENT_PLACES_END; fd++)
		r = sys_dup3(0, fd, O_CLOEXEC);
	return r < 0 ? r : 0;
}

/*
 * Sets all signals to their default action, by raw system calls: libc reserves some real-time signals, which may be
 * inherited as ignored, too.
 */
static void default_signals(void)
{
	static const uint64_t none[4]; /* the kernel's struct: default action, no flags, no mask */

	for (long sig = 1; sig <= 64; sig++)
		syscall(SYS_rt_sigaction, sig, none, NULL, sizeof(uint64_t));
}

int main(int argc, char **argv)
{
	static struct agent a;
	static struct inbox in;
	enum frame_stage stage = FRAME_STAGE_NONE;
	struct signalfd_siginfo si;
	char *more = NULL;
	sigset_t chld;
	int sfd, r;

	/* The one argument: the id that is mapped, plus one, when only one is; ->groups; ->groups_at. */
	a.single_id = argc > 1 ? (uint32_t)strtoul(argv[1], &more, 10) : 0;
	a.groups = more && *more == ',' ? (uint32_t)strtoul(more + 1, &more, 10) : 0;
	a.groups_at = more && *more == ',' ? more + 1 : "";
	a.events = -1;
	/*
	 * Or STASH_ARGUMENT: then this process becomes a holder (restore/stash.h), and only its copies, which are
	 * agents, continue below.
	 */
	if (argc > 1 && !strcmp(argv[1], STASH_ARGUMENT)) {
		a.stash = stash_serve(AGENT_CTL);
		a.groups = a.stash->groups;
		a.groups_at = a.stash->groups_at;
		argv[1][0] = '0';
	}
#ifdef CLOCHE_FAULTS
	if (argc > 2)
		sys_test_parse(argv[2]);
#endif
	/*
	 * What was ignored where cloche was started would be ignored by every command; and with SIGCHLD ignored the
	 * kernel would reap for us, and exit statuses would be lost.
	 */
	default_signals();
	prctl(PR_SET_NAME, "init"); /* the kernel named it by the descriptor that it was started from */
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_SETMASK, &chld, NULL);
	in.data = in.small;
	in.size = SMALL;

	r = blank_enter(&a, &stage);
	a.groups_at = "";
	if (argc > 1)
		memset(argv[1] + 1, 0, strlen(argv[1] + 1)); /* names of the host's, which /proc/1/cmdline would show */
	if (r == 0)
		r = reserve_places();
	if (r < 0) {
		agent_fail(0, stage, r, 0);
		return 1;
	}
	sfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (sfd < 0) {
		agent_fail(0, FRAME_STAGE_CLONE, -errno, 0);
		return 1;
	}
	send_ready(&a);
	for (;;) {
		struct pollfd p[3 + AGENT_WARM_MAX] = {
			{ .fd = ctl.gone ? -1 : AGENT_CTL, .events = POLLIN },
			{ .fd = sfd, .events = POLLIN },
			{ .fd = ctl.table ? FRAME_KEEP_TAKE : -1, .events = POLLIN },
		};
		struct agent_exec *warm[AGENT_WARM_MAX];
		unsigned hosts = warm_list(&a, warm);

		for (unsigned i = 0; i < hosts; i++)
			p[3 + i] = (struct pollfd){ .fd = warm[i]->warm, .events = POLLIN };
		if (poll(p, 3 + hosts, -1) < 0)
			continue;
		table_busy(&a);
		/* Warm processes are served first, since what follows may close their sockets. */
		for (unsigned i = 0; i < hosts; i++)
			if (p[3 + i].revents)
				warm_listen(&a, warm[i]);
		if (p[1].revents) {
			/* The same signal is pending at most once, so one read takes it. */
			if (read(sfd, &si, sizeof(si)) > 0)
				held_reap(&a);
		}
		if (p[0].revents)
			receive(&a, &in);
		if (p[2].revents)
			meet(&a, &in);
		table_idle(&a);
	}
}
