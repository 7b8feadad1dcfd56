/*
 * The store of layers: the files that sandboxes had changed when they were sealed, for new sandboxes to be based on. It
 * is a folder that only root may enter, with one folder per layer, named by its id. It knows which sandboxes and layers
 * are based on each layer, so that none of those is removed. One thread; slow work is done by workers (layers/seal.h).
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

/*
 * Makes the folder when it is missing; it must belong to root, have mode 0700, and no link may be on its path. Returns
 * it.
 */
int layers_open_dir(const char *path, struct err *e);
/* @dir stays the caller's. Reads the store; half-made and half-removed folders are removed by @workers. */
int layers_new(int dir, struct workers *workers, struct layers **ret, struct err *e);
void layers_free(struct layers *l);
/* For code that compares or makes layers. */
struct watch *layers_watch(const struct layers *l);

/* The manifest of that layer, NULL when there is none. */
const struct manifest *layers_find(const struct layers *l, const char *id);
struct layer_facts {
	char id[MANIFEST_ID];
	unsigned users; /* sandboxes and layers that are based on it */
	bool bad; /* damaged: nothing may be based on it */
	const struct manifest *m; /* zeros when it cannot be read */
};
/* The next larger id after @id ("": the first). False: there is none. */
bool layers_next(const struct layers *l, const char *id, struct layer_facts *ret);

/*
 * Whether @spec may be based on the layers it names: all exist, each is based on the one before, and image and tenant
 * match.
 */
int layers_check(const struct layers *l, const struct sandbox_spec *spec, struct err *e);
/* The first layer of @spec whose files were not compared with its manifest yet, or have changed since; NULL: none. */
const char *layers_unverified(struct layers *l, const struct sandbox_spec *spec);
/* Whether all of them are known to be undamaged; to be called right after layers_unverified(). */
bool layers_good(const struct layers *l, const struct sandbox_spec *spec);
/* Notes the result of that comparison. */
void layers_verdict(struct layers *l, const char *id, bool good);

/* Counts the templates other than @key that the machines' layers of @tenant are based on, up to @max. */
unsigned layers_templates(const struct layers *l, uint64_t tenant, const uint8_t key[SHA256_SIZE], unsigned max);
/* Whether there is a machine's layer whose template's key begins with these bytes. */
bool layers_of_template(const struct layers *l, const uint8_t *key, size_t len);

/*
 * The result of settling a layer (layers/settle.h): it is @m now, or could not be settled; then nothing persistent may
 * be based on it.
 */
void layers_settled(struct layers *l, const struct manifest *m, int result);
/* 1: unsettled; 0: settled; -EIO: it can never be settled. */
int layers_unsettled(const struct layers *l, const char *id);

/* Adds or drops a use of the layers, by a sandbox or a seal under way. */
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

/* Adds a layer that was just made: its files are known to be undamaged. */
int layers_add(struct layers *l, const struct manifest *m, struct err *e);
/*
 * Moves an unknown layer to the folder "quarantine" of the store, for the administrator to look at and to delete.
 * Refused as layers_remove() is.
 */
#define LAYERS_QUARANTINE "quarantine"
int layers_put_aside(struct layers *l, const char *id, struct err *e);
/* Hides it at once and then removes it. ERR_CONFLICT while it is in use; -ESRCH when there is none. */
int layers_remove(struct layers *l, const char *id, struct err *e);
