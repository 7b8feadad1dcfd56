/* The members of a checkpoint: for the rooms of service/, which share them. Others use the functions of checkpoint.h. */
#pragma once
#include "service/checkpoint/checkpoint.h"
#include "service/sandbox/struct.h"

struct checkpoint {
	struct service *service;
	char id[ID_SIZE];
	struct tenant *tenant;
	char sandbox[ID_SIZE]; /* the sandbox it is of, which may be gone */
	char sandbox_name[NAME_MAX_LEN + 1];
	char name[NAME_MAX_LEN + 1];
	char label[LABEL_MAX + 1];
	struct kv metadata;
	char parent[ID_SIZE]; /* the checkpoint that sandbox came from, "" = none */
	/* ->layers and ->layer: what a sandbox from it is based on, its own layer as the last */
	struct sandbox_spec *chain;
	uint32_t image_layers; /* as of a request: how many of ->chain->layer[] are its image's */
	char *config; /* JSON: what a create takes, without name and key */
	bool memory;
	char *names; /* behind its synthetic addresses, or NULL */
	char *execs; /* then: JSON, those that ran (service/exec/exec.h) */
	char *cut; /* JSON: connections to the outside that its processes do not have any more, or NULL */
	char *refused; /* why it has no memory although it was asked for; NULL = it was not */
	uint64_t size, memory_size, files, pause_ns, created_ns;
	uint8_t sum[32];
	enum network_request network; /* as it was asked for */
	bool soon; /* its layer is safe on the disk only a moment after it is there */
	bool listed; /* in the store */
	bool held; /* its layer is */
	bool damaged;
	bool seen; /* by the sweep under way */
	bool counted; /* in its tenant's quotas: with ->size */
	char *image_held; /* of service->image_hold(), or NULL */
	unsigned refs;
};

/* It belongs to a template, and is not listed. */
static inline bool checkpoint_hidden(const struct checkpoint *c)
{
	return c->name[0] == '.';
}
