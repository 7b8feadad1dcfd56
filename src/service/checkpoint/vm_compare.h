/* Two states of machines, compared: see service/checkpoint/vm_mirror.h. */
#pragma once
#include "service/checkpoint/compare.h"

/* As compare_open, when both are machines, or one of them and its image. */
int vm_compare_open(struct service *s, const struct compare_request *w, compare_fn *fn, void *arg, struct err *e);
/* The same, but the files themselves are compared, where @w->from is a chain without layers. The chain stays its owner's. */
int vm_compare_whole(struct service *s, const struct compare_request *w, compare_fn *fn, void *arg, struct err *e);
