/* What the parts of sealing share: seal.c, seal_memory.c, seal_machine.c; and vm/host/chain.c, which a machine's disks come back to. */
#pragma once
#include <pthread.h>

#include "layers/copy_pipeline.h"
#include "layers/digests.h"
#include "layers/flush.h"
#include "layers/seal.h"
#include "memory/launch.h"

struct seal_impl {
	struct seal_source from;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool begun; /* by a worker */
	bool left; /* the sandbox */
	bool opened; /* seal_system(); atomic */
	int fd; /* SEAL_CLOSE */
	bool made; /* ->tmp_name is ours to remove */
	uint64_t promise; /* our part of ->from.promised */
	int tmp, fs, links; /* folders of the layer in the making */
	int manifest; /* its file, empty until it is written */
	int mem, table; /* with memory: its folder, and the agent's table */
	int saved[2]; /* of a machine: META and PAGES as cloche-vmm wrote them, and might go on to */
	enum seal_save save; /* of a machine: what is known of the one asked for */
	bool joined; /* likewise: and ->from.disk are those that are left */
	struct dump dump; /* under way */
	struct dump_source source;
	uint8_t pages_sum[SHA256_SIZE]; /* with ->source.sums: as cloche-dump told it, of what it wrote */
	char tmp_name[ID_SIZE + 8];
	char *buf;
	struct flush *flush;
	struct copy_pipeline *pipeline;
	struct digests *digests;
};

/* --- seal.c --- */
/* While the sandbox stands still. Refuses what would leave too little of the store's disk to others. */
int seal_room(struct seal *x);
int seal_copy_files(struct seal *x);
int seal_given_up(struct seal *x);
/* Nothing was copied yet. */
int seal_begin_anew(struct seal *x);
void seal_thaw(struct seal *x);

/* --- seal_memory.c --- */
/* Before the sandbox is stopped: what cloche-dump is given. */
int seal_memory_prepare(struct seal *x);
/* Files and memory of one instant; the sandbox runs, or is paused, as before when this returns. */
int seal_memory_copy(struct seal *x);
/* Until what cloche-dump writes is complete and makes sense. */
int seal_memory_finish(struct seal *x);

/* --- seal_machine.c: the same of a virtual machine --- */
int seal_machine_prepare(struct seal *x);
int seal_machine_copy(struct seal *x);
int seal_machine_finish(struct seal *x);
