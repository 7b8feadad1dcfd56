/*
 * Sandboxes whose processes are restored from a layer's memory: the agent gets RESTORE right behind KEEP, and the
 * sandbox is reported when the agent has answered that all processes run. Until then its record has RECORD_RESTORING,
 * and a warden that finds it ends it.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/step.h"
#include "base/sys.h"
#include "engine/blank/persist.h"
#include "layers/memory.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define RESTORED_NS (30 * 1000000000ULL)

/* One that waits for its agent's answer. */
struct restoring {
	struct restoring *next, **prev;
	struct warden_sandbox *sandbox;
	void *tag;
	uint64_t until;
	size_t len;
	uint8_t in[2048];
};

int restoring_open(struct warden *w, struct err *e)
{
	struct epoll_event in = { .events = EPOLLIN };
	int r = 0;

	w->done = epoll_create1(EPOLL_CLOEXEC);
	w->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	w->later = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (w->done < 0 || w->timer < 0 || w->later < 0 ||
	    epoll_ctl(w->done, EPOLL_CTL_ADD, workers_fd(w->workers), &in) < 0 ||
	    epoll_ctl(w->done, EPOLL_CTL_ADD, w->timer, &in) < 0 ||
	    epoll_ctl(w->done, EPOLL_CTL_ADD, w->later, &in) < 0)
		r = err_sys(e, ERR_EXHAUSTED, -errno, "wait for workers");
	return r;
}

void restoring_close(struct warden *w)
{
	fd_close_many((int[]){ w->done, w->timer, w->later }, 3);
}

static void tick(const struct warden *w)
{
	struct itimerspec t = { .it_value.tv_sec = !!w->restorings, .it_interval.tv_sec = !!w->restorings };
	uint64_t n;

	if (read(w->timer, &n, sizeof(n)) < 0)
		n = 0; /* it had not fired */
	timerfd_settime(w->timer, 0, &t, NULL);
}

void restoring_leave(struct warden *w, struct warden_sandbox *s)
{
	struct restoring *x = s->restoring;

	if (!x)
		return;
	s->restoring = NULL;
	LIST_REMOVE(x);
	epoll_ctl(w->done, EPOLL_CTL_DEL, s->blank.sock, NULL);
	free(x);
	tick(w);
}

/* Group i + 1 is the i-th exec's. */
static int make_groups(struct warden *w, struct warden_sandbox *s, uint32_t n, int *fds, struct err *e)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t number = 1;

		fds[i] = i ? groups_new(&s->groups, &w->env.cgroups, &s->blank.cgroup, blank_agent_uid(&s->blank),
					&number, e) :
			     TAKE_FD(s->blank.group);
		if (fds[i] < 0)
			return i ? fds[i] :
				   err_set(e, ERR_INTERNAL, -ENOENT, "the first exec group does not exist any longer");
		assert(number == i + 1);
	}
	return 0;
}

static int send_restore(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	int group[MEMORY_EXECS_MAX], fds[FRAME_FDS_MAX], r;
	struct frame_restore x = { 0 };
	struct frame_restore_fds at;
	struct layers_memory m;
	uint8_t out[FRAME_HEAD + 128];
	long n;

	r = layers_memory(w->layers, s->layer, s->layers, &m, e);
	if (r == 0)
		r = memory_fits(&m.head, s->memory, e);
	if (r < 0)
		return r;
	x.pages = m.npages;
	x.groups = s->blank.grouped ? m.execs : 0; /* a host without them: they have none here either */
	if (sys_getrandom(x.generation, sizeof(x.generation), 0) != sizeof(x.generation))
		return err_set(e, ERR_INTERNAL, -EIO, "draw random numbers");
	for (uint32_t i = 0; i < MEMORY_EXECS_MAX; i++)
		group[i] = -1;
	r = make_groups(w, s, x.groups, group, e);
	if (r == 0) {
		at = frame_restore_fds(&x);
		fds[0] = m.meta;
		memcpy(fds + at.pages, m.pages, m.npages * sizeof(int));
		if (x.groups)
			memcpy(fds + at.groups, group, x.groups * sizeof(int));
		n = frame_restore_encode(&x, out + FRAME_HEAD, sizeof(out) - FRAME_HEAD);
		assert(n > 0);
		frame_head(out, FRAME_RESTORE, (uint8_t)at.n, 0, (uint32_t)n);
		r = fd_send(s->blank.sock, out, FRAME_HEAD + (size_t)n, fds, at.n);
		if (r < 0)
			err_sys(e, ERR_LOST, r, "send the agent the restore command");
	}
	fd_close_many(group, MEMORY_EXECS_MAX);
	return r;
}

