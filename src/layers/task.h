/*
 * Requests to cloche-layers about the store, and its answers: one message each, over a socket. Its first argument
 * decides what it may do: "diff" (layers/diff_task.h), "check" or "make".
 *
 * A layer is made by several requests to one process, in this order: BEGIN, COPY while the sandbox is frozen, ANEW and
 * COPY if that is to be repeated, DISK for each disk of a machine, WRITE. Until WRITE has been answered the layer is a
 * folder with another name, which the warden removes when anything fails. FILL prepares the next one.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/sha256.h"
#include "engine/spec.h"
#include "layers/manifest.h"
#include "layers/memory.h"
#include "proto/memory.h"

/* Places of descriptors from SPAWN_FIRST on. */
enum layer_place { LAYER_CONTROL, LAYER_STORE, LAYER_PLACES };

enum layer_op {
	LAYER_VERIFY = 1, /* verifies the layer ->m */
	LAYER_SETTLE, /* likewise; answered with its manifest */
	LAYER_FILL, /* gives up the layer in the making; answered with the ->name of a folder that was made ahead */
	LAYER_BEGIN, /* with LAYER_MEMORY answered with a descriptor of the folder "mem" */
	LAYER_COPY, /* with a descriptor of the writable layer */
	LAYER_ANEW, /* as BEGIN, to start again */
	/* answered with descriptors of its copy in the layer and of the copy's sums, if these are not the given ones */
	LAYER_DISK,
	LAYER_WRITE, /* answered with the manifest, and the connections that were cut */
};

/* Flags of BEGIN */
#define LAYER_MEMORY 1U
#define LAYER_MACHINE 2U /* with the disks and the memory of a virtual machine */
#define LAYER_SOON 4U /* the layer stays unsettled (layers/settle.h) */
/* flag of WRITE: the sum of the pages file is given */
#define LAYER_SUMS 8U

#define LAYER_NAME (ID_SIZE + 15)

struct layer_ask {
	uint32_t op, flags;
	uint64_t boot; /* SETTLE, WRITE: mark_boot() */
	char name[LAYER_NAME]; /* BEGIN: the name of the layer's folder until it is complete */
	uint32_t uid_base, below; /* BEGIN: as in struct seal_source */
	uint32_t joins; /* BEGIN: layers that become part of it, the newest first */
	char join[SPEC_LAYERS][ID_SIZE];
	/* WRITE */
	uint32_t ancestors; /* layers that its memory may refer to; the first is the one that it was restored from */
	char ancestor[MEM_PAGE_FILES][ID_SIZE];
	/*
	 * limit of its memory; of a machine: the size of its memory. With descriptors of what cloche-vmm has saved:
	 * META, PAGES
	 */
	uint64_t limit;
	uint8_t sum[SHA256_SIZE]; /* of the pages file; of a machine: the key of its template */
	struct manifest m;
};

struct layer_answer {
	int32_t result; /* 0 or -errno */
	char name[LAYER_NAME];
	struct err e; /* after an error; may be empty */
	struct manifest m;
	struct memory_cuts cuts;
};
