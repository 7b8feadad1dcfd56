/*
 * cloche-guest: PID 1 of a virtual machine.
 *
 * Theory of operation. The kernel starts it from the initramfs. It boots (boot.c), sends HELLO on the serial port, and
 * gets the sandbox's spec. It then makes that sandbox as a host would, with the same engine: the image's filesystem as
 * the only layer, the machine's own disk for changes, control groups, a user namespace, and cloche-agent as its first
 * process. From then on it carries the agent's frames (vm/vmm/carry.h) and reports usage to the host. When the agent
 * ends or the port is cut, the machine ends.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "engine/kernel_memory/looks.h"
#include "vm/guest/guest.h"
#include "vm/vmm/side.h"

#include <signal.h>
#include <sys/reboot.h>
#include <time.h>
#include <unistd.h>

#define EPOCH 1
#define KEEP_FREE (16 * MIB) /* bytes of memory that are kept for this program and the agent */
#define LAST_TURNS 200
#define LAST_MS 10
#define STAT_NS 1000000000ULL
#define SETTLE_MS 15000
#define LATE_NS 100000000ULL

static_assert(sizeof(struct sandbox_spec) <= VM_SPEC_MAX, "the spec fits into a message");
static_assert(MUX_START_LEN + VM_SPEC_MAX <= MUX_PAYLOAD_MAX, "and that into one");

int guest_say_stat(struct guest *g)
{
	struct warden_stat s;
	struct mux_stat m;
	uint8_t out[MUX_STAT_LEN];

	if (!g->sandbox || warden_stat(g->warden, g->sandbox, &s) < 0)
		return 0;
	m = (struct mux_stat){
		.memory = s.group.memory,
		.memory_peak = s.group.memory_peak,
		.memory_files = s.group.memory_files,
		.oom_kills = s.group.oom_kills + g->squeeze.kills,
		.pids = s.group.pids,
		.pids_peak = s.group.pids_peak,
		.pids_refused = s.group.pids_refused,
		.cpu_usec = s.group.cpu_usec,
		.io_bytes = s.group.io_bytes,
		.disk_used = s.disk_used,
		.disk_size = s.disk_size,
		.inodes_used = s.inodes_used,
		.inodes_size = s.inodes_size,
	};
	/* If only the agent is left, the usage does not change. */
	g->watch = g->watch && m.pids > 1;
	g->used = m.memory;
	g->stat_ns = clock_mono_ns();
	mux_stat_encode(&m, out);
	return carry_say(&g->carry, MUX_STAT, 0, out, sizeof(out));
}

static int make_sandbox(struct guest *g, struct sandbox_spec *spec)
{
	const bool host = !strcmp(spec->image, "host");
	const struct warden_opts o = { .looker = &kernel_looker_threads,
				       .env = {
					       .agent = GUEST_AGENT,
					       .layers_program = GUEST_LAYERS,
					       .image_fill = image_fill_here,
					       .alone = &env_alone,
					       .one_shot = true,
					       .accounting = true,
					       .freezer = true,
					       .disk = g->places.disk,
					       .cache = host ? GUEST_DISK "/cache" : NULL,
					       .stored_image = !strcmp(spec->image, SPEC_SCRATCH),
					       /* into a read-only root the file cannot be written later */
					       .resolver = spec->flags & SPEC_READ_ONLY,
				       } };
	uint64_t left = boot_memory_left();
	int r;

	/*
	 * The machine is as large as was asked. In it, its kernel, we and the agent need a part; what is left is the
	 * sandbox's, so that it meets a limit of its own and not the end of the machine's memory.
	 */
	left = left > 2 * KEEP_FREE ? left - KEEP_FREE : left / 2;
	if (!spec->limits.memory || spec->limits.memory > left)
		spec->limits.memory = left;
	spec->limits.cpu_milli = 0;
	spec->limits.io_bps = 0;
	spec->flags |= SPEC_DISK;
	spec->flags &= ~(SPEC_TIERS | SPEC_MEMORY);
	r = host ? boot_host(&g->places, &g->e) : 0;
	if (r < 0)
		return r;
	if (!host)
		snprintf(spec->image, sizeof(spec->image), GUEST_IMAGE);
	r = warden_new(&o, &g->warden, &g->e);
	if (r == 0)
		r = warden_create(g->warden, spec, &g->sandbox, &g->e);
	if (r < 0)
		return r;
	g->spec = spec;
	g->carry.uid = warden_receipt(g->sandbox)->uid_base + spec->uid;
	g->carry.gid = warden_receipt(g->sandbox)->uid_base + spec->gid;
	g->carry.ctl = warden_sock(g->sandbox);
	g->carry.hooks = (struct carry_hooks){ .from_ctl = frames_from_agent, .to_ctl = frames_to_agent };
	g->carry.hook_arg = g;
	g->host = host;
	g->limit = spec->limits.memory;
	return spec->flags & SPEC_NET ? net_open(g, &g->e) : 0;
}

/*
 * Becomes quiet. A failure does not end the machine: it is reported to the host, and the machine continues. Frames for
 * the agent are handled first: a command that was sent and not started would be started again in each copy, also where
 * all commands are to end first.
 */
