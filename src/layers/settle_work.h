/* The part of settling (settle.h) that reads and writes the layer, in a process of cloche-layers. */
#pragma once
#include "layers/manifest.h"

/* Turns @m, which has the files' sum, into a provisional manifest of the layer in @dir. */
int settle_provisional(int dir, uint64_t boot, struct manifest *m);
/*
 * Settles the layer with the provisional manifest @was; *ret is its final one. @boot: mark_boot(). -EBADMSG: it was
 * changed. @stop as in tree.h.
 */
int settle_work(int store, const struct manifest *was, uint64_t boot, const int *stop, struct manifest *ret);
