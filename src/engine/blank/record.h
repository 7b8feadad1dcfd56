/*
 * What a warden that keeps its sandboxes writes down about each, so that the next one finds them again: a file with one
 * record of fixed size per slot, at the slot's place. Zeros are no record. Only root reads and writes it; all the same,
 * a record is believed only as far as the process it names is the one that was meant.
 */
#pragma once
#include <assert.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/id.h"
#include "engine/blank/slot.h"
#include "engine/spec.h"

#define RECORD_VERSION 2U /* what an older warden wrote has zeros where newer ones know more */
#define RECORD_FROZEN 1U
#define RECORD_RESTORING 2U /* not complete yet: a warden that finds it ends it */
#define RECORD_STEERED 4U /* it was given a way out while it ran, or that was begun */

#define RECORD_DISKS 14

struct record_vm {
	uint32_t own, cold; /* disks of its own; it has no template */
	uint32_t next; /* the number of the next disk */
	uint32_t joined; /* layers whose disks became part of its own */
	uint32_t disk[RECORD_DISKS]; /* numbers of its own */
};

struct record {
	uint32_t version;
	uint32_t slot;
	uint64_t handle;
	/* the agent's start time, as in /proc/PID/stat: its pid alone may be another process's by now */
	uint64_t start;
	uint32_t pid;
	uint32_t uid_base;
	uint32_t mask; /* cgroup controllers */
	uint32_t flags;
	uint64_t tenant;
	char boot[40]; /* which boot of the machine pid and start are of */
	uint64_t memory, io_bps;
	uint32_t pids, cpu_milli;
	uint32_t cgroup_version, filter_len, idmapped, kvm; /* of the receipt */
	uint64_t disk, inodes; /* likewise */
	uint64_t spec_tenant;
	uint32_t spec_flags, layers; /* what a layer sealed from it has to say */
	char image[SPEC_PATH];
	char layer[SPEC_LAYERS][ID_SIZE];
	/* of a virtual machine */
	uint8_t vm_key[32]; /* its template */
	uint64_t vm_cpu_base;
	struct record_vm vm;
	uint32_t vm_side; /* VM_SIDE_VERSION of its cloche-vmm; 0 was written when that was 3 */
	uint32_t none;
	uint64_t cpu_base, throttled_base; /* as in struct cgroup */
	uint8_t unused[72];
};
static_assert(sizeof(struct record) == 1024, "no padding");

struct records {
	int fd; /* -1: this warden keeps nothing */
	char boot[40];
};

/*
 * Makes the folder @dir when it is missing (its parent must be there). It must belong to us, and no other user may
 * write in it. Waits a moment for another warden that has it, then gives up: ERR_CONFLICT.
 */
int records_open(struct records *ret, const char *dir, struct err *e);
void records_done(struct records *r);
/* Fills version and boot. */
int records_write(const struct records *r, struct record *x);
/* 1 and *ret, or 0 when there is none (or none of this version and boot) at @slot, or -errno. */
int records_read(const struct records *r, uint32_t slot, struct record *ret);
int records_clear(const struct records *r, uint32_t slot);
/* A machine has other disks now. */
int records_vm(const struct records *r, uint32_t slot, const struct record_vm *vm);
int records_flag(const struct records *r, uint32_t slot, uint32_t flags);
int records_spec_flags(const struct records *r, uint32_t slot, uint32_t flags);
int records_limits(const struct records *r, uint32_t slot, uint64_t memory, uint32_t pids, uint32_t cpu_milli);
/* Slots that the file has room for: no record is behind. */
uint32_t records_end(const struct records *r);

/* When @pid was started, or -errno. */
int record_start(pid_t pid, uint64_t *ret);
