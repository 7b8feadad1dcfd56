/*
 * One epoll and a heap of timers. A callback may close any descriptor and end any timer: an event that was already
 * fetched for a closed one is dropped, and memory given to loop_bury() lives until the turn is over.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

struct loop_fd {
	void (*ready)(struct loop_fd *f, uint32_t events);
	int fd; /* -1: none */
};

struct loop_timer {
	void (*due)(struct loop_timer *t);
	uint64_t at; /* CLOCK_MONOTONIC, ns */
	uint32_t slot; /* place in the heap + 1; 0: not set */
};

struct loop {
	int ep; /* -1 until loop_init() */
	uint64_t now; /* when this turn began */
	struct loop_timer **heap;
	uint32_t timers, room;
	void *dead; /* a list through the first word */
};

#define LOOP_MS 1000000ULL
#define LOOP_SEC 1000000000ULL

int loop_init(struct loop *l); /* 0 or -errno */
void loop_done(struct loop *l);

/* @events are added to EPOLLET. 0 or -errno. */
int loop_add(struct loop *l, struct loop_fd *f, uint32_t events);
int loop_change(struct loop *l, struct loop_fd *f, uint32_t events);
void loop_close(struct loop *l, struct loop_fd *f); /* closes ->fd */
void loop_forget(struct loop *l, struct loop_fd *f); /* ->fd stays open, and is no longer watched; ->fd is -1 then */

/* Sets or moves. 0, or -ENOMEM when it was not set before and there is no memory. */
int loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at);
void loop_timer_stop(struct loop *l, struct loop_timer *t);

void loop_bury(struct loop *l, void *memory); /* at least a pointer long; freed behind this turn */
/* Waits (not longer than @most_ms; -1: for ever), calls what is ready and what is due. 0 or -errno. */
int loop_turn(struct loop *l, int most_ms);
