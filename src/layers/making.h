/*
 * A layer in the making, in cloche-layers: its folder, and the work in progress. The warden freezes the sandbox, and
 * gives the layer its name when it is complete (layers/seal.c); the requests are those of layers/task.h.
 */
#pragma once
#include "layers/copy_pipeline.h"
#include "layers/digests.h"
#include "layers/flush.h"
#include "layers/layer_prealloc.h"
#include "layers/task.h"

#define MAKING_FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct making {
	/* Kept for the life of the process */
	int store;
	const int *stop; /* as in tree.h */
	struct copy_pipeline_spare *spare;
	struct layer_prealloc *prealloc;
	/* Of the current layer; -1 and NULL: none */
	struct layer_ask ask; /* BEGIN */
	int tmp, fs, links, mem, manifest;
	unsigned disks; /* copied so far */
	char *buf;
	struct flush *flush;
	struct copy_pipeline *pipeline;
	struct digests *digests;
};

void making_init(struct making *x, int store, const int *stop);
/* Gives up the layer in the making. */
void making_end(struct making *x);
/* Also frees what is kept for the next layer. */
void making_done(struct making *x);

/* All return 0 or -errno; -ECANCELED comes without a message. LAYER_FILL: @name has LAYER_NAME bytes. */
int making_fill(struct making *x, char *name);
int making_begin(struct making *x, const struct layer_ask *ask, struct err *e);
/* @writable is the caller's, and not used any more when this returns. */
int making_copy(struct making *x, int writable, struct err *e);
int making_anew(struct making *x, struct err *e);
/* @saved: what cloche-vmm has written, or -1. The caller's. */
int making_write(struct making *x, const struct layer_ask *ask, const int saved[static 2], struct layer_answer *ret);

/* --- making_join.c: lower layers become part of it --- */
int making_join(struct making *x, struct err *e);

/* --- making_memory.c: META and PAGES of a container, which cloche-dump has written --- */
int making_memory(struct making *x, const struct layer_ask *ask, struct memory_cuts *ret, struct err *e);

/* --- making_machine.c: META, PAGES and disks of a virtual machine --- */
int making_saved(struct making *x, const struct layer_ask *ask, const int saved[static 2], struct err *e);
/*
 * @fd is a disk, @copy its copy in another layer, if there is one, and @sums the sums of that. All are the caller's, as
 * are the two in @ret: -1, or new ones of copy and sums.
 */
int making_disk(struct making *x, int fd, int copy, int sums, int ret[static 2], struct err *e);

/* The kind of an error without a better message. */
enum err_kind making_kind(int r);
