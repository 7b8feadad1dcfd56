/*
 * Processes of cloche-layers that work on the store for the warden's workers. A process that has made a layer is kept
 * for the next one, with a folder made ahead, its threads and its memory, but never for another tenant: the files that
 * it has read are hostile. Any number of threads.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "layers/task.h"

struct layer_child;
struct layer_children;

/* What a process may do. */
enum layer_role { LAYER_CHECKS /* read the store */, LAYER_MAKES };

/* @program (-1: not installed) and @store stay the caller's. NULL when there is no memory. */
struct layer_children *layer_children_new(int program, int store);
/* No process may be in use. */
void layer_children_free(struct layer_children *c);
/* Prepares a process for the next layer, unless one is ready. Slow; a failure costs only time. */
void layer_children_fill(struct layer_children *c);

/*
 * Takes a process to make a layer of @tenant's. The calling thread must not end while it is in use: the process would
 * end with it.
 */
int layer_child_take(struct layer_children *c, uint64_t tenant, struct layer_child **ret, struct err *e);
/*
 * Sends a request, and waits for the answer. Once *@stop is set the process is asked to give up, and answers -ECANCELED
 * or what it has done. Up to @max descriptors come back in @ret_fds, -1 for those that did not. -ECHILD: the process
 * was killed, and there will be no answer.
 */
int layer_child_ask(struct layer_child *k, const struct layer_ask *ask, const int *fds, unsigned n, const int *stop,
		    struct layer_answer *ret, int *ret_fds, unsigned max);
/* Ends the use of @k, which is kept for the next layer if that saves time. NULL: does nothing. */
void layer_child_give(struct layer_children *c, struct layer_child *k);

/* Sends one request to a process of its own. 0 when there is an answer, be it an error. */
int layer_children_do(struct layer_children *c, enum layer_role role, const struct layer_ask *ask, const int *stop,
		      struct layer_answer *ret);
