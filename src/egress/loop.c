/* Waits for sockets and timers. */
#include "egress/loop.h"
#include "base/base.h"
#include "base/clock.h"

#include <unistd.h>

#define EVENTS 128

int loop_init(struct loop *l)
{
	*l = (struct loop){ .ep = epoll_create1(EPOLL_CLOEXEC), .now = clock_mono_ns() };
	return l->ep < 0 ? -errno : 0;
}

static void free_dead(struct loop *l)
{
	void *next;

	for (void *p = l->dead; p; p = next) {
		memcpy(&next, p, sizeof(next));
		free(p);
	}
	l->dead = NULL;
}

void loop_done(struct loop *l)
{
	free_dead(l);
	free(l->heap);
	fd_close(l->ep);
	*l = (struct loop){ .ep = -1 };
}

int loop_add(struct loop *l, struct loop_fd *f, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = f };

	return epoll_ctl(l->ep, EPOLL_CTL_ADD, f->fd, &e) < 0 ? -errno : 0;
}

int loop_change(struct loop *l, struct loop_fd *f, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = f };

	return epoll_ctl(l->ep, EPOLL_CTL_MOD, f->fd, &e) < 0 ? -errno : 0;
}

void loop_close(struct loop *l, struct loop_fd *f)
{
	(void)l; /* closing removes it from the epoll, since there is no other copy of the descriptor */
	fd_close(f->fd);
	f->fd = -1;
}

void loop_forget(struct loop *l, struct loop_fd *f)
{
	if (f->fd >= 0)
		epoll_ctl(l->ep, EPOLL_CTL_DEL, f->fd, NULL);
	f->fd = -1;
}

/* ---- timers ------------------------------------------------------------------------------------------------------ */

static void place(struct loop *l, uint32_t i, struct loop_timer *t)
{
	l->heap[i] = t;
	t->slot = i + 1;
}

static void up(struct loop *l, uint32_t i)
{
	struct loop_timer *t = l->heap[i];

	for (; i && l->heap[(i - 1) / 2]->at > t->at; i = (i - 1) / 2)
		place(l, i, l->heap[(i - 1) / 2]);
	place(l, i, t);
}

static void down(struct loop *l, uint32_t i)
{
	struct loop_timer *t = l->heap[i];

	for (;;) {
		uint32_t k = 2 * i + 1;

		if (k + 1 < l->timers && l->heap[k + 1]->at < l->heap[k]->at)
			k++;
		if (k >= l->timers || l->heap[k]->at >= t->at)
			break;
		place(l, i, l->heap[k]);
		i = k;
	}
	place(l, i, t);
}

int loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at)
{
	t->at = at;
	if (!t->slot) {
		if (l->timers == l->room) {
			uint32_t room = l->room ? 2 * l->room : 64;
			struct loop_timer **heap = realloc(l->heap, room * sizeof(struct loop_timer *));

			if (!heap)
				return -ENOMEM;
			l->heap = heap;
			l->room = room;
		}
		place(l, l->timers++, t);
	}
	up(l, t->slot - 1);
	down(l, t->slot - 1);
	return 0;
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
	uint32_t i = t->slot - 1;
	struct loop_timer *last;

	if (!t->slot)
		return;
	t->slot = 0;
	last = l->heap[--l->timers];
	if (last == t)
		return;
	place(l, i, last);
	up(l, i);
	down(l, last->slot - 1);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

void loop_bury(struct loop *l, void *memory)
{
	memcpy(memory, &l->dead, sizeof(l->dead));
	l->dead = memory;
}

static int patience(const struct loop *l, int most_ms)
{
	uint64_t now, ms;

	if (!l->timers || !most_ms)
		return most_ms;
	now = clock_mono_ns();
	if (l->heap[0]->at <= now)
		return 0;
	ms = (l->heap[0]->at - now + LOOP_MS - 1) / LOOP_MS;
	if (ms > INT32_MAX)
		ms = INT32_MAX;
	return most_ms >= 0 && (uint64_t)most_ms < ms ? most_ms : (int)ms;
}

int loop_turn(struct loop *l, int most_ms)
{
	struct epoll_event e[EVENTS];
	int n = epoll_wait(l->ep, e, EVENTS, patience(l, most_ms));

	if (n < 0 && errno != EINTR)
		return -errno;
	l->now = clock_mono_ns();
	for (int i = 0; i < n; i++) {
		struct loop_fd *f = e[i].data.ptr;

		if (f->fd >= 0)
			f->ready(f, e[i].events);
	}
	while (l->timers && l->heap[0]->at <= l->now) {
		struct loop_timer *t = l->heap[0];

		loop_timer_stop(l, t);
		t->due(t);
	}
	free_dead(l);
	return 0;
}
