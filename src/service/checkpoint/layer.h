/*
 * Sealed layers: the warden has them and knows which sandboxes and layers are based on each; which others must be
 * kept is known here. An unused layer is removed, now or at a later sweep: deleted when it is known to be garbage,
 * moved to the quarantine when nothing is known of it. That knowledge outlives this process: a file "loose-ID" in
 * the folder of notes (store/note.h) is made before a layer is, and removed when a stored row names the layer or the
 * layer is gone.
 */
#pragma once
#include "service/service.h"

struct layer_book;

int layer_book_new(struct service *s, struct layer_book **ret, struct err *e);
/* Counted, by id. Holding a layer also keeps those below it. */
void layer_hold(struct service *s, const char *id);
void layer_drop(struct service *s, const char *id);
/*
 * A layer without a checkpoint of its own, a fork's or a deleted one's, counts for its tenant's quota of bytes as long
 * as anything is based on it: each sweep counts them anew. This one was made just now.
 */
void layer_loose(struct service *s, struct tenant *t, uint64_t bytes);
/* It is about to be made, or its row about to go: without a row it is garbage. Never fails: then it is put aside some day. */
void layer_may_go(struct service *s, const char *id);
/* A row that is stored names it: without that row it is something that was lost. */
void layer_must_stay(struct service *s, const char *id);
/* Something may have become garbage. */
void layer_sweep_soon(struct service *s);
/* There is a warden again: that it was waited for does not count as a long sweep. */
void layer_warden_back(struct service *s);
/* From the clock, four times a second while there is something to do. Whether there still is. */
bool layer_tick(struct service *s);