void warden_cuts(struct warden *w, const struct warden_sandbox *s, struct memory_cuts *ret)
{
	struct layers_memory m;
	struct err e = { 0 };
	int r = s->tier->machine ? 0 : layers_memory(w->layers, s->layer, s->layers, &m, &e);

	if (r == 0 && !s->tier->machine)
		r = memory_cuts(m.meta, &m.head, ret, &e);
	if (r < 0)
		log_error("the list of a sandbox's cut connections is incomplete: %s", e.msg);
}

int restoring_start(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	struct epoll_event in = { .events = EPOLLIN };
	struct restoring *x;
	int r = send_restore(w, s, e);

	if (r < 0)
		return r;
	x = calloc(1, sizeof(*x));
	if (!x)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to restore a sandbox");
	if (epoll_ctl(w->done, EPOLL_CTL_ADD, s->blank.sock, &in) < 0) {
		r = err_sys(e, ERR_EXHAUSTED, -errno, "wait for the agent");
		free(x);
		return r;
	}
	x->sandbox = s;
	x->until = clock_mono_ns() + RESTORED_NS;
	LIST_ADD(&w->restorings, x);
	s->restoring = x;
	tick(w);
	STEP("restore.told");
	return 0;
}

void warden_restoring(struct warden_sandbox *s, void *tag)
{
	if (s->restoring)
		s->restoring->tag = tag;
	if (s->tier->set_tag)
		s->tier->set_tag(s, tag);
}

static int refused(const struct frame *f, struct err *e)
{
	struct frame_failed x;

	if (frame_failed_decode(f, &x) < 0)
		return err_set(e, ERR_LOST, -EBADMSG, "restore: invalid answer from the agent");
	if (x.stage == FRAME_STAGE_RESTORE && x.text && x.text[0]) {
		char text[FRAME_FAILED_TEXT_MAX + 1];

		snprintf(text, sizeof(text), "%s", x.text);
		err_clean(text);
		return err_set(e, WHY_CANNOT_CARRY, x.errnum ? -(int)x.errnum : -EIO, "restore: %.200s", text);
	}
	return err_sys(e, WHY_CANNOT_CARRY, x.errnum ? -(int)x.errnum : -EIO, "restore: %s", frame_stage_text(x.stage));
}

/* 1: no result yet. 0: its processes run. Less: they never will. */
static int listen_to(struct restoring *x, struct warden_done *ret)
{
	struct frame f;
	ssize_t n;
	long used;

	n = recv(x->sandbox->blank.sock, x->in + x->len, sizeof(x->in) - x->len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return clock_mono_ns() < x->until ?
			       1 :
			       err_set(&ret->e, ERR_TIMEOUT, -ETIMEDOUT, "restore: the agent does not answer");
	if (n <= 0)
		return err_set(&ret->e, ERR_LOST, -EPIPE, "restore: the agent has ended");
	x->len += (size_t)n;
	while ((used = frame_decode(x->in, x->len, &f)) > 0) {
		if (f.type == FRAME_RESTORED)
			return frame_restored_decode(&f, &ret->restored) == 0 ?
				       0 :
				       err_set(&ret->e, ERR_LOST, -EBADMSG, "restore: invalid answer from the agent");
		if (f.type == FRAME_FAILED)
			return refused(&f, &ret->e);
		x->len -= (size_t)used;
		memmove(x->in, x->in + used, x->len);
	}
	if (used < 0 || x->len == sizeof(x->in))
		return err_set(&ret->e, ERR_LOST, -EBADMSG, "restore: protocol error from the agent");
	return 1;
}

/* Gives the agent a new socket for the next client: the frames of this one have been read, as far as they matter. */
static int hand_over(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	int sock, r = persist_attach(&s->blank, &sock, e);

	if (r < 0)
		return r;
	fd_close(s->blank.sock);
	s->blank.sock = sock;
	STEP("restore.done");
	r = records_flag(&w->env.records, s->blank.slot, 0);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "write the sandbox's record") : 0;
}

bool restoring_done(struct warden *w, struct warden_done *ret)
{
	struct restoring *next;
	uint64_t fired;

	if (!w->restorings)
		return false;
	if (read(w->timer, &fired, sizeof(fired)) < 0)
		fired = 0; /* then it is one of the sockets */
	for (struct restoring *x = w->restorings; x; x = next) {
		struct warden_sandbox *s = x->sandbox;
		int r;

		next = x->next;
		*ret = (struct warden_done){ .what = WARDEN_DONE_RESTORED, .tag = x->tag, .sandbox = s };
		r = listen_to(x, ret);
		if (r == 1)
			continue;
		restoring_leave(w, s);
		if (r == 0)
			r = hand_over(w, s, &ret->e);
		if (r == 0) {
			s->receipt.restored = ret->restored.done | WARDEN_RESTORED;
		} else {
			ret->sandbox = NULL;
			warden_destroy(w, s, NULL);
		}
		ret->result = r;
		return true;
	}
	return false;
}
