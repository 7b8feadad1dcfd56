/* One stream over the serial port. */
#include "base/base.h"
#include "base/sys.h"
#include "vm/vmm/carry.h"

#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <unistd.h>

#define PIPE_SIZE (256 * 1024)
#define DENIED_TIMES 4U /* refused connections to one address that are tried here at the same time */

static int say_u32(struct carry *c, enum mux_type type, uint32_t n, uint32_t v)
{
	uint8_t out[4];

	mux_put_u32(out, v);
	return carry_say(c, type, n, out, sizeof(out));
}

static uint32_t number(const struct carry *c, const struct chan *x)
{
	return (uint32_t)(x - c->chan);
}

void chan_free(struct chan *x)
{
	fd_close(x->fd);
	free(x->buf);
	*x = (struct chan){ .fd = -1 };
}

static int begin(struct carry *c, struct chan *x, int fd, enum mux_kind kind, bool ours)
{
	const bool both = kind == MUX_BOTH || kind == MUX_TTY || kind == MUX_NET;

	*x = (struct chan){ .used = true,
			    .fd = fd,
			    .tty = kind == MUX_TTY,
			    .net = kind == MUX_NET,
			    .credit = MUX_WINDOW,
			    .window = MUX_WINDOW };
	if (number(c, x) >= c->top)
		c->top = number(c, x) + 1;
	/*
	 * The kind names what the receiver does: for a pipe that the receiver reads, the opener has the writing
	 * side.
	 */
	x->sends = both || (kind == MUX_READ) == ours;
	x->takes = both || !x->sends;
	if (x->takes) {
		x->buf = malloc(MUX_WINDOW);
		if (!x->buf)
			return -ENOMEM;
	}
	x->end_sent = !x->sends;
	x->end_got = !x->takes;
	return 0;
}

/* When both directions have ended: sends CLOSED. The number is free once the other end has sent it, too. */
static int settle(struct carry *c, struct chan *x)
{
	int r = 0;

	if (x->end_sent && x->end_got && !x->len) {
		fd_close(x->fd);
		x->fd = -1;
		if (!x->closed_sent)
			r = carry_say(c, MUX_CLOSED, number(c, x), NULL, 0);
		x->closed_sent = true;
		x->due = 0;
		if (x->closed_got)
			chan_free(x);
	}
	return r;
}

/* No more will be read from ->fd. A process that writes to its other end is informed by its closing, or by shutdown. */
static int end_sending(struct carry *c, struct chan *x)
{
	int r = 0;

	if (!x->end_sent)
		r = carry_say(c, MUX_END, number(c, x), NULL, 0);
	x->end_sent = true;
	x->due = x->takes ? x->due : 0;
	if (r == 0 && x->takes && !x->end_got && !x->tty && x->fd >= 0)
		shutdown(x->fd, SHUT_RD);
	return r;
}

/* The other end of ->fd is not read any more. */
static int stop_taking(struct carry *c, struct chan *x)
{
	int r = 0;

	x->len = x->at = 0;
	x->due = 0;
	if (!x->stop_sent && !x->end_got)
		r = carry_say(c, MUX_STOP, number(c, x), NULL, 0);
	x->stop_sent = true;
	/* A terminal is one thing: without a reader there is no writer either. */
	if (r == 0 && x->tty)
		r = end_sending(c, x);
	if (x->end_sent) {
		/* The descriptor has no use left, and poll() would report its end again and again. */
		fd_close(x->fd);
		x->fd = -1;
	}
	return r;
}

