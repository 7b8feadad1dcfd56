/*
 * Terminals, whose numbers processes know, and the pipes of execs: new ones, whose host's ends the agent keeps as those
 * of an exec that it has started itself.
 */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <asm/termbits.h>
#include <sys/stat.h>
#include <unistd.h>

#define TTY_GROUP 5
#define PTS_TRIES MEM_PTYS
#define GET_NUMBER 0x80045430UL /* TIOCGPTN */
#define LOCK 0x40045431UL /* TIOCSPTLCK */
#define EXCLUSIVE 0x540cUL /* TIOCEXCL */
#define PACKET 0x5420UL /* TIOCPKT */
#define SET_SIZE 0x5414UL /* TIOCSWINSZ */
#define GET_TERM 0x802c542aUL /* TCGETS2 */
#define SET_TERM 0x402c542bUL /* TCSETS2 */
#define STATUS_FLAGS (O_APPEND | O_NONBLOCK)

struct size {
	unsigned short rows, cols, x, y;
};

static int slave_of(int master, uint32_t flags)
{
	return exec_open_slave(master, (int)(flags & (O_ACCMODE | STATUS_FLAGS)));
}

/* Writes input that was not read yet, in raw mode, before the terminal's own settings are made. */
static int fill(int slave, const uint8_t *bytes, uint64_t len)
{
	struct termios2 t;
	int r = sys_ioctl(slave, GET_TERM, &t);

	if (r < 0 || !len)
		return r;
	t.c_oflag &= ~(tcflag_t)OPOST;
	r = sys_ioctl(slave, SET_TERM, &t);
	if (r >= 0)
		r = sys_fcntl(slave, F_SETFL, O_NONBLOCK);
	while (r >= 0 && len) {
		ssize_t n = sys_write(slave, bytes, len);

		if (n <= 0)
			return n == -EAGAIN ? -EFBIG : n < 0 ? (int)n : -EIO;
		bytes += n;
		len -= (uint64_t)n;
	}
	return r;
}

static int set_up(int master, int slave, const struct mem_pty *p)
{
	struct termios2 t = {
		.c_iflag = p->iflag,
		.c_oflag = p->oflag,
		.c_cflag = p->cflag,
		.c_lflag = p->lflag,
		.c_line = p->line,
		.c_ispeed = p->ispeed,
		.c_ospeed = p->ospeed,
	};
	struct size ws = { p->rows, p->cols, p->xpixel, p->ypixel };
	int locked = (int)p->locked, packet = (int)p->packet, r;

	static_assert(sizeof(t.c_cc) == sizeof(p->cc), "as many");
	memcpy(t.c_cc, p->cc, sizeof(t.c_cc));
	t.c_line = 0; /* no line discipline but the plain one can be asked for inside */
	r = sys_ioctl(slave, SET_TERM, &t);
	if (r >= 0)
		r = sys_ioctl(slave, SET_SIZE, &ws);
	if (r >= 0 && (fchown(slave, p->uid, p->gid) < 0 || fchmod(slave, p->mode) < 0))
		r = -errno;
	if (r >= 0 && packet)
		r = sys_ioctl(master, PACKET, &packet);
	if (r >= 0 && locked)
		r = sys_ioctl(master, LOCK, &locked);
	return r;
}

static const struct mem_object *master_of(const struct restore *r, uint64_t index, uint32_t *ret)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		*ret = i;
		if (r->m.object[i].kind == MEM_OBJ_PTMX && r->m.object[i].a == index)
			return &r->m.object[i];
	}
	return NULL;
}

static const struct mem_exec *exec_with_tty(const struct restore *r, uint64_t index, uint32_t *ret)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_EXEC]; i++) {
		*ret = i;
		if (r->m.exec[i].flags & MEM_EXEC_TTY && r->m.exec[i].tty == index)
			return &r->m.exec[i];
	}
	return NULL;
}

static const struct mem_proc *proc_of(const struct restore *r, uint32_t pid)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++)
		if (r->m.proc[i].pid == pid)
			return &r->m.proc[i];
	return &r->m.proc[0];
}

/* The settings of an exec's terminal are recorded with one of its slaves. */
static bool pty_of_exec(const struct restore *r, uint32_t id, struct mem_pty *ret)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		const struct mem_object *o = &r->m.object[i];

		if (o->kind != MEM_OBJ_EXTERNAL || o->b != MEM_TTY || o->a != id || !o->data.len)
			continue;
		memcpy(ret, restore_bytes(r, o->data), sizeof(*ret));
		return true;
	}
	return false;
}

