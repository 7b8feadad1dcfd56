/* cloche-vmm for a driver that speaks vm/start.h. Goes when the warden speaks vm/side.h. */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "vm/carry.h"
#include "vm/machine.h"
#include "vm/start.h"
#include "vm/vmm.h"

#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIDE 0 /* the driver's socket */
#define EPOCH 1
#define CONSOLE_MAX 2048 /* of what the kernel said last */
#define TSC_NS 25000000L

struct old {
	struct old_start start;
	uint8_t spec[VM_SPEC_MAX];
	int fds[OLD_FDS];
	int console;
	struct machine machine;
	struct carry carry;
	bool started; /* the guest knows what to be */
	bool failed; /* it said why not */
	char said[CONSOLE_MAX];
	size_t said_len;
};

static int read_start(struct old *v)
{
	static uint8_t data[sizeof(struct old_start) + VM_SPEC_MAX];
	size_t nfds = 0;
	ssize_t n = fd_recv(SIDE, data, sizeof(data), v->fds, OLD_FDS, &nfds);

	if (n < (ssize_t)sizeof(v->start) || nfds < OLD_FD_USR)
		return -EBADMSG;
	if (nfds == OLD_FD_USR)
		v->fds[OLD_FD_USR] = -1;
	memcpy(&v->start, data, sizeof(v->start));
	if (v->start.version != VM_START_VERSION || v->start.spec_len != (size_t)n - sizeof(v->start))
		return -EPROTO;
	memcpy(v->spec, data + sizeof(v->start), v->start.spec_len);
	return 0;
}

static int begin(struct old *v)
{
	static uint8_t out[MUX_START_LEN + VM_SPEC_MAX];
	struct mux_start s = { .real_ns = clock_real_ns(), .spec_len = v->start.spec_len };
	int r;

	if (sys_getrandom(s.seed, sizeof(s.seed), 0) != (ssize_t)sizeof(s.seed))
		return -EIO;
	mux_start_encode(&s, out);
	memcpy(out + MUX_START_LEN, v->spec, v->start.spec_len);
	r = carry_say(&v->carry, MUX_START, 0, out, MUX_START_LEN + v->start.spec_len);
	/* What the host has to say comes behind it. */
	v->carry.ctl = v->fds[OLD_FD_AGENT];
	v->started = true;
	return r;
}

static int on_message(void *arg, const struct mux *m)
{
	struct old *v = arg;
	struct mux_stat stat;

	if (m->type == MUX_HELLO && !v->started)
		return begin(v);
	if (m->type == MUX_STAT && mux_stat_decode(m, &stat) == 0) {
		send(SIDE, m->payload, m->len, MSG_DONTWAIT | MSG_NOSIGNAL);
		return 0;
	}
	if (m->type == MUX_FAILED && m->len <= 512) {
		fd_write_all(STDERR_FILENO, m->payload, m->len);
		v->failed = true;
		return -ECANCELED;
	}
	return -EBADMSG;
}

static void read_side(struct old *v, const struct pollfd *p)
{
	uint8_t ask[4] = { MUX_ASK_STAT };
	char byte[16];
	ssize_t n;

	if (!p->revents)
		return;
	n = recv(SIDE, byte, sizeof(byte), MSG_DONTWAIT);
	if (!n || (n < 0 && errno != EAGAIN))
		_exit(0); /* the driver is gone */
	if (n == 1 && byte[0] == VM_ASK_STAT)
		carry_say(&v->carry, MUX_ASK, 0, ask, sizeof(ask));
}

/* The last of what the guest's kernel said: of use when it says nothing more. */
static void read_console(struct old *v, struct pollfd *p)
{
	char data[512];
	ssize_t n;

	if (!p->revents)
		return;
	n = read(v->console, data, sizeof(data));
	if (n <= 0) {
		v->console = -1;
		return;
	}
	if (v->said_len + (size_t)n > CONSOLE_MAX) {
		size_t drop = v->said_len + (size_t)n - CONSOLE_MAX;

		memmove(v->said, v->said + drop, v->said_len - drop);
		v->said_len -= drop;
	}
	memcpy(v->said + v->said_len, data, (size_t)n);
	v->said_len += (size_t)n;
}

static int loop(struct old *v)
{
	int r = 0;

	while (r == 0) {
		struct pollfd extra[] = { { .fd = SIDE, .events = POLLIN }, { .fd = v->console, .events = POLLIN } };

		r = carry_turn(&v->carry, extra, ARRAY_LEN(extra), -1);
		if (r == 0 || r == -EPIPE) {
			read_console(v, &extra[1]);
			read_side(v, &extra[0]);
		}
	}
	return r;
}

static int start(struct old *v)
{
	const struct timespec nap = { .tv_nsec = TSC_NS };
	struct counted before, after;
	struct machine *m = &v->machine;
	struct err e = { 0 };
	int r;

	m->opts = (struct qemu_opts){
		.role = VM_COLD,
		.accel = VM_TCG,
		.memory_mib = v->start.memory_mib,
		.cpus = v->start.cpus,
		.io_bps = v->start.io_bps,
		.ram = -1,
		.initrd = v->fds[OLD_FD_INITRD],
		.root = v->fds[OLD_FD_ROOT],
		.disk = { v->fds[OLD_FD_DISK] },
		.disks = 1,
		.usr = v->fds[OLD_FD_USR],
	};
	counted_look(&before);
	nanosleep(&nap, NULL);
	counted_look(&after);
	m->opts.tsc_khz = counted_khz(&before, &after);
	r = machine_start(m, &e);
	v->console = m->console;
	if (r < 0)
		return r;
	r = carry_init(&v->carry, CARRY_HOST, m->port, -1, EPOCH);
	v->carry.other = on_message;
	v->carry.arg = v;
	return r;
}

int old_main(void)
{
	static struct old v;
	int r;

	r = read_start(&v);
	if (r == 0)
		r = start(&v);
	if (r == 0)
		r = loop(&v);
	if (v.failed || r == -ECONNRESET)
		return 1;
	if (v.said_len)
		fd_write_all(STDERR_FILENO, v.said, v.said_len);
	dprintf(STDERR_FILENO, "\n%s\n", r == -EPIPE ? "the machine has ended" : r == -EBADMSG ? "the guest talked nonsense" :
									       strerror(-r));
	return 1;
}