/* Ends the channel at once: the other end of a connection finds it reset. */
static int cut(struct carry *c, struct chan *x)
{
	const struct linger now = { .l_onoff = 1, .l_linger = 0 };
	int r = 0;

	if (x->fd >= 0 && x->net)
		setsockopt(x->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	fd_close(x->fd);
	x->fd = -1;
	x->connecting = false;
	x->len = x->at = 0;
	x->due = 0;
	if (!x->end_sent)
		r = carry_say(c, MUX_END, number(c, x), NULL, 0);
	x->end_sent = true;
	if (r == 0 && !x->stop_sent && !x->end_got)
		r = carry_say(c, MUX_STOP, number(c, x), NULL, 0);
	x->stop_sent = true;
	return r < 0 ? r : settle(c, x);
}

static int reset(struct carry *c, struct chan *x)
{
	int r = carry_say(c, MUX_RESET, number(c, x), NULL, 0);

	return r < 0 ? r : cut(c, x);
}

int chan_reset(struct carry *c, uint32_t n)
{
	return reset(c, &c->chan[n]);
}

int chan_kind(int fd, enum mux_kind *ret)
{
	int flags = sys_fcntl(fd, F_GETFL, 0);
	struct stat st;

	if (flags < 0)
		return flags;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISFIFO(st.st_mode) && (flags & O_ACCMODE) != O_RDWR)
		*ret = (flags & O_ACCMODE) == O_RDONLY ? MUX_READ : MUX_WRITE;
	else if (S_ISSOCK(st.st_mode))
		*ret = MUX_BOTH;
	else if (S_ISREG(st.st_mode)) /* a larger file can only be a source, such as a stdin */
		*ret = st.st_size > MUX_BLOB_MAX ? MUX_READ : MUX_BLOB;
	else if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) && (flags & O_ACCMODE) == O_RDONLY)
		*ret = MUX_BLOB; /* /dev/null is an empty file */
	else if (S_ISCHR(st.st_mode) && isatty(fd))
		*ret = MUX_TTY;
	else
		return -EOPNOTSUPP;
	return 0;
}

static int send_blob(struct carry *c, int fd)
{
	AUTO_FREE uint8_t *out = malloc(MUX_PAYLOAD_MAX);
	ssize_t n;

	if (!out)
		return -ENOMEM;
	mux_put_u32(out, MUX_BLOB);
	n = pread(fd, out + 4, MUX_PAYLOAD_MAX - 4, 0);
	if (n < 0)
		return -errno;
	if (n > MUX_BLOB_MAX)
		return -EFBIG;
	return carry_say(c, MUX_OPEN, 0, out, (size_t)n + 4);
}

/* Finds a free number: those of the host are odd, those of the guest even. */
static struct chan *free_number(struct carry *c)
{
	for (uint32_t n = c->side == CARRY_HOST ? 1 : 2; n < MUX_CHANNELS; n += 2)
		if (!c->chan[n].used)
			return &c->chan[n];
	return NULL;
}

size_t chan_numbers(const struct carry *c)
{
	size_t n = 0;

	for (uint32_t i = c->side == CARRY_HOST ? 1 : 2; i < MUX_CHANNELS; i += 2)
		n += !c->chan[i].used;
	return n;
}

int chan_open_local(struct carry *c, int fd, uint32_t exec, uint32_t place)
{
	enum mux_kind kind = MUX_BLOB;
	struct chan *x;
	int r = chan_kind(fd, &kind);

	if (r == 0 && kind == MUX_BLOB) {
		r = send_blob(c, fd);
		fd_close(fd);
		return r;
	}
	x = free_number(c);
	if (r == 0)
		r = x ? fd_set_nonblock(fd) : -EMFILE;
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	r = begin(c, x, fd, kind, true);
	x->exec = exec;
	x->place = place;
	if (r == 0)
		r = say_u32(c, MUX_OPEN, number(c, x), kind);
	if (r < 0)
		chan_free(x);
	return r;
}

int chan_open_net(struct carry *c, int fd, const struct mux_net *to)
{
	struct chan *x = chan_numbers(c) > CHAN_SPARE ? free_number(c) : NULL;
	uint8_t out[MUX_NET_LEN];
	int r = x ? begin(c, x, fd, MUX_NET, true) : -EMFILE;

	if (!x) {
		fd_close(fd);
		return r;
	}
	mux_net_encode(to, out);
	if (r == 0)
		r = carry_say(c, MUX_OPEN, number(c, x), out, sizeof(out));
	if (r < 0)
		chan_free(x);
	return r;
}

