/*
 * The store of layers: what sandboxes had changed when they were sealed, for others to stand on. A folder that only
 * root may enter; one folder per layer, named by its id. Who stands on what is known here, so that nothing is taken
 * away from under anybody. One thread; what takes long goes to workers (layers/seal.h).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "engine/work.h"
#include "layers/manifest.h"
#include "proto/memory.h"

struct layers;
struct watch;

/* Makes the folder when it is missing; it must be root's own, mode 0700, and no link on the way. Returns it. */
int layers_open_dir(const char *path, struct err *e);
/* @dir stays the caller's. Reads what is there; what is half-made or half-removed is removed by @workers. */
int layers_new(int dir, struct workers *workers, struct layers **ret, struct err *e);
void layers_free(struct layers *l);
/* For who compares layers, or makes them. */
struct watch *layers_watch(const struct layers *l);

/* The manifest of that layer, NULL when there is none. */
const struct manifest *layers_find(const struct layers *l, const char *id);
struct layer_facts {
	char id[MANIFEST_ID];
	unsigned users; /* who stands on it, sandboxes and layers */
	bool bad; /* it cannot be believed: nobody may stand on it */
	const struct manifest *m; /* zeros when it cannot be read */
};
/* The next larger id after @id ("": the first). False: there is none. */
bool layers_next(const struct layers *l, const char *id, struct layer_facts *ret);

/* Whether @spec may stand on the layers it names: all there, each on the one before, of this image and tenant. */
int layers_check(const struct layers *l, const struct sandbox_spec *spec, struct err *e);
/* The first layer of @spec whose files were not compared with its manifest yet, or have changed since; NULL: none. */
const char *layers_unverified(struct layers *l, const struct sandbox_spec *spec);
/* Whether all of them are known to be right; layers_unverified() has just looked. */
bool layers_good(const struct layers *l, const struct sandbox_spec *spec);
/* What came of that comparison. */
void layers_verdict(struct layers *l, const char *id, bool good);

/* How many templates other than @key the machines' layers of @tenant stand on; no more than @max are counted. */
unsigned layers_templates(const struct layers *l, uint64_t tenant, const uint8_t key[SHA256_SIZE], unsigned max);
/* Whether there is a machine's layer whose template's key begins with these bytes. */
bool layers_of_template(const struct layers *l, const uint8_t *key, size_t len);

/* An unsettled layer (layers/settle.h) is @m now, or could not be settled: then nothing that has to last may stand on it. */
void layers_settled(struct layers *l, const struct manifest *m, int result);
/* 1: it is unsettled; 0: it is not; -EIO: and never will be. */
int layers_unsettled(const struct layers *l, const char *id);

/* A sandbox begins or ends to stand on them, or a seal under way needs them. */
void layers_hold(struct layers *l, const char (*ids)[ID_SIZE], uint32_t n);
void layers_drop(struct layers *l, const char (*ids)[ID_SIZE], uint32_t n);

/* The memory of the last of @ids, for an agent. Descriptors stay the store's, good until it is called again. */
struct layers_memory {
	int meta;
	int pages[MEM_PAGE_FILES];
	uint32_t npages, execs;
	struct mem_head head;
};
int layers_memory(struct layers *l, const char (*ids)[ID_SIZE], uint32_t n, struct layers_memory *ret, struct err *e);

/* One that was just made: its files are known to be right. */
int layers_add(struct layers *l, const struct manifest *m, struct err *e);
/*
 * Nobody knows it: it is moved to the folder "quarantine" of the store, for people to look at and to delete. Refused as
 * layers_remove() is.
 */
#define LAYERS_QUARANTINE "quarantine"
int layers_put_aside(struct layers *l, const char *id, struct err *e);
/* Hidden at once and then removed. ERR_CONFLICT while anybody stands on it; -ESRCH when there is none. */
int layers_remove(struct layers *l, const char *id, struct err *e);
