/* QEMU's process and its monitor: starting, loading a state, standing still, giving the state away. */
#pragma once
#include "base/err.h"
#include "vm/qemu.h"
#include "vm/qmp.h"

struct machine {
	struct qemu_opts opts; /* its descriptors are the caller's, but ->port, ->console and ->qmp, which are QEMU's ends */
	pid_t pid; /* 0: none */
	int port, console, qmp_fd; /* ours; the port and the monitor do not block */
	struct qmp qmp;
	char version[QMP_VERSION]; /* QEMU's */
	size_t chain; /* disks now, the writable one included */
	uint32_t sets; /* descriptors given over the monitor */
	int next; /* the overlay that is prepared, as a set; -1: none */
};

/* ->opts is filled but for the sockets and the clock. Waits until the monitor answers; the machine runs unless it is a clone. */
int machine_start(struct machine *m, struct err *e);
/* A clone's device state. Then it stands still, complete. */
int machine_load(struct machine *m, const void *state, size_t len, struct err *e);
int machine_stop(struct machine *m, struct err *e);
int machine_go(struct machine *m, struct err *e);
/* While it stands: its device state, to be freed. */
int machine_state(struct machine *m, uint8_t **ret, size_t *ret_len, struct err *e);
/* Makes empty @disk ready to be the chain's next one; _switch, while it stands, makes it that; _drop forgets it. */
int machine_overlay(struct machine *m, int disk, struct err *e);
int machine_overlay_switch(struct machine *m, struct err *e);
void machine_overlay_drop(struct machine *m);
/* Ends it and waits for that: all it had to write is written when it ended by itself (0). Also of one that never started. */
int machine_end(struct machine *m);

/* x86: how fast the processor counts, in kHz, between two looks; 0 elsewhere. */
struct counted {
	uint64_t ns, count;
};
void counted_look(struct counted *ret);
uint32_t counted_khz(const struct counted *from, const struct counted *to);