/* Connects from this host, where egress decides about the connection. -1: refused at once. */
static int dial(const struct mux_net *to)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in in4 = { .sin_family = AF_INET };
	int r = -1,
	    fd = socket(to->family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);

	memcpy(&in6.sin6_addr, to->addr, sizeof(in6.sin6_addr));
	memcpy(&in4.sin_addr, to->addr, sizeof(in4.sin_addr));
	in6.sin6_port = in4.sin_port = htons((uint16_t)to->port);
	if (fd >= 0 && to->family == 4)
		r = connect(fd, (struct sockaddr *)&in4, sizeof(in4));
	else if (fd >= 0)
		r = connect(fd, (struct sockaddr *)&in6, sizeof(in6));
	if (fd < 0 || r == 0 || errno == EINPROGRESS)
		return fd;
	fd_close(fd);
	return -1;
}

/*
 * The guest asks for a connection. Without a network it is refused at once: the guest may not have got the change
 * yet.
 */
static int open_net(struct carry *c, struct chan *x, const struct mux *m)
{
	struct mux_net to;
	int fd, r = mux_net_decode(m, &to);

	if (r < 0)
		return -EBADMSG;
	fd = c->net ? dial(&to) : -1;
	r = begin(c, x, fd, MUX_NET, false);
	x->connecting = true;
	if (r < 0)
		chan_free(x);
	else if (fd < 0)
		r = reset(c, x);
	return r;
}

uint32_t chan_at_port(const struct carry *c, uint16_t port)
{
	for (uint32_t n = 2; n < c->top; n += 2) {
		struct sockaddr_in6 at = { 0 }; /* the port is at the same place in the addresses of both families */
		socklen_t len = sizeof(at);

		if (c->chan[n].used && c->chan[n].net && c->chan[n].fd >= 0 &&
		    getsockname(c->chan[n].fd, (struct sockaddr *)&at, &len) == 0 && ntohs(at.sin6_port) == port)
			return n;
	}
	return 0;
}

int chan_denied(const struct carry *c, const struct mux *m)
{
	if (c->side == CARRY_GUEST || m->channel || !m->len || m->len % MUX_DENIED_LEN ||
	    m->len > MUX_DENIED_MAX * MUX_DENIED_LEN)
		return -EBADMSG;
	for (uint32_t at = 0; at < m->len; at += MUX_DENIED_LEN) {
		const struct mux one = { .len = MUX_NET_LEN, .payload = m->payload + at };
		uint32_t times = mux_u32(one.payload + MUX_NET_LEN);
		struct mux_net to;

		if (mux_net_decode(&one, &to) < 0)
			return -EBADMSG;
		for (times = times < DENIED_TIMES ? times : DENIED_TIMES; c->net && times; times--)
			fd_close(dial(&to));
	}
	return 0;
}

int chan_connect(struct carry *c, uint32_t n, int fd)
{
	struct chan *x = &c->chan[n];
	uint8_t status = (uint8_t)(fd < 0 ? (-fd < 255 ? -fd : ECONNREFUSED) : 0);
	int r;

	if (fd >= 0) {
		fd_close(x->fd);
		x->fd = fd;
		x->connecting = x->tell = true;
		return 0;
	}
	r = x->credit ? carry_say(c, MUX_DATA, n, &status, 1) : -EBADMSG;
	x->credit -= r == 0;
	return r < 0 ? r : cut(c, x);
}

/* Handles the end of connecting, successful or not. */
static int finish_connecting(struct carry *c, struct chan *x)
{
	socklen_t len = sizeof(int);
	uint8_t status = 0;
	int why = 0, r;

	if (getsockopt(x->fd, SOL_SOCKET, SO_ERROR, &why, &len) < 0)
		why = errno;
	if (why)
		return x->tell ? chan_connect(c, number(c, x), -why) : reset(c, x);
	x->connecting = false;
	if (!x->tell)
		return 0;
	r = x->credit ? carry_say(c, MUX_DATA, number(c, x), &status, 1) : -EBADMSG;
	x->credit -= r == 0;
	return r;
}

