/*
 * The network of a sandbox: linux/steer.h describes what is done, and docs/design/0010-egress.md why. All of it happens
 * in the sandbox's network namespace, which this thread enters for a moment. The namespace belongs to the warden's user
 * namespace, so that no process inside has rights over it.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/blank/persist.h"
#include "engine/blank/record.h"
#include "linux/diag.h"
#include "linux/steer.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#define WHO_PAUSE_NS 2000000000ULL

/* A sandbox taken over has no descriptor of its namespace here; its first process leads there as well. */
static int enter(const struct blank *s, struct err *e)
{
	int r = sys_setns(s->net >= 0 ? s->net : s->pidfd, CLONE_NEWNET);

	return r < 0 ? err_sys(e, r == -ESRCH ? ERR_LOST : ERR_INTERNAL, r, "enter the sandbox's network namespace") :
		       0;
}

/* Without root the thread cannot return, and need not: see engine/blank/blank.c. */
static int leave(const struct env *v, int r, struct err *e)
{
	int back = v->rootless ? 0 : sys_setns(v->net, CLONE_NEWNET);

	if (back == 0)
		return r;
	log_error("cannot return to the host's network namespace: errno %d", -back);
	return r < 0 ? r : err_sys(e, ERR_INTERNAL, back, "return to the host's network namespace");
}

static int change(struct warden *w, const struct blank *s, const struct sandbox_spec *spec, int way[STEER_SOCKETS],
		  struct err *e)
{
	const bool net = spec->flags & SPEC_NET;
	int late = -1, r;

	if (!net)
		r = steer_down(&late, e);
	else if (s->steered)
		r = steer_change(&spec->net, &late, e);
	else
		r = steer_up(&spec->net, e);
	if (r == 0 && net && !s->steered)
		r = steer_sockets(way, e);
	seal_close(w->workers, late); /* closing it may block */
	return r;
}

int net_fit(struct warden *w, struct blank *s, const struct sandbox_spec *spec, struct err *e)
{
	const bool net = spec->flags & SPEC_NET;
	int way[STEER_SOCKETS] = { -1, -1, -1 }, r;

	if (net == s->steered && (!net || steer_same(&s->rules, &spec->net)))
		return 0;
	/* The sockets were not handed out yet, so closing them closes them for good. */
	if (!net)
		fd_close_many(s->way, STEER_SOCKETS);
	r = enter(s, e);
	if (r < 0)
		return r;
	r = leave(&w->env, change(w, s, spec, way, e), e);
	if (r < 0) {
		fd_close_many(way, STEER_SOCKETS);
		return r;
	}
	if (net && !s->steered)
		memcpy(s->way, way, sizeof(way));
	s->steered = net;
	if (net)
		s->rules = spec->net;
	return 0;
}

void warden_net_sockets(struct warden_sandbox *s, int ret[STEER_SOCKETS])
{
	for (unsigned i = 0; i < STEER_SOCKETS; i++)
		ret[i] = TAKE_FD(s->blank.way[i]);
}

/* Written before the change: a new warden that reads the record knows that the namespace may be changed. */
static int note_late(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	uint32_t flags = RECORD_STEERED | (s->frozen ? RECORD_FROZEN : 0);
	int r;

	persist_settle(&s->blank);
	r = s->blank.recorded ? records_flag(&w->env.records, s->blank.slot, flags) : 0;
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "write the sandbox's record") : 0;
}

/*
 * Gives a network to a sandbox without one. A failure half-way is harmless: the sockets were not handed out, and the
 * next attempt removes what is there first.
 */
static int steer_late(struct warden_sandbox *s, const struct steer_rules *rules, int *ret_sockets, struct err *e)
{
	int r = steer_sockets(ret_sockets, e);

	if (r < 0)
		return r;
	if (s->late)
		steer_down(NULL, NULL);
	s->late = true;
	r = steer_up(rules, e);
	if (r < 0) {
		fd_close_many(ret_sockets, STEER_SOCKETS);
		steer_down(NULL, NULL);
		return r;
	}
	s->blank.steered = true;
	s->blank.rules = *rules;
	return 0;
}

static int give(struct warden *w, struct warden_sandbox *s, const struct steer_rules *rules, int *ret_sockets,
		struct err *e)
{
	int late = -1, r;

