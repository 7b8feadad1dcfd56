/* Those that sandboxes belong to: all of a tenant's together have at most half of the streams there can be. */
#pragma once
#include "egress/egress.h"

struct tenant {
	struct tenant *next;
	uint64_t number;
	uint32_t sandboxes, streams;
};

struct tenant *tenant_get(struct egress *g, uint64_t number); /* to be given back by tenant_put(). NULL: no memory */
void tenant_put(struct egress *g, struct tenant *t); /* NULL is nothing */
/* Half of the descriptors for streams, and of the ports towards one server. 0 has no bound: it is alone. */
bool tenant_full(const struct egress *g, const struct tenant *t);
/* How many ports this host has for connections it makes. */
uint32_t tenant_ports(void);
