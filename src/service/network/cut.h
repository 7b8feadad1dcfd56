/* Connections to the outside that processes of a copy have lost, as JSON for the caller. */
#pragma once
#include "layers/memory.h"
#include "service/network/state.h"

/* JSON, or NULL: nothing was cut. @net: the names behind its synthetic addresses, or NULL. */
char *cut_text(const struct memory_cuts *c, const struct net_state *net);
