/*
 * Layers that were answered before they are safe on the disk: a fork needs its layer at once, and needs it only for as long as
 * its sandboxes run, which no power cut leaves. Such a layer is complete and under its name, but its manifest is a
 * provisional one (MANIFEST_UNSETTLED): it has the files' sum, and of mem/meta and mem/pages which file each is and when
 * it was changed last, instead of sums. Settling looks whether they are still those, sums them up, brings all to the
 * disk and writes the manifest.
 *
 * Whatever has to last, and stands on such a layer, settles it first (settle_do). A warden that starts settles those of
 * this boot; what another boot has left so may be half written, nothing that was promised stands on it, and it is removed.
 */
#pragma once
#include <stdbool.h>

#include "layers/manifest.h"

struct flush;
struct settles;

struct settles *settles_new(void);
/* Nobody is at any of them. */
void settles_free(struct settles *s);

/* Of the layer in @dir: makes @m, which has its files' sum, a provisional one. */
int settle_provisional(int dir, struct manifest *m);
/* Whether it was made since the machine started last. */
bool settle_this_boot(const struct manifest *m);

/* What its maker has open of a layer, all taken over: its folder, "fs" in it, its manifest; or -1. */
struct settle_files {
	int dir, fs, manifest;
	struct flush *flush; /* which knows all of its files; or NULL: the whole filesystem is written then */
};
/* @m is provisional, and under its name. -ENOMEM: nothing was taken over. Any thread, as the next. */
int settle_add(struct settles *s, const struct manifest *m, const struct settle_files *files);
/*
 * Settles that layer of the store @store, or waits for who does, now. 0: it is, and what it says then is in @ret. -EBADMSG: it was changed.
 * Once it has failed it fails for good, unless settle_passes(). -ESRCH: it is not one of these any more, or never was.
 */
int settle_do(struct settles *s, int store, const char *id, const int *stop, struct manifest *ret);
/* Whether a result says nothing about the layer: it stays unsettled, and the next that needs it tries again. */
bool settle_passes(int result);
/* Forgets it if it is settled, or, with @gone, has been removed. When its own work has come back. */
void settle_forget(struct settles *s, const char *id, bool gone);
