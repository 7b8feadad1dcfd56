/*
 * What the parts of sealing share: seal.c, seal_memory.c, seal_machine.c; and vm/host/chain.c, to which a machine's
 * disks are returned.
 */
#pragma once
#include <pthread.h>

#include "layers/children.h"
#include "layers/seal.h"
#include "memory/launch.h"

struct seal_impl {
	struct seal_source from;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool begun; /* a worker has started it */
	bool left; /* the sandbox is not needed any more */
	bool opened; /* atomic: seal_system() was called */
	int fd; /* SEAL_CLOSE: what to close */
	struct layer_child *child; /* the process that makes the layer */
	bool made; /* the folder ->tmp_name exists, and is to be removed */
	uint64_t promise; /* our part of ->from.promised */
	int mem, table; /* with memory: its folder "mem", and the agent's table */
	int saved[2]; /* of a machine: META and PAGES as cloche-vmm wrote them; it may still write to them */
	enum seal_save save; /* of a machine: the result of the save */
	bool joined; /* likewise: its disks are joined, and ->from.disk are those that remain */
	struct dump dump; /* the cloche-dump under way */
	struct dump_source source;
	uint8_t pages_sum[SHA256_SIZE]; /* with ->source.sums: reported by cloche-dump */
	char tmp_name[ID_SIZE + 8];
};

/* --- seal.c --- */
/* Called while the sandbox is stopped. Refuses a layer that would leave too little of the store's disk to others. */
int seal_room(struct seal *x);
int seal_copy_files(struct seal *x);
int seal_given_up(struct seal *x);
/* Starts again with an empty layer. */
int seal_begin_anew(struct seal *x);
void seal_thaw(struct seal *x);

/* Sends a request to ->child. Up to @max descriptors in @ret_fds, -1 for the others. After an error ->e says why. */
int seal_ask(struct seal *x, const struct layer_ask *ask, const int *fds, unsigned n, struct layer_answer *ret,
	     int *ret_fds, unsigned max);

/* --- seal_memory.c --- */
/* Called before the sandbox is stopped: prepares what cloche-dump is given. */
int seal_memory_prepare(struct seal *x);
/* Copies files and memory of one instant; the sandbox runs, or is paused, as before when this returns. */
int seal_memory_copy(struct seal *x);
/* Waits until what cloche-dump writes is complete. */
int seal_memory_finish(struct seal *x);
/* Lists the layers that its memory may refer to. */
void seal_memory_ancestors(const struct seal *x, struct layer_ask *ask);

/* --- seal_machine.c: the same for a virtual machine --- */
int seal_machine_copy(struct seal *x);
/* Copies its disks into the layer. */
int seal_machine_finish(struct seal *x);