static int freeze_guest(struct guest *g)
{
	struct err e;
	int r = g->sandbox ? carry_settle(&g->carry, SETTLE_MS) : 0;

	if (r == 0 && g->sandbox)
		r = warden_freeze(g->warden, g->sandbox, &e);
	if (r < 0)
		warden_thaw(g->warden, g->sandbox, NULL);
	return r;
}

/* Sets the clock of a machine that was stopped for long, since its own clock has stopped as well. Never backwards. */
static void set_clock(const struct mux *m)
{
	const uint64_t real = mux_u32(m->payload) | (uint64_t)mux_u32(m->payload + 4) << 32;
	const struct timespec now = { .tv_sec = (time_t)(real / 1000000000ULL),
				      .tv_nsec = (long)(real % 1000000000ULL) };

	if (real > clock_real_ns() + LATE_NS && clock_settime(CLOCK_REALTIME, &now) < 0)
		dprintf(STDERR_FILENO, "cloche-guest: set the clock: %s\n", strerror(errno));
}

static int go_on(struct guest *g)
{
	return g->sandbox ? warden_thaw(g->warden, g->sandbox, &g->e) : 0;
}

static int resume(struct guest *g, const struct mux *m)
{
	struct mux_resume who;
	int done = mux_resume_decode(m, &who), r;

	if (done == 0)
		done = resume_as(g, &who, &g->e);
	if (done < 0)
		return done;
	g->watch = true;
	r = go_on(g);
	return r < 0 ? r : done;
}

static int on_message(void *arg, const struct mux *m)
{
	static struct sandbox_spec spec;
	struct guest *g = arg;
	struct mux_start start;
	const uint8_t *bytes;
	int r;

	switch (m->type) {
	case MUX_ASK:
		return guest_say_stat(g);
	case MUX_GROUP:
		return frames_group(g, m);
	case MUX_STEER:
		return net_steer(g, m);
	case MUX_QUIESCE:
		return freeze_guest(g);
	case MUX_GO_ON:
		set_clock(m);
		return go_on(g);
	case MUX_RESUME:
		return resume(g, m);
	default:
		break;
	}
	if (m->type != MUX_START || g->sandbox)
		return -EBADMSG;
	r = mux_start_decode(m, &start, &bytes);
	if (r < 0 || start.spec_len != sizeof(spec))
		return err_set(&g->e, ERR_INTERNAL, -EPROTO, "guest: it was built for another version of cloche");
	memcpy(&spec, bytes, sizeof(spec));
	r = boot_fresh(start.real_ns, start.seed, &g->e);
	return r < 0 ? r : make_sandbox(g, &spec);
}

static int hello(struct guest *g)
{
	uint8_t out[12] = { MUX_VERSION };
	uint64_t memory = boot_memory_left();

	for (unsigned i = 0; i < 8; i++)
		out[4 + i] = (uint8_t)(memory >> (8 * i));
	return carry_say(&g->carry, MUX_HELLO, 0, out, sizeof(out));
}

/* Sends what is left in the buffer, for a bounded time, then ends the machine. */
static _Noreturn void end(struct guest *g, int r)
{
	if (g->e.msg[0]) {
		dprintf(STDERR_FILENO, "cloche-guest: %s\n", g->e.msg);
		if (g->places.port >= 0)
			carry_say(&g->carry, MUX_FAILED, 0, g->e.msg, strlen(g->e.msg));
	} else if (r == -ECONNRESET) {
		guest_say_stat(g);
	}
	g->carry.ctl = -1;
	for (unsigned i = 0; g->places.port >= 0 && i < LAST_TURNS && !carry_flushed(&g->carry); i++)
		if (carry_turn(&g->carry, NULL, 0, LAST_MS) < 0)
			break;
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

static int turn(struct guest *g)
{
	struct pollfd net = { .fd = net_poll(g), .events = POLLIN };
	uint64_t now = clock_mono_ns(), next = g->stat_ns + STAT_NS;
	int r = 0;

	if (g->watch && !g->carry.still && now >= next) {
		r = guest_say_stat(g);
		squeeze_look(g, g->used);
		g->look = true;
	}
	if (r == 0 && g->look && !g->carry.still)
		r = net_denied(g);
	if (r == 0)
		r = carry_turn(&g->carry, &net, 1,
			       !g->watch   ? -1 :
			       now >= next ? 1000 :
					     (int)((next - now) / 1000000) + 1);
	return r == 0 && net.revents && !g->carry.still ? net_serve(g) : r;
}

int main(void)
{
	static struct guest g = { .places.port = -1 };
	int r;

	signal(SIGPIPE, SIG_IGN);
	r = boot(&g.places, &g.e);
	if (g.places.port < 0)
		end(&g, r);
	if (carry_init(&g.carry, CARRY_GUEST, g.places.port, -1, EPOCH) < 0)
		end(&g, -ENOMEM);
	if (r < 0)
		end(&g, r);
	g.carry.other = on_message;
	g.carry.arg = &g;
	r = hello(&g);
	while (r == 0)
		r = turn(&g);
	end(&g, r);
}
