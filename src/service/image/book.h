/* Shared by the files of this folder. */
#pragma once
#include "base/map.h"
#include "service/image/struct.h"
#include "service/service.h"
#include "service/state/turn.h"

struct image_book {
	struct map images; /* by "tenant/name" */
	struct map chains; /* by chain id */
	struct map operations; /* by id: service/image/operation.c */
	struct map uses; /* chains that a tenant needs: service/image/usage.c */
	struct map blobs; /* complete ones, by the name of their file: service/image/blob_store.c */
	struct map works; /* layers in the making, by chain id: service/image/layer.c */
	unsigned in_memory; /* layers that are unpacked in memory: service/image/layer.c */
	bool again; /* chains that only work under way keeps: to be swept when it is over */
	struct turn_wait sweep;
};
