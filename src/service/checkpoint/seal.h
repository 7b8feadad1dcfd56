/* Having a sandbox's files sealed by the warden, one at a time for each sandbox. */
#pragma once
#include "service/checkpoint/checkpoint.h"

struct checkpoint *checkpoint_alloc(struct service *s, struct tenant *t); /* referenced, empty */
/*
 * Fills @c, whose id is chosen (another is, if a layer of that id is there already), with the layer and the settings of
 * @b, and holds the layer. @fn is called later, with 0 or an error. The sandbox runs on in any case.
 */
void seal_sandbox(struct sandbox *b, struct checkpoint *c, enum memory_request memory, sandbox_done_fn *fn, void *arg);