static int make_blob(const uint8_t *data, size_t len, int *ret)
{
	AUTO_CLOSE int fd = sys_memfd_create("carried", MFD_CLOEXEC);
	int r = fd < 0 ? fd : fd_write_all(fd, data, len);

	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r == 0)
		*ret = TAKE_FD(fd);
	return r;
}

/* Makes a raw terminal, which changes no bytes: the real terminal is in the guest. */
static int make_tty(int ends[2])
{
	AUTO_CLOSE int master = sys_openat(AT_FDCWD, "/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC, 0), slave = -1;
	struct termios t;
	int unlock = 0, r = master < 0 ? master : sys_ioctl(master, TIOCSPTLCK, &unlock);

	if (r == 0)
		r = slave = sys_ioctl(master, TIOCGPTPEER, (void *)(uintptr_t)(unsigned)(O_RDWR | O_NOCTTY));
	if (r >= 0)
		r = sys_fcntl(slave, F_SETFD, FD_CLOEXEC);
	if (r < 0)
		return r;
	if (tcgetattr(slave, &t) < 0)
		return -errno;
	cfmakeraw(&t);
	if (tcsetattr(slave, TCSANOW, &t) < 0)
		return -errno;
	ends[0] = TAKE_FD(slave);
	ends[1] = TAKE_FD(master);
	return 0;
}

/* Makes both ends: ends[0] is ours, ends[1] is for the process. */
static int make_ends(const struct carry *c, enum mux_kind kind, int ends[2])
{
	int p[2], r;

	if (kind == MUX_TTY)
		return make_tty(ends);
	if (kind == MUX_BOTH)
		return sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
	r = sys_pipe2(p, O_CLOEXEC);
	if (r < 0)
		return r;
	ends[0] = p[kind == MUX_READ];
	ends[1] = p[kind != MUX_READ];
	/* A larger pipe needs fewer turns between the two ends, each of which is emulated. */
	if (c->side == CARRY_GUEST)
		sys_fcntl(p[0], F_SETPIPE_SZ, PIPE_SIZE);
	/* Programs open /dev/stdout by name, and that asks for rights on the pipe itself. */
	if (c->uid != UINT32_MAX)
		r = sys_fchownat(ends[1], "", c->uid, c->gid, AT_EMPTY_PATH);
	/* Also usable by processes of other users in the sandbox that get the descriptor. */
	if (r == 0 && c->side == CARRY_GUEST)
		r = sys_fchmod(p[0], 0666);
	if (r < 0)
		fd_close_many(ends, 2);
	return r;
}

int chan_ends(const struct carry *c, const struct chan *x, uint32_t n, int ends[2])
{
	const bool ours = (n & 1) == (c->side == CARRY_HOST);
	int theirs[2], r;

	if (x->sends && x->takes && !x->tty)
		return sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
	if (x->tty || !ours)
		return make_ends(c, x->tty ? MUX_TTY : x->sends ? MUX_WRITE : MUX_READ, ends);
	/* This end is a process's own descriptor. */
	r = make_ends(c, x->sends ? MUX_READ : MUX_WRITE, theirs);
	if (r == 0) {
		ends[0] = theirs[1];
		ends[1] = theirs[0];
	}
	return r;
}

int chan_open_remote(struct carry *c, const struct mux *m, int *ret_fd)
{
	struct chan *x = &c->chan[m->channel];
	int ends[2] = { -1, -1 }, r;
	uint32_t kind;

	if (m->len < 4)
		return -EBADMSG;
	kind = mux_u32(m->payload);
	if (kind == MUX_NET)
		return c->side == CARRY_GUEST || x->used || !m->channel || m->channel & 1 ? -EBADMSG :
											    open_net(c, x, m);
	if (kind == MUX_BLOB)
		return m->channel ? -EBADMSG : make_blob(m->payload + 4, m->len - 4, ret_fd);
	if (kind < MUX_READ || kind > MUX_TTY || m->len != 4 || x->used || !m->channel ||
	    (m->channel & 1) == (c->side == CARRY_HOST))
		return -EBADMSG;
	/* An agent sends only terminals as descriptors; any other kind is an invalid request of the guest. */
	if (c->side == CARRY_HOST && kind != MUX_TTY)
		return -EBADMSG;
	r = make_ends(c, (enum mux_kind)kind, ends);
	if (r == 0)
		r = fd_set_nonblock(ends[0]);
	if (r == 0)
		r = begin(c, x, ends[0], (enum mux_kind)kind, false);
	if (r < 0) {
		chan_free(x);
		fd_close(ends[1]);
		return r;
	}
	*ret_fd = ends[1];
	return 0;
}

bool chan_poll(const struct carry *c, const struct chan *x, short *ret)
{
	bool reads = x->sends && !x->end_sent;

	*ret = POLLOUT;
	if (x->connecting)
		return x->fd >= 0;
	*ret = 0;
	if (reads && x->credit && carry_room(c) > MUX_HEAD)
		*ret |= POLLIN;
	if (x->len)
		*ret |= POLLOUT;
	/* Without this, poll() would report a hang-up again and again while bytes ahead of it cannot move. */
	return x->fd >= 0 && (*ret || !reads);
}

static int read_some(struct carry *c, struct chan *x)
{
	uint8_t data[MUX_DATA_MAX];
	size_t room = carry_room(c), max = sizeof(data);
	ssize_t n;

	if (room <= MUX_HEAD)
		return 0;
	max = max < room - MUX_HEAD ? max : room - MUX_HEAD;
	max = max < x->credit ? max : x->credit;
	n = sys_read(x->fd, data, max);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n < 0 && x->net)
		return reset(c, x);
	if (n <= 0) {
		int r = end_sending(c, x);

		return r == 0 && x->tty ? stop_taking(c, x) : r;
	}
	x->credit -= (uint32_t)n;
	x->due -= x->due < (uint64_t)n ? x->due : (uint64_t)n;
	return carry_say(c, MUX_DATA, number(c, x), data, (size_t)n);
}