/* Opens every slave of terminal @index; @master is what it is opened by. */
static int open_slaves(struct restore *r, uint64_t index, const struct mem_exec *x, int master)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		const struct mem_object *o = &r->m.object[i];
		int fd;

		if (!(o->kind == MEM_OBJ_PTS && o->a == index) &&
		    !(x && o->kind == MEM_OBJ_EXTERNAL && o->b == MEM_TTY && o->a == x->id))
			continue;
		fd = slave_of(master, o->flags);
		if (fd < 0)
			return fd;
		r->object[i] = restore_high(r, fd);
		if (r->object[i] < 0)
			return r->object[i];
	}
	return 0;
}

static int make_terminal(struct restore *r, uint64_t index, int master)
{
	uint32_t at_object = 0, at_exec = 0;
	const struct mem_object *o = master_of(r, index, &at_object);
	const struct mem_exec *x = exec_with_tty(r, index, &at_exec);
	AUTO_CLOSE int slave = -1;
	int unlock = 0, s = sys_ioctl(master, LOCK, &unlock);
	struct mem_pty p;
	bool exclusive = false;

	if (s < 0)
		return s;
	slave = slave_of(master, O_RDWR);
	if (slave < 0)
		return slave;
	if (o) {
		const uint8_t *data = restore_bytes(r, o->data);

		memcpy(&p, data, sizeof(p));
		s = fill(slave, data + sizeof(p), o->data.len - sizeof(p));
		if (s >= 0)
			s = set_up(master, slave, &p);
		exclusive = p.exclusive;
		if (s >= 0)
			s = sys_fcntl(master, F_SETFL, (long)(o->flags & STATUS_FLAGS));
	} else if (x) {
		s = fill(slave, restore_bytes(r, x->queued[1]), x->queued[1].len);
		if (s >= 0 && pty_of_exec(r, x->id, &p)) {
			s = set_up(master, slave, &p);
			exclusive = p.exclusive;
		} else if (s >= 0) { /* no process has it open: the user owns it, as with a new exec */
			const uint32_t uid = proc_of(r, x->pid)->uid[1];

			if (fchown(slave, uid, TTY_GROUP) < 0 && fchown(slave, uid, (gid_t)-1) < 0)
				s = -errno;
		}
	}
	if (s >= 0)
		s = open_slaves(r, index, x, master);
	/* Exclusive mode: from now on only a process with CAP_SYS_ADMIN can open it. */
	if (s >= 0 && exclusive)
		s = sys_ioctl(slave, EXCLUSIVE, NULL);
	if (s < 0)
		return s;
	/* The master of an exec's terminal is the agent's; others are descriptors of processes. */
	if (o) {
		r->object[at_object] = sys_fcntl(master, F_DUPFD_CLOEXEC, r->base);
		return r->object[at_object] < 0 ? r->object[at_object] : 0;
	}
	if (!x)
		return 0;
	r->exec[at_exec].fds[0] = sys_fcntl(master, F_DUPFD_CLOEXEC, AGENT_PLACES_END);
	return r->exec[at_exec].fds[0] < 0 ? r->exec[at_exec].fds[0] : 0;
}

/* Whether the terminal's master was closed: it is made, and its master closed again. */
static bool hung_up(const struct restore *r, uint64_t index)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++)
		if (r->m.object[i].kind == MEM_OBJ_PTS && r->m.object[i].a == index && r->m.object[i].b)
			return true;
	return false;
}

static bool wanted(const struct restore *r, uint64_t index)
{
	uint32_t at;

	return master_of(r, index, &at) || exec_with_tty(r, index, &at) || hung_up(r, index);
}

/* The lowest free number is given out, so those between are made, too, and closed again. */
int restore_ttys(struct restore *r, struct err *e)
{
	int masters[PTS_TRIES], n = 0, x = 0;
	uint64_t highest = 0;
	bool any = false;

	for (uint64_t i = 0; i < PTS_TRIES; i++)
		if (wanted(r, i)) {
			highest = i;
			any = true;
		}
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++)
		if ((r->m.object[i].kind == MEM_OBJ_PTS || r->m.object[i].kind == MEM_OBJ_PTMX) &&
		    (r->m.object[i].a >= PTS_TRIES || !wanted(r, r->m.object[i].a)))
			return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "the other end of terminal %llu does not exist",
				       (unsigned long long)r->m.object[i].a);
	while (any && x >= 0 && (uint64_t)n <= highest) {
		unsigned number = UINT32_MAX;

		x = sys_openat(AT_FDCWD, "/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
		if (x < 0)
			break;
		masters[n++] = x;
		x = sys_ioctl(x, GET_NUMBER, &number);
		if (x >= 0 && number != (unsigned)n - 1)
			x = -EEXIST;
		if (x >= 0 && wanted(r, number))
			x = make_terminal(r, number, masters[n - 1]);
	}
	fd_close_many(masters, (size_t)n);
	return x < 0 ? err_sys(e, ERR_UNSUPPORTED, x, "recreate a terminal") : 0;
}