	if (!s->blank.steered) {
		r = note_late(w, s, e);
		if (r == 0)
			r = enter(&s->blank, e);
		return r < 0 ? r : leave(&w->env, steer_late(s, rules, ret_sockets, e), e);
	}
	r = enter(&s->blank, e);
	if (r < 0)
		return r;
	/* Sockets first: they can fail while another process has the old ones, and then nothing has changed. */
	if (ret_sockets)
		r = steer_sockets(ret_sockets, e);
	if (r == 0) {
		r = steer_change(rules, &late, e);
		if (r < 0 && s->late) { /* the warden that gave it a network died half-way */
			steer_down(NULL, NULL);
			r = steer_up(rules, e);
		}
		if (r < 0 && ret_sockets)
			fd_close_many(ret_sockets, STEER_SOCKETS);
	}
	if (r == 0)
		s->blank.rules = *rules;
	seal_close(w->workers, late); /* closing it may block */
	return leave(&w->env, r, e);
}

int warden_net(struct warden *w, struct warden_sandbox *s, const struct steer_rules *rules, int *ret_sockets,
	       struct err *e)
{
	static const struct steer_rules any = { .mode = STEER_OPEN };
	const bool had = s->blank.steered;
	int r = tier_needs(s->tier, TIER_NETWORK, e);

	if (r == 0)
		r = steer_check(rules, e);
	if (r == 0 && !had && !ret_sockets)
		r = err_advise(e, ERR_CONFLICT, -ENETDOWN, "request its sockets, too",
			       "the sandbox was made without a network");
	/* In a machine there is a second one, which only leads to this one. */
	if (r == 0 && s->tier->steer)
		r = s->tier->steer(s, rules, e);
	if (r < 0)
		return r;
	r = give(w, s, rules, ret_sockets, e);
	if (r < 0 && s->tier->steer)
		s->tier->steer(s, had ? &any : NULL, NULL); /* here it is decided anyhow */
	return r;
}

int warden_socket(struct warden *w, struct warden_sandbox *s, unsigned family, int *ret, struct err *e)
{
	AUTO_CLOSE int fd = -1;
	int r = tier_needs(s->tier, TIER_NETWORK, e);

	if (r < 0)
		return r;
	if (s->tier->machine) /* its processes have a kernel of their own, which only its agent reaches */
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "the network of a virtual machine cannot be entered");
	r = enter(&s->blank, e);
	if (r < 0)
		return r;
	fd = socket(family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
	r = fd < 0 ? err_sys(e, ERR_EXHAUSTED, -errno, "make a socket inside") : 0;
	r = leave(&w->env, r, e);
	if (r == 0)
		*ret = TAKE_FD(fd);
	return r;
}

int warden_who(struct warden *w, struct warden_sandbox *s, const struct warden_who *who, struct socket_owner *ret,
	       struct err *e)
{
	struct diag_flow c = {
		.family = who->family,
		.udp = who->udp,
		.local_port = who->client_port,
		.remote_port = who->port,
	};
	uint64_t inode = 0;
	int r;

	memcpy(c.local, who->client, sizeof(c.local));
	memcpy(c.remote, who->addr, sizeof(c.remote));
	*ret = (struct socket_owner){ 0 };
	if (s->tier->machine || s->tier->lacks & TIER_NETWORK)
		return 0; /* the owner that the host sees is cloche-vmm, or a process of the host */
	r = enter(&s->blank, e);
	if (r < 0)
		return r;
	r = leave(&w->env, diag_inode(&c, &inode, e), e);
	if (r == -ENOENT)
		return 0;
	/* A sandbox that makes this slow, with processes and descriptors without number, is not looked at so soon again. */
	if (r == 0 && inode && clock_mono_ns() >= s->no_who && !kernel_watch_owner(w->kernel, s->blank.pid, inode, ret))
		s->no_who = clock_mono_ns() + WHO_PAUSE_NS;
	return r;
}

int warden_denied(struct warden *w, struct warden_sandbox *s, struct steer_denied ret[STEER_DENIED], struct err *e)
{
	int r;

	if (!s->blank.steered)
		return 0;
	r = enter(&s->blank, e);
	return r < 0 ? r : leave(&w->env, steer_denied(ret, e), e);
}