/* @n bytes were written: the other end may send as many again, by a CREDIT that is sent when it is worth a message. */
static int give_credit(struct carry *c, struct chan *x, size_t n)
{
	int r;

	x->owed += (uint32_t)n;
	x->due -= x->due < n ? x->due : n;
	/* In an emulated guest each message costs it a turn of QEMU; with half of the window left the other end need not wait. */
	if (x->end_got || x->owed < MUX_WINDOW / 2)
		return 0;
	x->window += x->owed;
	r = say_u32(c, MUX_CREDIT, number(c, x), x->owed);
	x->owed = 0;
	return r;
}

static int write_some(struct carry *c, struct chan *x)
{
	ssize_t n = sys_write(x->fd, x->buf + x->at, x->len - x->at);

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n < 0 && x->net)
		return reset(c, x);
	if (n < 0)
		return stop_taking(c, x);
	x->at += (size_t)n;
	if (x->at == x->len)
		x->at = x->len = 0;
	return give_credit(c, x, (size_t)n);
}

static int take_data(struct carry *c, struct chan *x, const struct mux *m)
{
	size_t done = 0;
	int r = 0;

	if (!x->takes || x->end_got || m->len > x->window || !m->len)
		return -EBADMSG;
	x->window -= m->len;
	if (x->stop_sent || x->fd < 0)
		return 0;
	/* Usually it can be written at once. A failure is found by the poll() that waits for room. */
	if (!x->len && !x->connecting && !c->still) {
		ssize_t n = sys_write(x->fd, m->payload, m->len);

		done = n > 0 ? (size_t)n : 0;
		r = done ? give_credit(c, x, done) : 0;
	}
	memmove(x->buf, x->buf + x->at, x->len - x->at);
	x->len -= x->at;
	x->at = 0;
	memcpy(x->buf + x->len, m->payload + done, m->len - done);
	x->len += m->len - done;
	return r;
}

/* Once all data is written, the reader gets the end of the file. */
static int finish_taking(struct carry *c, struct chan *x)
{
	if (!x->takes || !x->end_got || x->len || x->fd < 0)
		return 0;
	if (x->tty)
		return end_sending(c, x);
	if (!x->end_sent)
		shutdown(x->fd, SHUT_WR);
	return 0;
}

