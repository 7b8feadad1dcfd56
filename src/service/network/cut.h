/* Connections to the outside that processes of a copy do not have any more, as the caller is told of them. */
#pragma once
#include "layers/memory.h"
#include "service/network/state.h"

/* JSON, or NULL: nothing was cut. @net: the names behind its synthetic addresses, or NULL. */
char *cut_text(const struct memory_cuts *c, const struct net_state *net);
