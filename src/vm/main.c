/*
 * cloche-vmm: one virtual machine.
 *
 * Theory of operation. The driver starts this program in a sandbox of the container tier, as its only command: a user id
 * of its own, no capabilities, no network, the filter, a cgroup of the machine's size and a little more. Its stdin is a
 * socket on which the driver sends what the machine is to be, with the files it needs as descriptors. It starts QEMU in
 * the same jail and then carries frames (carry.h) between the guest's serial port and the socket on which the host takes
 * this process for an agent. Its stderr tells why when the machine does not come up.
 *
 * All that comes over the port is hostile: what makes no sense ends this process, QEMU with it, and so the sandbox.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "vm/carry.h"
#include "vm/qemu.h"
#include "vm/start.h"

#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIDE 0 /* the driver's socket */
#define EPOCH 1
#define CONSOLE_MAX 2048 /* of what the kernel said last */
#define TSC_NS 25000000ULL
#define TSC_TRIES 50U

struct vmm {
	struct vm_start start;
	uint8_t spec[VM_SPEC_MAX];
	int fds[VM_FDS];
	int console;
	struct carry carry;
	bool started; /* the guest knows what to be */
	bool failed; /* it said why not */
	char said[CONSOLE_MAX];
	size_t said_len;
};

static int read_start(struct vmm *v)
{
	static uint8_t data[sizeof(struct vm_start) + VM_SPEC_MAX];
	size_t nfds = 0;
	ssize_t n = fd_recv(SIDE, data, sizeof(data), v->fds, VM_FDS, &nfds);

	if (n < (ssize_t)sizeof(v->start) || nfds < VM_FD_USR)
		return -EBADMSG;
	if (nfds == VM_FD_USR)
		v->fds[VM_FD_USR] = -1;
	memcpy(&v->start, data, sizeof(v->start));
	if (v->start.version != VM_START_VERSION || v->start.spec_len != (size_t)n - sizeof(v->start))
		return -EPROTO;
	memcpy(v->spec, data + sizeof(v->start), v->start.spec_len);
	return 0;
}

#if defined(__x86_64__)
/* Both clocks at one moment: of several tries the one in which the least went by, since anybody may take the processor. */
static void look(uint64_t *ret_ns, uint64_t *ret_count)
{
	uint64_t best = UINT64_MAX;

	for (unsigned i = 0; i < TSC_TRIES; i++) {
		uint64_t before = clock_mono_ns(), count = __builtin_ia32_rdtsc(), gap = clock_mono_ns() - before;

		if (gap >= best)
			continue;
		best = gap;
		*ret_ns = before + gap / 2;
		*ret_count = count;
	}
}
#endif

/* How fast the processor counts, in kHz; 0 where nobody asks. */
static uint32_t tsc_khz(void)
{
#if defined(__x86_64__)
	const struct timespec nap = { .tv_nsec = (long)TSC_NS };
	uint64_t ns[2] = { 0 }, count[2] = { 0 };

	look(&ns[0], &count[0]);
	nanosleep(&nap, NULL);
	look(&ns[1], &count[1]);
	return (uint32_t)((count[1] - count[0]) * 1000000ULL / (ns[1] - ns[0]));
#else
	return 0;
#endif
}

static int begin(struct vmm *v)
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
	v->carry.ctl = v->fds[VM_FD_AGENT];
	v->started = true;
	return r;
}

static int on_message(void *arg, const struct mux *m)
{
	struct vmm *v = arg;
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

static void read_side(struct vmm *v, const struct pollfd *p)
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
static void read_console(struct vmm *v, struct pollfd *p)
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

static int loop(struct vmm *v)
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

static int start(struct vmm *v)
{
	int port[2] = { -1, -1 }, con[2] = { -1, -1 }, r;
	struct qemu_opts o = {
		.memory_mib = v->start.memory_mib,
		.cpus = v->start.cpus,
		.io_bps = v->start.io_bps,
		.initrd = v->fds[VM_FD_INITRD],
		.root = v->fds[VM_FD_ROOT],
		.disk = v->fds[VM_FD_DISK],
		.usr = v->fds[VM_FD_USR],
	};

	o.tsc_khz = tsc_khz();
	r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port);
	if (r == 0)
		r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, con);
	if (r == 0)
		r = fd_set_nonblock(port[0]);
	if (r == 0)
		r = carry_init(&v->carry, CARRY_HOST, port[0], -1, EPOCH);
	if (r < 0)
		return r;
	v->carry.other = on_message;
	v->carry.arg = v;
	v->console = con[0];
	o.port = port[1];
	o.console = con[1];
	r = qemu_start(&o);
	fd_close(port[1]);
	fd_close(con[1]);
	return r < 0 ? r : 0;
}

int main(void)
{
	static struct vmm v;
	int r;

	signal(SIGPIPE, SIG_IGN);
	sys_prctl(4 /* PR_SET_DUMPABLE */, 0, 0, 0, 0);
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
