/*
 * cloche-vmm: one virtual machine.
 *
 * Theory of operation. The warden starts this program in a sandbox of the container tier, as its only command: a user id
 * of its own, no capabilities, the filter, a cgroup of the machine's size and a little more. Its stdin is a socket (side.h) on
 * which the warden says what the machine is to be, with all files as descriptors. It starts QEMU in the same jail (begin.c,
 * machine.c) and carries frames (carry.h) between the guest's serial port and the socket on which the host takes this process
 * for an agent (kept.h). Machines boot once, as a template; what runs are clones of that, or of a checkpoint (save.c).
 *
 * All that comes over the port, and from QEMU, is hostile: what makes no sense ends this process, QEMU with it, and so the
 * sandbox.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "linux/steer.h"
#include "vm/vmm/vmm.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_MAX (6 + VM_CHAIN_MAX)

void vmm_say(const struct vm_msg *m)
{
	struct vm_msg out = *m;

	out.version = VM_SIDE_VERSION;
	/* The warden gets one answer for each message, so there is room unless it is gone. */
	send(VMM_SIDE, &out, sizeof(out), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void put_text(char *ret, size_t size, const char *text)
{
	size_t n = 0;

	for (; *text && n + 1 < size; text++)
		ret[n++] = *text >= ' ' && *text < 127 ? *text : '?';
	ret[n] = '\0';
}

void vmm_say_failed(uint64_t id, const struct err *e)
{
	struct vm_msg m = { .type = VM_FAILED, .failed = { .id = id, .errnum = e->errnum ? e->errnum : EIO } };

	put_text(m.failed.text, sizeof(m.failed.text), e->msg);
	vmm_say(&m);
}

/* May be read at any moment: ->seq is odd while the values are being changed. */
static void put_stat(struct vm_stat *to, const struct mux_stat *s)
{
	__atomic_fetch_add(&to->seq, 1, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	to->stat = *s;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_fetch_add(&to->seq, 1, __ATOMIC_SEQ_CST);
}

static int on_message(void *arg, const struct mux *m)
{
	struct vmm *v = arg;
	struct mux_stat stat;

	if (m->type == MUX_HELLO && v->state == VMM_BOOTS && !v->hello) {
		v->hello = true;
		return 0;
	}
	if (m->type == MUX_STAT && mux_stat_decode(m, &stat) == 0) {
		put_stat(v->stat, &stat);
		return 0;
	}
	if (m->type == MUX_FAILED && m->len < sizeof(v->e.msg)) {
		char text[sizeof(v->e.msg)] = "", clean[sizeof(v->e.msg)];

		memcpy(text, m->payload, m->len);
		put_text(clean, sizeof(clean), text);
		return err_set(&v->e, ERR_UNSUPPORTED, -ECANCELED, "%s", clean);
	}
	return -EBADMSG;
}

static uint32_t way(const struct vmm *v)
{
	struct steer_rules rules;

	static_assert(STEER_OBSERVE + 1 < VM_WAY_OTHER, "a mode is none of the others");
	if (!v->rules_len)
		return VM_WAY_NONE;
	memcpy(&rules, v->rules, sizeof(rules));
	if (rules.n || rules.mode > STEER_OBSERVE)
		return VM_WAY_OTHER;
	return 1 + (rules.mode == STEER_OBSERVE ? STEER_OPEN : rules.mode);
}

static bool is_up(const struct vmm *v)
{
	return v->state == VMM_RUNS || v->state == VMM_STOPS || v->state == VMM_STAYS;
}

/* Sends the guest the network settings of the last STEER, unless it has them already. */
static int tell_steer(struct vmm *v)
{
	const uint32_t now = way(v);
	int r;

	if (!v->steered || (now == v->was.way && now != VM_WAY_OTHER))
		return 0;
	r = carry_say(&v->carry, MUX_STEER, 0, v->rules, v->rules_len);
	/* A state that is being saved now may contain the change or not. */
	v->was.way = v->carry.still ? VM_WAY_OTHER : now;
	return r < 0 ? err_sys(&v->e, ERR_LOST, r, "send the guest its network settings") : 0;
}

static int hear_steer(struct vmm *v, const struct vm_steer *s, const uint8_t *rules, size_t len)
{
	if (s->on > 1 || s->len != len || len != (s->on ? sizeof(struct steer_rules) : 0) ||
	    v->start.role == VM_TEMPLATE)
		return err_set(&v->e, ERR_INTERNAL, -EPROTO, "the STEER message is invalid");
	v->carry.net = s->on;
	v->steered = true;
	v->rules_len = (uint32_t)len;
	memcpy(v->rules, rules, len);
	/* Before GO the rules are only stored, since the guest cannot read them yet. */
	return is_up(v) ? tell_steer(v) : 0;
}

static int hear_go(struct vmm *v, const struct vm_go *go, int *agent)
{
	struct mux_resume who = { .real_ns = clock_real_ns() };
	int r;

	if (v->state != VMM_LOADED || *agent < 0 || go->flags & ~(VM_GO_DROP | VM_GO_FRESH | VM_GO_SECRETS) ||
	    !memchr(go->hostname, 0, sizeof(go->hostname)))
		return err_set(&v->e, ERR_INTERNAL, -EPROTO, "the GO message is invalid");
	v->agent = TAKE_FD(*agent);
	if (v->start.role == VM_COLD) {
		r = vmm_begin(v, go->seed);
		return r < 0 ? r : tell_steer(v);
	}
	who.flags = (go->flags & VM_GO_DROP ? MUX_RESUME_DROP : 0) | (go->flags & VM_GO_FRESH ? MUX_RESUME_FRESH : 0) |
		    (go->flags & VM_GO_SECRETS ? MUX_RESUME_SECRETS : 0);
	memcpy(who.seed, go->seed, sizeof(who.seed));
	memcpy(who.generation, go->generation, sizeof(who.generation));
	memcpy(who.hostname, go->hostname, sizeof(who.hostname));
	r = machine_go(&v->machine, &v->e);
	if (r < 0)
		return r;
	v->state = VMM_RISES;
	r = kept_resume(v->kept, &who);
	return r < 0 ? err_sys(&v->e, ERR_LOST, r, "send the guest the command to continue") : tell_steer(v);
}

/* Handles a message of the warden. Negative ends the machine, and ->e has the reason. */
static int hear(struct vmm *v, const struct vm_msg *m, const uint8_t *more, size_t len, int *fds, size_t nfds)
{
	if (len && m->type != VM_STEER)
		return err_set(&v->e, ERR_INTERNAL, -EPROTO, "protocol error from the warden");
	switch ((enum vm_type)m->type) {
	case VM_GO:
		return hear_go(v, &m->go, &fds[0]);
	case VM_ATTACH:
		if (nfds == 1 && is_up(v))
			kept_attach(v->kept, TAKE_FD(fds[0]), 0);
		return 0;
	case VM_SAVE:
		if (vmm_save(v, &m->save, fds, nfds) < 0) {
			vmm_say_failed(m->save.id, &v->e);
			v->e = (struct err){ 0 };
		}
		return 0;
	case VM_JOIN:
		return vmm_join(v, &m->join);
	case VM_GO_ON:
		return vmm_go_on(v);
	case VM_GROUP_KILL:
	case VM_GROUP_END:
		if (!is_up(v))
			return 0;
		return kept_group(v->kept, m->group.number, m->type == VM_GROUP_KILL ? MUX_GROUP_KILL : MUX_GROUP_END);
	case VM_STEER:
		return hear_steer(v, &m->steer, more, len);
	case VM_START:
	case VM_LOADED:
	case VM_TEMPLATED:
	case VM_UP:
	case VM_SAVED:
	case VM_JOINED:
	case VM_FAILED:
		break;
	}
	return err_set(&v->e, ERR_INTERNAL, -EPROTO, "protocol error from the warden");
}

static int read_side(struct vmm *v)
{
	struct {
		struct vm_msg m;
		uint8_t more[VM_RULES_MAX];
	} in;
	int fds[FDS_MAX] = { -1 }, r;
	size_t nfds = 0;
	ssize_t n = fd_recv(VMM_SIDE, &in, sizeof(in), fds, FDS_MAX, &nfds);

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0)
		_exit(0); /* the warden has closed its end, and no other can come */
	if (n < (ssize_t)sizeof(in.m) || in.m.version != VM_SIDE_VERSION)
		r = err_set(&v->e, ERR_INTERNAL, -EPROTO, "the warden has another version");
	else
		r = hear(v, &in.m, in.more, (size_t)n - sizeof(in.m), fds, nfds);
	fd_close_many(fds, nfds);
	return r;
}

/* Keeps the last output of QEMU and of the guest's kernel, for the error when the machine ends. */
static void read_console(struct vmm *v)
{
	char data[512];
	ssize_t n = recv(v->machine.console, data, sizeof(data), MSG_DONTWAIT);

	if (n <= 0) {
		if (!n || (errno != EAGAIN && errno != EINTR))
			fd_close(TAKE_FD(v->machine.console));
		return;
	}
	if (v->said_len + (size_t)n > VMM_SAID) {
		size_t drop = v->said_len + (size_t)n - VMM_SAID;

		memmove(v->said, v->said + drop, v->said_len - drop);
		v->said_len -= drop;
	}
	memcpy(v->said + v->said_len, data, (size_t)n);
	v->said_len += (size_t)n;
}

static int come_up(struct vmm *v)
{
	struct vm_msg m = { .type = VM_UP };
	int r = v->start.role == VM_CLONE ? carry_resumed(&v->carry, &m.up.restored) : kept_up(v->kept, &v->e);

	if (r <= 0)
		return r;
	if (v->start.role == VM_TEMPLATE)
		return vmm_warm(v);
	m.up.landlock = kept_landlock(v->kept);
	r = kept_attach(v->kept, v->agent, m.up.restored);
	if (r < 0)
		return err_sys(&v->e, ERR_LOST, r, "answer as an agent");
	v->agent = -1;
	v->state = VMM_RUNS;
	vmm_say(&m);
	return 0;
}

static int advance(struct vmm *v)
{
	uint8_t seed[32];

	switch (v->state) {
	case VMM_BOOTS:
		if (!v->hello)
			return 0;
		if (v->start.role == VM_COLD) {
			v->state = VMM_LOADED;
			vmm_say(&(struct vm_msg){ .type = VM_LOADED });
			return 0;
		}
		if (sys_getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
			return err_set(&v->e, ERR_INTERNAL, -EIO, "no random numbers");
		return vmm_begin(v, seed);
	case VMM_RISES:
		return come_up(v);
	case VMM_WARMS:
		return vmm_warm_turn(v);
	case VMM_STOPS:
		return vmm_save_turn(v);
	case VMM_LOADED:
	case VMM_RUNS:
	case VMM_STAYS:
	case VMM_ENDED:
		break;
	}
	return 0;
}

/* QEMU stops a machine that KVM cannot run any further, or whose disk is full; that is an error here. */
static int check_goes(struct vmm *v)
{
	if (!v->machine.qmp.stopped || v->state == VMM_LOADED || v->state == VMM_STOPS || v->state == VMM_STAYS ||
	    v->state == VMM_ENDED || (v->join.id && v->join.flags & VM_JOIN_STILL))
		return 0;
	return err_set(&v->e, ERR_UNSUPPORTED, -EIO, "QEMU has stopped the virtual machine: %s",
		       v->start.accel == VM_KVM ? "KVM cannot run it, or its disk cannot be written" :
						  "its disk cannot be written");
}

static int loop(struct vmm *v)
{
	int r = 0;

	v->carry.other = on_message;
	v->carry.arg = v;
	while (r == 0 && v->state != VMM_ENDED) {
		struct pollfd extra[] = { { .fd = VMM_SIDE, .events = POLLIN },
					  { .fd = v->machine.console, .events = POLLIN },
					  { .fd = v->machine.qmp_fd, .events = POLLIN },
					  { .fd = v->warm, .events = POLLIN } };

		r = carry_turn(&v->carry, extra, ARRAY_LEN(extra), vmm_save_wait(v));
		if (v->machine.console >= 0 && (extra[1].revents || r == -EPIPE))
			read_console(v);
		if (r == 0)
			r = advance(v);
		if (r == 0 && v->state != VMM_ENDED && extra[2].revents)
			r = qmp_drain(&v->machine.qmp);
		if (r == 0)
			r = vmm_join_turn(v);
		if (r == 0)
			r = check_goes(v);
		if (r == 0 && v->state != VMM_ENDED && extra[0].revents)
			r = read_side(v);
	}
	return r;
}

/* The last complete line that QEMU or the guest's kernel has printed. */
static const char *last_line(struct vmm *v)
{
	char *line;

	while (v->said_len && strchr(" \r\n", v->said[v->said_len - 1]))
		v->said_len--;
	v->said[v->said_len < VMM_SAID ? v->said_len : VMM_SAID - 1] = '\0';
	line = strrchr(v->said, '\n');
	return line ? line + 1 : v->said;
}

/* Reports why the machine ends: to the warden if it waits for an answer, and to the log. */
static void last_words(struct vmm *v, int r)
{
	char line[160];

	if (!v->e.msg[0] || v->e.kind == ERR_LOST || v->unloadable) {
		if (v->machine.console >= 0)
			read_console(v);
		put_text(line, sizeof(line), last_line(v));
		if (line[0])
			err_set(&v->e, ERR_LOST, r, "%s: %s",
				v->unloadable ? "QEMU cannot load this state" : "the virtual machine has ended", line);
		else if (!v->e.msg[0])
			err_set(&v->e, ERR_LOST, r, "%s",
				r == -EPIPE	? "the virtual machine has ended" :
				r == -EBADMSG	? "protocol error from the guest" :
				r == -ETIMEDOUT ? "the guest does not respond" :
						  strerror(-r));
	}
	if (v->unloadable && (v->e.errnum == EIO || v->e.errnum == EPIPE))
		v->e.errnum = ESTALE; /* the state is the reason, not this machine */
	dprintf(STDERR_FILENO, "%s\n", v->e.msg);
	if (v->state != VMM_RUNS && v->state != VMM_STAYS)
		vmm_say_failed(0, &v->e);
}

static int first_message(struct vmm *v)
{
	static struct {
		struct vm_msg m;
		uint8_t spec[VM_SPEC_MAX];
	} in;
	int fds[FDS_MAX], r;
	size_t nfds = 0;
	ssize_t n = fd_recv(VMM_SIDE, &in, sizeof(in), fds, FDS_MAX, &nfds);

	if (n < (ssize_t)sizeof(in.m) || in.m.version != VM_SIDE_VERSION || in.m.type != VM_START ||
	    (size_t)n - sizeof(in.m) != in.m.start.spec_len)
		return err_set(&v->e, ERR_INTERNAL, -EPROTO, "the warden has another version");
	v->spec = in.spec;
	r = vmm_start(v, &in.m, fds, nfds);
	fd_close_many(fds, nfds);
	return r;
}

int main(void)
{
	static struct vmm v = { .state = VMM_BOOTS, .meta = -1, .agent = -1, .warm = -1, .save = { -1, -1, -1 } };
	int r;

	signal(SIGPIPE, SIG_IGN);
	sys_prctl(4 /* PR_SET_DUMPABLE */, 0, 0, 0, 0);
	sys_fcntl(VMM_SIDE, F_SETFD, FD_CLOEXEC);
	r = first_message(&v);
	if (r == 0)
		r = loop(&v);
	if (r == 0)
		return 0;
	if (r != -ECONNRESET)
		last_words(&v, r);
	return 1;
}
