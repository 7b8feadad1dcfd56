/* What kept.c and kept_state.c share. */
#pragma once
#include "vm/vmm/kept.h"

#define KEPT_EXECS 512U /* as many execs as an agent has */
#define KEPT_TTYS 120U /* terminals, at most: they use the guest's channels, which connections need, too */
#define KEPT_FAILS 32U

struct kept_exec {
	bool used;
	bool keep; /* it is kept until it is released, also after its end */
	bool tty, with_stdin, ended;
	bool dropped; /* its EXITED is not passed on, and ends its entry */
	uint32_t id;
	uint32_t conn; /* the connection that asked for it */
	uint32_t group; /* key of its exec group in the guest; 0: none */
	int fds[3]; /* with ->keep: the host's ends of stdout, stderr and stdin, or the terminal; -1: none */
	struct frame_exited exited;
};

/* An exec group: the host's number, which begins anew in a clone, and the key by which the guest knows it. */
struct kept_group {
	uint32_t number, key;
};

struct kept {
	struct carry *c;
	struct kept_exec exec[KEPT_EXECS];
	size_t top; /* places of ->exec from here on are unused */
	struct kept_group *group;
	size_t ngroup;
	uint32_t last_key;
	unsigned running, dropped, ttys; /* numbers of execs: running, dropped, with a terminal */
	bool ready, up, loaded;
	uint32_t landlock;
	struct frame_failed failed; /* the failure of the sandbox itself (id 0, before UP) */
	/* Frames that the present client must still get. */
	bool tell_ready, tell_up;
	uint32_t restored;
	uint32_t conn; /* number of the present client's connection */
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