int chan_serve(struct carry *c, uint32_t n, short revents)
{
	struct chan *x = &c->chan[n];
	int r = 0;

	if (x->connecting && x->fd >= 0) {
		r = revents ? finish_connecting(c, x) : 0;
		if (r < 0 || x->connecting || x->fd < 0)
			return r;
		revents = 0;
	}
	if (x->fd >= 0 && x->len && revents & (POLLOUT | POLLERR | POLLHUP))
		r = write_some(c, x);
	/* Notices that the reader is gone, also when there is nothing to write. */
	if (r == 0 && x->fd >= 0 && revents & (POLLERR | POLLHUP) && x->takes && x->end_sent)
		r = stop_taking(c, x);
	if (r == 0 && x->fd >= 0 && revents & (POLLIN | POLLHUP | POLLERR) && x->sends && !x->end_sent && x->credit)
		r = read_some(c, x);
	if (r == 0)
		r = finish_taking(c, x);
	return r < 0 ? r : settle(c, x);
}

static void take_size(const struct chan *x, const struct mux *m)
{
	struct winsize ws = { .ws_row = (unsigned short)mux_u32(m->payload),
			      .ws_col = (unsigned short)mux_u32(m->payload + 4) };

	sys_ioctl(x->fd, TIOCSWINSZ, &ws);
}

int chan_message(struct carry *c, const struct mux *m)
{
	struct chan *x = &c->chan[m->channel];
	uint32_t n;

	if (!x->used || x->closed_got)
		return -EBADMSG;
	switch ((enum mux_type)m->type) {
	case MUX_DATA:
		return take_data(c, x, m);
	case MUX_CREDIT:
		n = m->len == 4 ? mux_u32(m->payload) : 0;
		if (!x->sends || !n || n > MUX_WINDOW - x->credit)
			return -EBADMSG;
		x->credit += n;
		return 0;
	case MUX_END:
		if (!x->takes || x->end_got)
			return -EBADMSG;
		x->end_got = true;
		break;
	case MUX_STOP:
		if (!x->sends)
			return -EBADMSG;
		return end_sending(c, x) < 0 ? -ENOBUFS : settle(c, x);
	case MUX_CLOSED:
		if (!x->end_got || !x->end_sent)
			return -EBADMSG;
		x->closed_got = true;
		break;
	case MUX_SIZE:
		if (!x->tty || m->len != 8)
			return -EBADMSG;
		if (c->side == CARRY_GUEST && x->fd >= 0)
			take_size(x, m);
		return 0;
	case MUX_HELLO:
	case MUX_START:
	case MUX_OPEN:
	case MUX_ASK:
	case MUX_STAT:
	case MUX_FAILED:
	case MUX_QUIESCE:
	case MUX_QUIET:
	case MUX_GO_ON:
	case MUX_RESUME:
	case MUX_RESUMED:
	case MUX_GROUP:
	case MUX_STEER:
	case MUX_DENIED:
		return -EBADMSG;
	case MUX_RESET:
		return x->net ? cut(c, x) : -EBADMSG;
	}
	return x->len ? 0 : chan_serve(c, m->channel, 0);
}

bool chan_sizes(struct carry *c)
{
	bool any = false;

	for (uint32_t n = 2; c->side == CARRY_HOST && n < c->top; n += 2) {
		struct chan *x = &c->chan[n];
		struct winsize ws;
		uint8_t out[8];

		if (!x->used || !x->tty || x->fd < 0)
			continue;
		any = true;
		if (sys_ioctl(x->fd, TIOCGWINSZ, &ws) < 0 || (x->rows == ws.ws_row && x->cols == ws.ws_col))
			continue;
		mux_put_u32(out, x->rows = ws.ws_row);
		mux_put_u32(out + 4, x->cols = ws.ws_col);
		carry_say(c, MUX_SIZE, n, out, sizeof(out));
	}
	return any;
}
