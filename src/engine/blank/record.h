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

#define RECORD_VERSION 2U /* fields that an older warden did not know are zero in its records */
#define RECORD_FROZEN 1U
#define RECORD_RESTORING 2U /* its processes are still being restored: a warden that finds it ends the sandbox */
#define RECORD_STEERED 4U /* it was given a network while it ran, or that was begun */

#define RECORD_DISKS 14

struct record_vm {
	uint32_t own, cold; /* number of its own disks; 1: it was booted without a template */
	uint32_t next; /* the number of the next disk */
	uint32_t joined; /* layers whose disks became part of its own */
	uint32_t disk[RECORD_DISKS]; /* the numbers of its own disks */
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
	uint32_t cgroup_version, filter_len, idmapped, kvm; /* figures of the receipt, as are the next two */
	uint64_t disk, inodes; /* of the receipt, too */
	uint64_t spec_tenant;
	/* spec that a layer sealed from this sandbox will have, with ->image and ->layer */
	uint32_t spec_flags, layers;
	char image[SPEC_PATH];
	char layer[SPEC_LAYERS][ID_SIZE];
	/* of a virtual machine */
	uint8_t vm_key[32]; /* the key of its template */
	uint64_t vm_cpu_base;
	struct record_vm vm;
	uint32_t vm_side; /* VM_SIDE_VERSION of its cloche-vmm; 0 was written when that was 3 */
	uint32_t none;
	uint64_t cpu_base, throttled_base; /* as in struct cgroup */
	uint8_t unused[72];
};
static_assert(sizeof(struct record) == 1024, "no padding");

struct records {
	int fd; /* -1: sandboxes end with this warden */
	char boot[40];
};

/*
 * Makes the folder @dir when it is missing (its parent must be there). It must belong to us, and no other user may
 * write in it. Waits a moment for another warden that has it, then gives up: ERR_CONFLICT.
 */
int records_open(struct records *ret, const char *dir, struct err *e);
void records_done(struct records *r);
/* Writes @x at the place of its slot, after filling in version and boot. */
int records_write(const struct records *r, struct record *x);
/* Reads the record of @slot. 1: it is in *ret. 0: there is none of this version and boot. -errno. */
int records_read(const struct records *r, uint32_t slot, struct record *ret);
int records_clear(const struct records *r, uint32_t slot);
/* Replaces the list of disks in a machine's record. */
int records_vm(const struct records *r, uint32_t slot, const struct record_vm *vm);
int records_flag(const struct records *r, uint32_t slot, uint32_t flags);
int records_spec_flags(const struct records *r, uint32_t slot, uint32_t flags);
int records_limits(const struct records *r, uint32_t slot, uint64_t memory, uint32_t pids, uint32_t cpu_milli);
/* The number of slots that the file has room for. No slot from this number on has a record. */
uint32_t records_end(const struct records *r);

/* The start time of @pid, as in /proc/PID/stat; or -errno. */
int record_start(pid_t pid, uint64_t *ret);
