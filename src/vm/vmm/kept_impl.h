/* Inside kept*.c. */
#pragma once
#include "vm/vmm/kept.h"

#define KEPT_EXECS 512U /* as many as an agent has */
#define KEPT_TTYS 120U /* terminals are the guest's channels, and those are also for connections */
#define KEPT_FAILS 32U

struct kept_exec {
	bool used;
	bool keep; /* stays, also when it has ended, until it is released */
	bool tty, with_stdin, ended;
	bool dropped; /* it is forgotten at its EXITED, which is not sent */
	uint32_t id;
	uint32_t conn; /* the connection that asked for it */
	uint32_t group; /* the guest's key for it, 0: none */
	int fds[3]; /* kept: stdout, stderr, stdin of the host, or the terminal; -1 = none */
	struct frame_exited exited;
};

/* The host's number of an exec group, and what the guest knows it by: the first begins anew in a clone. */
struct kept_group {
	uint32_t number, key;
};

struct kept {
	struct carry *c;
	struct kept_exec exec[KEPT_EXECS];
	size_t top; /* of ->exec: none is used from here on */
	struct kept_group *group;
	size_t ngroup;
	uint32_t last_key;
	unsigned running, dropped, ttys; /* execs */
	bool ready, up, loaded;
	uint32_t landlock;
	struct frame_failed failed; /* id 0, before UP */
	/* Frames that the most recent client has to get. */
	bool tell_ready, tell_up;
	uint32_t restored;
	uint32_t conn; /* counts them */
	size_t sync; /* the next exec to send; KEPT_EXECS + 1: none */
	struct {
		uint32_t id, stage, errnum;
	} fail[KEPT_FAILS];
	size_t nfail;
};

struct kept_exec *kept_find(struct kept *k, uint32_t id);
struct kept_exec *kept_place(struct kept *k); /* NULL: none */
void kept_drop(struct kept *k, struct kept_exec *x);
int kept_add_group(struct kept *k, uint32_t number, uint32_t key);
