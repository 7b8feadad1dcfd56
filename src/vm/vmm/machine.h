/* QEMU's process and its monitor: starting, loading a state, stopping, saving the state; its chain of disks. */
#pragma once
#include <stdbool.h>

#include "base/err.h"
#include "vm/vmm/qemu.h"
#include "vm/vmm/qmp.h"

/* A disk of the chain. */
struct machine_disk {
	uint32_t number; /* its number in messages of the warden */
	uint32_t set; /* number of its descriptor set in QEMU */
	bool given; /* QEMU was started with it */
};

struct machine {
	/* the descriptors in it are the caller's, except ->port, ->console and ->qmp, which are QEMU's ends */
	struct qemu_opts opts;
	pid_t pid; /* 0: none */
	int port, console, qmp_fd; /* our ends; those of port and monitor do not block */
	struct qmp qmp;
	char version[QMP_VERSION]; /* the version of QEMU */
	struct machine_disk chain[VM_CHAIN_MAX]; /* oldest first; the last is written */
	size_t disks;
	uint32_t sets; /* number of descriptor sets that were given over the monitor */
	struct machine_disk next; /* the overlay that is prepared */
	bool prepared;
	uint32_t old_set; /* an unused descriptor set that is still to be removed; 0: none */
	size_t join; /* index in ->chain: the disks above it are being joined; 0 while ->joins is false */
	bool joins;
};

/*
 * Starts QEMU with ->opts, which the caller has filled in except for the sockets and the clock. Waits until the monitor
 * answers. The machine runs then, unless it is a clone.
 */
int machine_start(struct machine *m, struct err *e);
/* Loads a clone's device state. After that the machine is complete, and stopped. */
int machine_load(struct machine *m, const void *state, size_t len, struct err *e);
int machine_stop(struct machine *m, struct err *e);
int machine_go(struct machine *m, struct err *e);
/* Saves the device state in *ret, which the caller frees. Only while the machine is stopped. */
int machine_state(struct machine *m, uint8_t **ret, size_t *ret_len, struct err *e);
/*
 * Prepares empty @disk as the chain's next one; _switch puts it on top, only while the machine is stopped; _drop gives
 * it up, while it runs.
 */
int machine_overlay(struct machine *m, uint32_t number, int disk, struct err *e);
int machine_overlay_switch(struct machine *m, struct err *e);
void machine_overlay_drop(struct machine *m);
/*
 * Begins to copy the content of the disks above number @base into the top one; the machine may run meanwhile. 1: there
 * is nothing to do. Then call machine_joined() until it is not 0. 1: it is done, and the other disks are closed;
 * negative: it failed, and nothing has changed.
 */
int machine_join(struct machine *m, uint32_t base, struct err *e);
int machine_joined(struct machine *m, struct err *e);
uint32_t machine_top(const struct machine *m); /* number of the top disk */
/*
 * Ends QEMU and waits for its end. 0: it ended by itself, so all its data is written. Accepts a machine that was never
 * started.
 */
int machine_end(struct machine *m);

/* x86: how fast the processor counts, in kHz, between two looks; 0 elsewhere. */
struct counted {
	uint64_t ns, count;
};
void counted_look(struct counted *ret);
uint32_t counted_khz(const struct counted *from, const struct counted *to);