static int fill_pipe(int fd, const uint8_t *bytes, uint64_t len)
{
	while (len) {
		ssize_t n = sys_write(fd, bytes, len);

		if (n <= 0)
			return n < 0 ? (int)n : -EIO;
		bytes += n;
		len -= (uint64_t)n;
	}
	return 0;
}

/* One pipe of an exec: the process's end for every object that is one, the other for the host. */
static int make_external(struct restore *r, uint32_t exec, enum mem_role role, int *ret_host)
{
	const struct mem_exec *x = &r->m.exec[exec];
	AUTO_CLOSE int in = -1, out = -1;
	int ends[2] = { -1, -1 }, s = sys_pipe2(ends, O_CLOEXEC), mine;
	bool reads = role == MEM_STDIN;
	char path[32];

	in = ends[0];
	out = ends[1];
	if (s < 0)
		return s;
	sys_fchmod(out, 0666); /* as the daemon makes them: see service/exec/start.c */
	/* What the pipe could hold. One the user's limit does not allow stays as pipes are. */
	if (x->pipe_flags[role] > 4096)
		sys_fcntl(out, F_SETPIPE_SZ, (long)x->pipe_flags[role]);
	s = sys_fcntl(out, F_SETFL, O_NONBLOCK);
	if (s >= 0)
		s = fill_pipe(out, restore_bytes(r, x->queued[role]), x->queued[role].len);
	if (s >= 0)
		s = sys_fcntl(out, F_SETFL, 0);
	mine = reads ? in : out;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", mine);
	for (uint32_t i = 0; s >= 0 && i < r->m.n[MEM_S_OBJECT]; i++) {
		const struct mem_object *o = &r->m.object[i];

		if (o->kind != MEM_OBJ_EXTERNAL || o->a != x->id || o->b != role)
			continue;
		s = sys_openat(AT_FDCWD, path, (int)(o->flags & (O_ACCMODE | STATUS_FLAGS)) | O_CLOEXEC, 0);
		if (s >= 0)
			s = r->object[i] = restore_high(r, s);
	}
	if (s < 0)
		return s == -EAGAIN ? -EFBIG : s;
	if (reads && !(x->flags & MEM_EXEC_STDIN))
		return 0; /* there is no writer any more: it reads to the end */
	*ret_host = sys_fcntl(reads ? out : in, F_DUPFD_CLOEXEC, AGENT_PLACES_END);
	return *ret_host < 0 ? *ret_host : 0;
}

/* The socket of a warm process: a new pair, nothing is under way on it. */
static int make_warm(struct restore *r, uint32_t exec, int *ret)
{
	AUTO_CLOSE int ours = -1, theirs = -1;
	int s = 0;

	for (uint32_t i = 0; s == 0 && i < r->m.n[MEM_S_OBJECT]; i++) {
		const struct mem_object *o = &r->m.object[i];

		if (o->kind != MEM_OBJ_EXTERNAL || o->a != r->m.exec[exec].id || o->b != MEM_WARM)
			continue;
		if (ours >= 0)
			return -EEXIST; /* an exec has only one warm process */
		s = warm_pair(&ours, &theirs);
		if (s == 0)
			s = sys_fcntl(theirs, F_SETFL, (long)(o->flags & STATUS_FLAGS));
		if (s == 0) {
			s = r->object[i] = restore_high(r, TAKE_FD(theirs));
			s = s < 0 ? s : 0;
		}
	}
	if (s < 0 || ours < 0)
		return s;
	*ret = sys_fcntl(ours, F_DUPFD_CLOEXEC, AGENT_PLACES_END);
	return *ret < 0 ? *ret : 0;
}

int restore_externals(struct restore *r, struct err *e)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_EXEC]; i++) {
		const struct mem_exec *x = &r->m.exec[i];
		struct agent_exec *to = &r->exec[i];
		int s = 0;

		to->used = to->keep = true;
		to->warm = -1;
		to->tty = x->flags & MEM_EXEC_TTY;
		to->with_stdin = x->flags & MEM_EXEC_STDIN;
		to->pid = (pid_t)x->pid;
		to->id = x->id;
		s = make_warm(r, i, &to->warm);
		to->warm_ready = to->warm >= 0;
		if (s == 0 && to->tty)
			continue;
		if (s == 0)
			s = make_external(r, i, MEM_STDOUT, &to->fds[0]);
		if (s == 0)
			s = make_external(r, i, MEM_STDERR, &to->fds[1]);
		if (s == 0)
			s = make_external(r, i, MEM_STDIN, &to->fds[2]);
		if (s < 0)
			return err_sys(e, ERR_UNSUPPORTED, s, "recreate the pipes of exec %u", x->id);
	}
	return 0;
}
