/*
 * Layers that were answered before they are safe on the disk: a fork needs its layer at once, and only for as long as
 * its sandboxes run, which no power cut leaves. Such a layer is complete and has its name, but its manifest is
 * provisional (MANIFEST_UNSETTLED): it has the files' sum, and for mem/meta and mem/pages the file's identity and time
 * of last change instead of sums. Settling checks that these still match, sums the files up, brings all to the disk and
 * writes the manifest.
 *
 * Anything persistent that is based on such a layer settles it first (settle_do). A warden that starts settles those of
 * this boot. An unsettled layer of an earlier boot may be half written, and nothing that was promised is based on it,
 * so it is removed.
 */
#pragma once
#include <stdbool.h>

#include "layers/manifest.h"

struct layer_children;
struct settles;

/* @children stay the caller's. */
struct settles *settles_new(struct layer_children *children);
/* No thread may be in a call. */
void settles_free(struct settles *s);

/* Whether it was made since the machine's last start. */
bool settle_this_boot(const struct manifest *m);

/* Adds a layer whose manifest @m is provisional, and which has its name. Any thread, as the functions below. */
int settle_add(struct settles *s, const struct manifest *m);
/*
 * Settles that layer now, or waits for the thread that does so. 0: it is settled, and *ret is its manifest. -EBADMSG:
 * it was changed. After a failure it fails for good, unless settle_passes(). -ESRCH: it is not, or not any more, in the
 * list.
 */
int settle_do(struct settles *s, const char *id, const int *stop, struct manifest *ret);
/*
 * Whether a result says nothing about the layer, as after a lack of memory: it stays unsettled, and the next caller
 * tries again.
 */
bool settle_passes(int result);
/*
 * Removes it from the list if it is settled or, with @gone, was removed. To be called when its own work item has come
 * back.
 */
void settle_forget(struct settles *s, const char *id, bool gone);
